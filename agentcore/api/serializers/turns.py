"""Turns, their steps and calls, as answers show them and bodies describe them."""

from __future__ import annotations

from typing import Any

from django.db.models import Prefetch, QuerySet
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from agentcore.api.operations import StoredError
from agentcore.api.parsing import Body, Json, JsonObject, Text
from agentcore.api.serializers.agents import RevisionSerializer
from agentcore.engine import citing, reading
from agentcore.engine.results import StepSummary
from agentcore.models import AgentContext, ToolApproval


class UsageSerializer(serializers.Serializer[Any]):
    """Tokens, as the provider counted them."""

    input_tokens = serializers.IntegerField(read_only=True)
    output_tokens = serializers.IntegerField(read_only=True)


class PendingApprovalSerializer(serializers.ModelSerializer[ToolApproval]):
    """A request that a turn waits for."""

    class Meta:
        model = ToolApproval
        fields = ("id", "tool", "expires_at")
        read_only_fields = fields


class StepCallSerializer(serializers.Serializer[Any]):
    """One tool call of a step. Secrets in `arguments` and `result` are masked."""

    call_id = serializers.CharField(read_only=True)
    tool = serializers.CharField(read_only=True)
    arguments = serializers.JSONField(read_only=True, allow_null=True)
    status = serializers.CharField(
        read_only=True,
        help_text="pending, approved, executing, completed, failed, rejected, expired, cancelled or unknown",
    )
    result = serializers.JSONField(read_only=True, allow_null=True)
    error = StoredError(read_only=True)
    attempts = serializers.IntegerField(read_only=True)
    late_result = serializers.JSONField(read_only=True, allow_null=True)


class StepSerializer(serializers.Serializer[Any]):
    """One step of a turn. `duration` is in seconds."""

    number = serializers.IntegerField(read_only=True)
    state = serializers.CharField(read_only=True, help_text="thinking, using_tool, completed, failed or cancelled")
    action = serializers.CharField(read_only=True, help_text="think, use_tool, ask_user or respond")
    message = serializers.DictField(read_only=True, allow_null=True)
    tool_calls = StepCallSerializer(many=True, read_only=True)
    usage = UsageSerializer(read_only=True)
    duration = serializers.FloatField(read_only=True, allow_null=True)
    error = StoredError(read_only=True)
    finish_reason = serializers.CharField(
        read_only=True,
        help_text="stop, tool_calls, length (the text was cut off), content_filter, refusal, other; empty before",
    )


class CitationSerializer(serializers.Serializer[Any]):
    """A passage of the knowledge base that the model was shown. `document` is its id in the knowledge base."""

    document = serializers.IntegerField(read_only=True)
    title = serializers.CharField(read_only=True)
    source = serializers.CharField(read_only=True)  # type: ignore[assignment]  # the field, not the option
    heading = serializers.CharField(read_only=True)
    position = serializers.IntegerField(read_only=True)
    score = serializers.FloatField(read_only=True)


class TurnSerializer(serializers.ModelSerializer[AgentContext]):
    """One user message, worked to an end."""

    session_id = serializers.CharField(source="session.session_id", read_only=True)
    agent = serializers.CharField(source="agent.name", read_only=True)
    revision = RevisionSerializer(read_only=True)
    state = serializers.CharField(
        read_only=True,
        help_text="queued, thinking, using_tool, waiting_for_approval, waiting_for_input, cancelling, completed, "
        "failed, cancelled or interrupted",
    )
    input = serializers.DictField(read_only=True)
    error = StoredError(read_only=True)
    usage = UsageSerializer(source="*", read_only=True)
    pending_approvals = PendingApprovalSerializer(many=True, read_only=True)
    metadata = serializers.DictField(read_only=True)

    class Meta:
        model = AgentContext
        fields: tuple[str, ...] = (
            "execution_id",
            "session_id",
            "agent",
            "revision",
            "state",
            "input",
            "response",
            "error",
            "question",
            "usage",
            "step_count",
            "pending_approvals",
            "idempotency_key",
            "metadata",
            "created_at",
            "started_at",
            "completed_at",
        )
        read_only_fields = fields


class TurnDetailSerializer(TurnSerializer):
    """A turn with its steps and their calls, and what the model was shown of the knowledge base."""

    steps = serializers.SerializerMethodField()
    citations = serializers.SerializerMethodField()
    _read: tuple[StepSummary, ...] | None = None

    class Meta(TurnSerializer.Meta):
        fields = (*TurnSerializer.Meta.fields, "steps", "citations")
        read_only_fields = fields

    @extend_schema_field(StepSerializer(many=True))
    def get_steps(self, turn: AgentContext) -> Any:
        return StepSerializer(self._steps(turn), many=True).data

    @extend_schema_field(CitationSerializer(many=True))
    def get_citations(self, turn: AgentContext) -> Any:
        return CitationSerializer(citing.citations_of(turn, self._steps(turn)), many=True).data

    def _steps(self, turn: AgentContext) -> tuple[StepSummary, ...]:
        """Return the steps, read once for both."""
        if self._read is None:
            self._read = reading.steps_of(turn)
        return self._read


@extend_schema_field(
    {
        "oneOf": [
            {"type": "string"},
            {
                "type": "object",
                "properties": {"role": {"type": "string", "enum": ["user"]}, "content": {"type": "string"}},
                "required": ["content"],
            },
        ]
    }
)
class UserMessage(Json):
    """Text, or an object with it; the core checks which."""


class NewTurn(Body):
    """A message to work on: text, or `{"role": "user", "content": text}`."""

    message = UserMessage()
    metadata = JsonObject(required=False)
    idempotency_key = Text(required=False, help_text="As the header Idempotency-Key: 1 to 255 characters.")


class Answer(Body):
    """An answer to a turn that waits for input."""

    message = UserMessage()
    idempotency_key = Text(required=False, help_text="As the header Idempotency-Key: 1 to 255 characters.")


def with_parts(turns: QuerySet[AgentContext]) -> QuerySet[AgentContext]:
    """Return the turns with all that the serializers read of them, in a constant number of queries."""
    pending = ToolApproval.objects.pending().order_by("id").only("id", "tool", "expires_at", "turn_id")
    return turns.select_related("session", "agent", "revision").prefetch_related(
        Prefetch("approvals", queryset=pending, to_attr="pending_approvals")
    )


def shown(turn: AgentContext) -> Any:
    """Return a turn as answers show it."""
    return TurnSerializer(with_parts(AgentContext.objects.all()).get(pk=turn.pk)).data
