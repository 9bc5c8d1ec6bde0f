"""Turns: one user message each, worked to an end. The public id is `execution_id`."""

from __future__ import annotations

import uuid
from typing import Any, Self

from django.db import models
from django.db.models import F, Q

from agentcore import clock
from agentcore.models.agents import Agent, AgentRevision
from agentcore.models.base import Manager, Owned, QuerySet, Record
from agentcore.models.sessions import AgentSession
from agentcore.states import ACTIVE, TERMINAL, WORKING, TurnState


class TurnQuerySet(QuerySet["AgentContext"]):
    def visible_to(self, user: Any) -> Self:
        """Keep the turns of the sessions `user` may see."""
        if user.has_perm("agentcore.view_agentsession"):
            return self
        return self.filter(session__user_id=user.pk)

    def present(self) -> Self:
        """Leave out what was deleted."""
        return self.filter(deleted_at=None, session__deleted_at=None)

    def active(self) -> Self:
        return self.filter(state__in=ACTIVE)

    def abandoned(self) -> Self:
        """Keep the turns whose worker let its lease run out."""
        return self.filter(state__in=WORKING, lease_expires_at__lt=clock.db_now())

    def due(self) -> Self:
        """Leave out what was given back to go on later."""
        return self.filter(Q(due_at=None) | Q(due_at__lte=clock.db_now()))

    def overdue(self) -> Self:
        """Keep the queued turns that nobody claimed since they were sent, or since the time they were sent for."""
        return self.filter(state=TurnState.QUEUED, next_dispatch_at__lt=clock.db_now())

    def unremembered(self) -> Self:
        """Keep the completed turns that their workers did not remember in time."""
        return self.filter(remember_at__lte=clock.db_now())


class AgentContext(Owned, Record):
    """The record of one turn: its input, state, answer, limits, and who works on it.

    `active_session` is the session's one place: it is set exactly while the turn is active, and unique.
    `due_at` is set while it is queued to go on at that time, and not before.
    `remember_at` is set from its completion until what was said is remembered: from then on others do it, if its worker
    has died.
    `lease_token` grows with each claim; a worker writes only while its token is the present one.
    `erased_at` says that its content is gone, `trimmed_at` that its part of the log is, and that the row is kept for
    the record of decisions.
    """

    execution_id = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    session = models.ForeignKey(AgentSession, on_delete=models.CASCADE, related_name="turns", db_index=False)
    active_session = models.OneToOneField(
        AgentSession, null=True, blank=True, on_delete=models.CASCADE, related_name="active_turn"
    )
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="turns", db_index=False)
    revision = models.ForeignKey(AgentRevision, on_delete=models.PROTECT, related_name="turns")

    input = models.JSONField()
    state = models.CharField(max_length=24, choices=TurnState, default=TurnState.QUEUED)
    response = models.TextField(null=True, blank=True)  # noqa: DJ001 - no answer and an empty one differ
    error = models.JSONField(null=True, blank=True)
    question = models.TextField(null=True, blank=True)  # noqa: DJ001 - null means that nothing is asked
    metadata = models.JSONField(default=dict, blank=True)

    # Unique by digest: MariaDB compares text without regard to case and trailing spaces.
    idempotency_key = models.CharField(max_length=255)
    idempotency_digest = models.CharField(max_length=64, editable=False)
    body_digest = models.CharField(max_length=64, editable=False)

    max_steps = models.PositiveIntegerField()
    turn_timeout = models.FloatField(help_text="Seconds of work; waiting for people does not count.")
    enable_memory = models.BooleanField(default=True)
    enable_rag = models.BooleanField(default=False)

    step_count = models.PositiveIntegerField(default=0)
    input_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    worked_seconds = models.FloatField(default=0)

    lease_token = models.PositiveBigIntegerField(default=0)
    lease_owner = models.CharField(max_length=255, blank=True, default="")
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    takeovers = models.PositiveIntegerField(default=0)
    dispatch_count = models.PositiveIntegerField(default=0)
    due_at = models.DateTimeField(null=True, blank=True)
    next_dispatch_at = models.DateTimeField(null=True, blank=True)
    remember_at = models.DateTimeField(null=True, blank=True)

    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    completed_at = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True)
    erased_at = models.DateTimeField(null=True, blank=True)
    trimmed_at = models.DateTimeField(null=True, blank=True)

    objects = Manager.from_queryset(TurnQuerySet)()

    class Meta(Record.Meta):
        verbose_name = "turn"
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(fields=("session", "idempotency_digest"), name="agentcore_turn_idempotency"),
            models.CheckConstraint(condition=Q(state__in=TurnState.values), name="agentcore_turn_state"),
            models.CheckConstraint(
                condition=Q(state__in=sorted(TERMINAL), active_session__isnull=True)
                | Q(state__in=sorted(ACTIVE), active_session__isnull=False, active_session=F("session")),
                name="agentcore_turn_active_place",
            ),
        )
        indexes = (
            models.Index(fields=("session", "id"), name="agentcore_turn_session"),
            models.Index(fields=("state", "lease_expires_at"), name="agentcore_turn_lease"),
            models.Index(fields=("state", "next_dispatch_at"), name="agentcore_turn_dispatch"),
            models.Index(fields=("user", "created_at"), name="agentcore_turn_user"),
            models.Index(fields=("agent", "created_at"), name="agentcore_turn_agent"),
            models.Index(fields=("created_at",), name="agentcore_turn_created"),
            models.Index(fields=("completed_at",), name="agentcore_turn_completed"),
            models.Index(fields=("trimmed_at", "completed_at"), name="agentcore_turn_retention"),
            models.Index(fields=("user_key",), name="agentcore_turn_owner"),
            models.Index(fields=("remember_at",), name="agentcore_turn_remember"),
        )

    def __str__(self) -> str:
        return f"Turn {self.execution_id}"

    @property
    def is_active(self) -> bool:
        return self.state in ACTIVE


class EntryKind(models.TextChoices):
    """What a turn knows beside the conversation.

    Tools set working memory; facts, entities and what else is recalled come from memory; the rest from documents.
    """

    WORKING_MEMORY = "working_memory"
    FACT = "fact"
    ENTITY = "entity"
    RECALLED = "recalled"
    RETRIEVED = "retrieved"


class ContextEntry(Record):
    """One thing a turn knows. Rows, so that two writers of different keys lose nothing."""

    turn = models.ForeignKey(AgentContext, on_delete=models.CASCADE, related_name="entries", db_index=False)
    kind = models.CharField(max_length=16, choices=EntryKind)
    key = models.CharField(max_length=255)
    key_digest = models.CharField(max_length=64, editable=False)
    value = models.JSONField(null=True)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta(Record.Meta):
        verbose_name_plural = "context entries"
        ordering = ("id",)
        constraints = (
            models.UniqueConstraint(fields=("turn", "kind", "key_digest"), name="agentcore_entry_key"),
            models.CheckConstraint(condition=Q(kind__in=EntryKind.values), name="agentcore_entry_kind"),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"
