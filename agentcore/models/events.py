"""The ordered log of a session."""

from __future__ import annotations

from django.db import models

from agentcore.models.base import Record
from agentcore.models.sessions import AgentSession
from agentcore.models.turns import AgentContext


class SessionEvent(Record):
    """One entry of a session's log, written in the transaction of the change it tells.

    `data` can be erased: the chain holds its digest. `turn_id` is the turn's `execution_id`.
    """

    session = models.ForeignKey(AgentSession, on_delete=models.CASCADE, related_name="events", db_index=False)
    turn = models.ForeignKey(
        AgentContext,
        to_field="execution_id",
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="events",
    )
    sequence = models.PositiveBigIntegerField()
    type = models.CharField(max_length=64)
    data = models.JSONField(null=True)
    data_digest = models.CharField(max_length=64)
    created_at = models.DateTimeField()
    hash = models.CharField(max_length=64)

    class Meta(Record.Meta):
        ordering = ("session", "sequence")
        constraints = (models.UniqueConstraint(fields=("session", "sequence"), name="agentcore_event_sequence"),)

    def __str__(self) -> str:
        return f"{self.sequence} {self.type}"
