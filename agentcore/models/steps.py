"""Steps and tool calls: what the model replied, and what came of it."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q

from agentcore.models.base import Record
from agentcore.models.turns import AgentContext
from agentcore.states import CallStatus, StepAction, StepState


def new_call_id() -> str:
    """Return an id of our own: providers send empty, repeated and reused ones."""
    return f"call_{uuid.uuid4().hex}"


class AgentStep(Record):
    """One think-and-act round. `message` is the model's reply, stored before it is acted on.

    `failed_attempts` is how often the model was asked for that reply in vain, `waited_seconds` how long the turn was
    put back for until it could be asked.
    """

    turn = models.ForeignKey(AgentContext, on_delete=models.CASCADE, related_name="steps", db_index=False)
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=16, choices=StepState, default=StepState.THINKING)
    action = models.CharField(max_length=16, choices=StepAction, blank=True, default="")
    message = models.JSONField(null=True, blank=True)
    finish_reason = models.CharField(max_length=16, blank=True, default="")
    model = models.CharField(max_length=255, blank=True, default="")
    error = models.JSONField(null=True, blank=True)
    failed_attempts = models.PositiveIntegerField(default=0)
    waited_seconds = models.FloatField(default=0)
    input_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    duration = models.FloatField(null=True, blank=True, help_text="Seconds the model worked on the reply.")
    started_at = models.DateTimeField()
    completed_at = models.DateTimeField(null=True, blank=True)

    class Meta(Record.Meta):
        verbose_name = "step"
        ordering = ("turn", "number")
        constraints = (
            models.UniqueConstraint(fields=("turn", "number"), name="agentcore_step_number"),
            models.CheckConstraint(condition=Q(state__in=StepState.values), name="agentcore_step_state"),
        )

    def __str__(self) -> str:
        return f"Step {self.number}"


class ToolCall(Record):
    """One call a model asked for. Its row is unique for (step, position); so is its one result.

    `call_id` is stable over retries and restarts; `provider_call_id` is what the model wrote.
    `needs_approval` is None until it was decided whether a person must allow the call. The call has its one
    result once `completed_at` is set; one that is `unknown` without it waits for a person to say how it ended.
    """

    turn = models.ForeignKey(AgentContext, on_delete=models.CASCADE, related_name="tool_calls", db_index=False)
    step = models.ForeignKey(AgentStep, on_delete=models.CASCADE, related_name="tool_calls", db_index=False)
    position = models.PositiveIntegerField()
    call_id = models.CharField(max_length=64, unique=True, default=new_call_id, editable=False)
    provider_call_id = models.CharField(max_length=255, blank=True, default="")
    tool = models.CharField(max_length=255)
    raw_arguments = models.TextField(blank=True, default="")
    arguments = models.JSONField(null=True, blank=True)
    arguments_digest = models.CharField(max_length=64, blank=True, default="")
    proposed_arguments = models.JSONField(
        null=True, blank=True, help_text="What the model asked for, when a person changed it."
    )
    fingerprint = models.CharField(max_length=64, blank=True, default="")
    sensitive = models.JSONField(default=list, blank=True)
    idempotent = models.BooleanField(default=False)
    needs_approval = models.BooleanField(null=True, blank=True)
    status = models.CharField(max_length=16, choices=CallStatus, default=CallStatus.PENDING)
    result = models.JSONField(null=True, blank=True)
    error = models.JSONField(null=True, blank=True)
    late_result = models.JSONField(null=True, blank=True)
    attempts = models.PositiveIntegerField(default=0)
    started_at = models.DateTimeField(null=True, blank=True)
    completed_at = models.DateTimeField(null=True, blank=True)
    duration = models.FloatField(null=True, blank=True, help_text="Seconds of the last attempt.")

    class Meta(Record.Meta):
        ordering = ("step", "position")
        constraints = (
            models.UniqueConstraint(fields=("step", "position"), name="agentcore_call_position"),
            models.CheckConstraint(condition=Q(status__in=CallStatus.values), name="agentcore_call_status"),
        )
        indexes = (
            models.Index(fields=("turn", "status"), name="agentcore_call_turn"),
            models.Index(fields=("tool", "status"), name="agentcore_call_tool"),
        )

    def __str__(self) -> str:
        return f"{self.tool} ({self.call_id})"

    @property
    def is_open(self) -> bool:
        """Say whether the call still lacks its result."""
        return self.completed_at is None

    @property
    def may_have_happened(self) -> bool:
        """Say whether an attempt at it was begun, whatever became of it."""
        return self.attempts > 0

    @property
    def is_in_doubt(self) -> bool:
        """Say whether a person must say how the call ended."""
        return self.is_open and self.status == CallStatus.UNKNOWN
