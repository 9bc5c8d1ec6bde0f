"""Approvals and decisions, as answers show them and bodies describe them."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from agentcore.api.parsing import Body, Json, JsonObject, Text, WholeNumber
from agentcore.api.serializers.agents import RevisionSerializer
from agentcore.approvals import shown
from agentcore.models import ToolApproval
from agentcore.states import ApprovalKind, ApprovalStatus, Verdict

MAX_DECISIONS = 200


class VotesSerializer(serializers.Serializer[Any]):
    """How many must approve, and how many did so for the present version."""

    needed = serializers.IntegerField(read_only=True)
    approve = serializers.IntegerField(read_only=True)


class DecisionSerializer(serializers.Serializer[Any]):
    """What one person decided; `by` is null for what the system did."""

    by = serializers.CharField(read_only=True, allow_null=True)
    verdict = serializers.CharField(read_only=True, help_text="approve, reject, respond, expire or cancel")
    note = serializers.CharField(read_only=True)
    at = serializers.DateTimeField(read_only=True)


class ApprovalSerializer(serializers.Serializer[ToolApproval]):
    """The request for a person's decision on one tool call. Secrets in arguments are masked."""

    id = serializers.IntegerField(read_only=True)
    kind = serializers.ChoiceField(choices=ApprovalKind.choices, read_only=True)
    execution_id = serializers.UUIDField(read_only=True)
    session_id = serializers.CharField(read_only=True)
    agent = serializers.CharField(read_only=True)
    revision = RevisionSerializer(read_only=True)
    call_id = serializers.CharField(read_only=True)
    tool = serializers.CharField(read_only=True)
    arguments = serializers.DictField(read_only=True)
    arguments_digest = serializers.CharField(read_only=True)
    preview = serializers.CharField(read_only=True, help_text="What the tool says the call would do.")
    status = serializers.ChoiceField(choices=ApprovalStatus.choices, read_only=True)
    version = serializers.IntegerField(read_only=True, help_text="Grows when the request changes.")
    requested_by = serializers.CharField(read_only=True, allow_null=True, help_text="Whose turn it is.")
    votes = VotesSerializer(read_only=True)
    decisions = DecisionSerializer(read_only=True, many=True)
    requested_at = serializers.DateTimeField(read_only=True)
    expires_at = serializers.DateTimeField(read_only=True, allow_null=True)
    decided_at = serializers.DateTimeField(read_only=True, allow_null=True)
    approved_arguments = serializers.DictField(read_only=True, allow_null=True, help_text="What runs.")
    late_result = serializers.JSONField(
        read_only=True, allow_null=True, help_text="What the call returned after its time was over; masked."
    )
    cut = serializers.ListField(
        child=serializers.CharField(),
        read_only=True,
        required=False,
        help_text="In lists: what is not whole here; arguments are {bytes, sha256} then, texts end early.",
    )

    def to_representation(self, instance: ToolApproval) -> dict[str, Any]:
        """Return the one shape that the sockets show too, with its large parts cut in a list."""
        is_listed = isinstance(self.parent, serializers.ListSerializer)
        return shown.approval_in_list(instance) if is_listed else shown.approval_as_dict(instance)


class Approve(Body):
    """Allow the call. `arguments` replaces the whole object; a masked value in it keeps the real one."""

    arguments = JsonObject(required=False)
    note = Text(required=False)
    version = WholeNumber(required=False, help_text="The version you were shown: a newer one is not decided on.")


class Reject(Body):
    """Refuse the call. The model is told the reason word for word."""

    reason = Text(required=False)
    version = WholeNumber(required=False, help_text="The version you were shown: a newer one is not decided on.")


class Respond(Body):
    """Give the model a result in place of running the tool."""

    result = Json(allow_null=True)
    note = Text(required=False)
    version = WholeNumber(required=False, help_text="The version you were shown: a newer one is not decided on.")


FORMS: dict[str, type[Body]] = {Verdict.APPROVE: Approve, Verdict.REJECT: Reject, Verdict.RESPOND: Respond}


class OneDecision(Body):
    """One of several decisions: the approval's id, the verdict, and the fields of that verdict."""

    id = WholeNumber()
    verdict = serializers.ChoiceField(choices=sorted(FORMS))
    arguments = JsonObject(required=False)
    note = Text(required=False)
    reason = Text(required=False)
    result = Json(required=False, allow_null=True)
    version = WholeNumber(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return id, verdict and the verdict's own `fields`; another verdict's field is unknown here."""
        fields = {name: value for name, value in attrs.items() if name not in ("id", "verdict")}
        form = FORMS[attrs["verdict"]](data=fields)
        form.is_valid(raise_exception=True)
        return {"id": attrs["id"], "verdict": attrs["verdict"], "fields": form.validated_data}


class ManyDecisions(Body):
    """Decisions to take one after the other, each by itself."""

    decisions = serializers.ListField(child=OneDecision(), max_length=MAX_DECISIONS)


class DecisionErrorSerializer(serializers.Serializer[Any]):
    """Why a decision was not taken."""

    code = serializers.CharField(read_only=True)
    message = serializers.CharField(read_only=True)


class DecisionResultSerializer(serializers.Serializer[Any]):
    """What came of one decision: the approval's status now, or the error."""

    id = serializers.IntegerField(read_only=True)
    status = serializers.CharField(read_only=True, required=False)
    error = DecisionErrorSerializer(read_only=True, required=False)


class DecisionResultsSerializer(serializers.Serializer[Any]):
    """What came of several decisions, in their order."""

    results = DecisionResultSerializer(many=True, read_only=True)
