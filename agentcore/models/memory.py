"""Memories: what is known of a user, or within one session, from before. Whose they are is filtered here alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from django.db import models
from django.db.models import F, Q

from agentcore import clock
from agentcore.models.agents import Agent
from agentcore.models.base import Manager, Owned, QuerySet, Record
from agentcore.models.sessions import AgentSession


class MemoryKind(models.TextChoices):
    """What a memory is: words said, a thing with attributes, a fact, a value under a key, or what happened."""

    CONVERSATION = "conversation"
    ENTITY = "entity"
    FACT = "fact"
    WORKING_MEMORY = "working_memory"
    EVENT = "event"


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Whose memories are meant. Made by `of_user` or `of_session`; the plain `Owner()` is nobody, who has none.

    With a user alone: all that is theirs, wherever it may be used. With a user and a session: what may be used in
    that session, which is what the user has everywhere and what is kept to it. With a session alone, which has no
    user: its own.
    """

    user_id: Any = None  # a project's user model may have any key
    user_key: str = ""
    user_name: str = ""
    session_pk: int | None = None
    session_id: str = ""

    @classmethod
    def of_user(cls, user: Any) -> Owner:
        """Return the owner that a user is; for None and who is not logged in, nobody."""
        if user is None or user.pk is None:
            return cls()
        return cls(user_id=user.pk, user_key=str(user.pk), user_name=user.get_username()[:255])

    @classmethod
    def of_session(cls, session: AgentSession) -> Owner:
        """Return whose memories may be used in a session; one whose user was deleted is nobody's."""
        # Any: the type of a foreign key's column is not known to the plugin.
        user_id: Any = session.user_id
        if user_id is None and session.user_key:
            return cls()
        return cls(
            user_id=user_id,
            user_key=session.user_key,
            user_name=session.user_name,
            session_pk=session.pk,
            session_id=session.session_id,
        )

    @property
    def is_nobody(self) -> bool:
        return self.user_id is None and self.session_pk is None


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What a prompt shows already: what was told in this session, of these kinds."""

    session_id: str
    kinds: tuple[str, ...]


class MemoryQuerySet(QuerySet["Memory"]):
    def of(self, owner: Owner) -> Self:
        """Keep what `owner` has, what is not over, and what is not kept to a deleted session; nothing for nobody."""
        lasting = self.owned_by(owner).lasting()
        # A turn's own session is there.
        return lasting if owner.session_pk is not None else lasting.filter(session__deleted_at=None)

    def owned_by(self, owner: Owner) -> Self:
        """Keep what `owner` has, also what is over. No other filter decides whose a memory is."""
        if owner.is_nobody:
            return self.none()
        if owner.user_id is None:
            return self.filter(session_id=owner.session_pk, user=None, user_key="")
        theirs = self.filter(user_id=owner.user_id)
        if owner.session_pk is None:
            return theirs
        return theirs.filter(Q(session=None) | Q(session_id=owner.session_pk))

    def lasting(self) -> Self:
        """Leave out what has expired."""
        return self.filter(Q(expires_at=None) | Q(expires_at__gt=clock.db_now()))

    def over(self) -> Self:
        """Keep what has expired, and what belonged to a user who was deleted."""
        return self.filter(Q(expires_at__lte=clock.db_now()) | Q(user=None, user_key__gt=""))

    def not_shown(self, shown: Shown | None) -> Self:
        """Leave out what a prompt shows already."""
        return self if shown is None else self.exclude(told_in=shown.session_id, kind__in=shown.kinds)

    def of_kind(self, kind: str | None) -> Self:
        """Keep what is of a kind; all if it is None."""
        return self if kind is None else self.filter(kind=kind)

    def newest_first(self) -> Self:
        return self.order_by(F("seen_at").desc(), "-id")


class Memory(Owned, Record):
    """One thing that is remembered. With a session it is kept to that one; without, its user has it everywhere.

    `digest` is of the owner, the kind and what makes two memories the same: told again, the row counts it. `told_in`
    and `execution_id` name the session and the turn that told it last.
    """

    session = models.ForeignKey(
        AgentSession, null=True, blank=True, on_delete=models.CASCADE, related_name="memories", db_index=False
    )
    agent = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    kind = models.CharField(max_length=16, choices=MemoryKind)
    text = models.TextField()
    data = models.JSONField(default=dict, blank=True)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    count = models.PositiveIntegerField(default=1, verbose_name="times told")
    execution_id = models.UUIDField(null=True, blank=True, verbose_name="turn that told it last")
    told_in = models.CharField(max_length=64, blank=True, default="", verbose_name="session that told it last")
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    seen_at = models.DateTimeField(verbose_name="told last")
    corrected_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)

    objects = Manager.from_queryset(MemoryQuerySet)()

    class Meta(Record.Meta):
        verbose_name_plural = "memories"
        ordering = ("-id",)
        constraints = (
            models.CheckConstraint(condition=Q(kind__in=MemoryKind.values), name="agentcore_memory_kind"),
            models.CheckConstraint(
                condition=Q(user_key__gt="") | Q(session__isnull=False), name="agentcore_memory_has_owner"
            ),
        )
        indexes = (
            models.Index(fields=("user", "seen_at"), name="agentcore_memory_user"),
            models.Index(fields=("session", "seen_at"), name="agentcore_memory_session"),
            models.Index(fields=("expires_at",), name="agentcore_memory_expiry"),
        )

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.pk}"

    @property
    def scope(self) -> str:
        """The part of a vector index that it is found in."""
        return session_scope(self.session.session_id) if self.session is not None else user_scope(self.user_key)


def user_scope(user_key: str) -> str:
    """Return the scope of what a user has everywhere."""
    return f"user:{user_key}"


def session_scope(session_id: str) -> str:
    """Return the scope of what is kept to a session."""
    return f"session:{session_id}"
