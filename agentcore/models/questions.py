"""Questions to the user of a turn, and their answers."""

from __future__ import annotations

from django.db import models

from agentcore.models.base import Record
from agentcore.models.steps import ToolCall
from agentcore.models.turns import AgentContext


class UserQuestion(Record):
    """One question that a turn put to its user; the answer is the result of `call`.

    A call is asked about once, whatever crashes. The digests tell an answer that was sent twice from another one;
    they are null until there is an answer, and stay so when the turn ends without one.
    """

    turn = models.ForeignKey(AgentContext, on_delete=models.CASCADE, related_name="questions")
    call = models.OneToOneField(ToolCall, on_delete=models.CASCADE, related_name="question")
    question = models.TextField()
    answer = models.TextField(null=True, blank=True)  # noqa: DJ001 - null means that nobody has answered
    answered_by = models.CharField(max_length=255, blank=True, default="")
    # Unique by digest: MariaDB compares text without regard to case and trailing spaces.
    idempotency_digest = models.CharField(  # noqa: DJ001 - several without an answer are no duplicates
        max_length=64, null=True, blank=True, editable=False
    )
    body_digest = models.CharField(max_length=64, blank=True, default="", editable=False)
    asked_at = models.DateTimeField()
    answered_at = models.DateTimeField(null=True, blank=True)

    class Meta(Record.Meta):
        ordering = ("id",)
        constraints = (
            models.UniqueConstraint(fields=("turn", "idempotency_digest"), name="agentcore_question_idempotency"),
        )

    def __str__(self) -> str:
        return f"Question {self.pk}"
