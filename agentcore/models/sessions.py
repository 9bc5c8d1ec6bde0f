"""Sessions: conversations, each with one ordered log and at most one active turn."""

from __future__ import annotations

from typing import Any, Self

from django.db import models
from django.db.models import Q

from agentcore.models.agents import Agent, AgentRevision
from agentcore.models.base import Manager, Owned, QuerySet, Record
from agentcore.states import SessionStatus


class SessionQuerySet(QuerySet["AgentSession"]):
    def visible_to(self, user: Any) -> Self:
        """Keep what `user` may see: their own, or all with the permission to view sessions."""
        if user.has_perm("agentcore.view_agentsession"):
            return self
        return self.filter(user_id=user.pk)

    def present(self) -> Self:
        """Leave out what was deleted."""
        return self.filter(deleted_at=None)

    def unarchived(self) -> Self:
        return self.filter(status=SessionStatus.ACTIVE)


class AgentSession(Owned, Record):
    """A conversation with one agent, pinned to the revision it began with.

    `last_sequence` and `last_hash` are the head of the session's event chain. `removed_through` and `removed_hash` are
    the number and hash of the last event that retention removed from its beginning; 0 and "" while the log is whole.
    """

    session_id = models.CharField(max_length=64, unique=True)
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="sessions", db_index=False)
    revision = models.ForeignKey(AgentRevision, on_delete=models.PROTECT, related_name="sessions")
    status = models.CharField(max_length=16, choices=SessionStatus, default=SessionStatus.ACTIVE)
    title = models.CharField(max_length=255, blank=True, default="")
    metadata = models.JSONField(default=dict, blank=True)
    driver_session_id = models.CharField(max_length=255, blank=True, default="")
    last_sequence = models.PositiveBigIntegerField(default=0)
    last_hash = models.CharField(max_length=64, blank=True, default="")
    removed_through = models.PositiveBigIntegerField(default=0, editable=False)
    removed_hash = models.CharField(max_length=64, blank=True, default="", editable=False)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    completed_at = models.DateTimeField(null=True, blank=True)
    archived_at = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True)
    erased_at = models.DateTimeField(null=True, blank=True, help_text="When its content was erased for good.")

    objects = Manager.from_queryset(SessionQuerySet)()

    class Meta(Record.Meta):
        ordering = ("-id",)
        constraints = (
            models.CheckConstraint(condition=Q(status__in=SessionStatus.values), name="agentcore_session_status"),
        )
        indexes = (
            models.Index(fields=("user", "-id"), name="agentcore_session_user"),
            models.Index(fields=("agent", "-id"), name="agentcore_session_agent"),
            models.Index(fields=("status", "updated_at"), name="agentcore_session_age"),
            models.Index(fields=("deleted_at",), name="agentcore_session_deleted"),
            models.Index(fields=("user_key",), name="agentcore_session_owner"),
        )

    def __str__(self) -> str:
        return self.title or self.session_id
