"""Approvals and the record of who decided what."""

from __future__ import annotations

from typing import Any, Self

from django.conf import settings
from django.db import models
from django.db.models import Exists, OuterRef, Q

from agentcore import clock
from agentcore.models.agents import Agent
from agentcore.models.base import Manager, QuerySet, Record
from agentcore.models.sessions import AgentSession
from agentcore.models.steps import ToolCall
from agentcore.models.turns import AgentContext
from agentcore.states import ApprovalKind, ApprovalStatus, Channel, Verdict

DECIDE_PERMISSION = "agentcore.decide_toolapproval"
VIEW_PERMISSION = "agentcore.view_toolapproval"


class ApprovalQuerySet(QuerySet["ToolApproval"]):
    def pending(self) -> Self:
        return self.filter(status=ApprovalStatus.PENDING)

    def expired_by_now(self) -> Self:
        """Keep the pending ones whose time is over."""
        return self.pending().filter(expires_at__lte=clock.db_now())

    def due_for_reminder(self) -> Self:
        """Keep the pending ones whose reminder is due and not sent."""
        return self.pending().filter(remind_at__lte=clock.db_now())

    def permitted_to(self, user: Any) -> Self:
        """Keep what `user` has the permissions for, four eyes aside."""
        if not user.is_active or not user.has_perm(DECIDE_PERMISSION):
            return self.none()
        asked = self.order_by().values_list("permission", flat=True).distinct()
        permitted = [names for names in asked if user.has_perms(names.split())]
        return self.filter(permission__in=permitted)

    def visible_to(self, user: Any) -> Self:
        """Keep what exists for `user`: what they have the permissions for; all, for who may view approvals."""
        return self if user.has_perm(VIEW_PERMISSION) else self.permitted_to(user)

    def for_reviewer(self, user: Any) -> Self:
        """Keep what `user` may decide: permitted, and not their own while four eyes are asked for."""
        return self.permitted_to(user).filter(_not_own(user))

    def waiting_for(self, user: Any) -> Self:
        """Keep the pending ones that `user` may decide and has not voted on."""
        return self.pending().for_reviewer(user).exclude(Exists(votes_for().filter(actor_key=str(user.pk))))


def votes_for() -> QuerySet[ApprovalDecision]:
    """Return the votes that count for the present version of an outer query's approval."""
    votes: QuerySet[ApprovalDecision] = ApprovalDecision.objects.order_by().filter(
        approval=OuterRef("pk"), approval_version=OuterRef("version"), counted_key__isnull=False
    )
    return votes


def _not_own(user: Any) -> Q:
    nobodys = Q(requester_key="")
    anothers = Q(requester__isnull=False) & ~Q(requester_key=str(user.pk))
    return Q(four_eyes=False) | nobodys | anothers


class ToolApproval(Record):
    """The request for a person's decision on one tool call.

    What the decision depends on (policy, permission, requester) is copied to the row when it is asked
    for. `version` grows when the request changes; votes on earlier versions are void.
    """

    kind = models.CharField(max_length=16, choices=ApprovalKind, default=ApprovalKind.CALL)
    status = models.CharField(max_length=16, choices=ApprovalStatus, default=ApprovalStatus.PENDING)
    version = models.PositiveIntegerField(default=1)
    call = models.ForeignKey(ToolCall, on_delete=models.CASCADE, related_name="approvals")
    turn = models.ForeignKey(AgentContext, on_delete=models.CASCADE, related_name="approvals")
    session = models.ForeignKey(AgentSession, on_delete=models.CASCADE, related_name="approvals")
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="approvals")
    tool = models.CharField(max_length=255)
    fingerprint = models.CharField(max_length=64, blank=True, default="")

    arguments = models.JSONField()
    arguments_digest = models.CharField(max_length=64)
    approved_arguments = models.JSONField(null=True, blank=True)
    response = models.JSONField(null=True, blank=True)
    preview = models.TextField(blank=True, default="")
    reason = models.TextField(blank=True, default="", help_text="Why a person is asked.")

    requester = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    requester_key = models.CharField(max_length=255, blank=True, default="")
    requester_name = models.CharField(max_length=255, blank=True, default="")

    permission = models.CharField(
        max_length=4000,
        blank=True,
        default="",
        help_text="What is asked for besides; several are separated by spaces.",
    )
    votes_needed = models.PositiveIntegerField(default=1)
    four_eyes = models.BooleanField(default=True)
    allow_edit = models.BooleanField(default=True)
    on_expiry = models.CharField(max_length=8, default="reject")
    is_unroutable = models.BooleanField(default=False, help_text="Too few active users may decide this request.")

    requested_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)
    decided_at = models.DateTimeField(null=True, blank=True)
    remind_at = models.DateTimeField(
        null=True, blank=True, help_text="Empty once it was done, or when it never expires."
    )
    reminded_at = models.DateTimeField(null=True, blank=True)

    objects = Manager.from_queryset(ApprovalQuerySet)()

    class Meta(Record.Meta):
        ordering = ("-id",)
        permissions = (("decide_toolapproval", "Can decide tool approvals"),)
        constraints = (
            models.CheckConstraint(condition=Q(kind__in=ApprovalKind.values), name="agentcore_approval_kind"),
            models.CheckConstraint(condition=Q(status__in=ApprovalStatus.values), name="agentcore_approval_status"),
        )
        indexes = (
            models.Index(fields=("status", "id"), name="agentcore_approval_queue"),
            models.Index(fields=("status", "expires_at"), name="agentcore_approval_expiry"),
            models.Index(fields=("status", "remind_at"), name="agentcore_approval_reminder"),
            models.Index(fields=("tool", "status"), name="agentcore_approval_tool"),
            models.Index(fields=("arguments_digest", "tool"), name="agentcore_approval_same"),
            models.Index(fields=("updated_at",), name="agentcore_approval_updated"),
        )

    def __str__(self) -> str:
        return f"Approval {self.pk}: {self.tool}"


class ApprovalLink(Record):
    """A row of the project that a request is about, as its tool named it. The label stays when the row is deleted."""

    approval = models.ForeignKey(ToolApproval, on_delete=models.CASCADE, related_name="links")
    model = models.CharField(max_length=200, help_text="As Django labels it: app_label.model_name.")
    object_key = models.CharField(max_length=255)
    label = models.CharField(max_length=255)

    class Meta(Record.Meta):
        ordering = ("id",)
        constraints = (models.UniqueConstraint(fields=("approval", "model", "object_key"), name="agentcore_link_once"),)

    def __str__(self) -> str:
        return self.label


class ApprovalDecision(Record):
    """One entry of an approval's record: a vote, a refused attempt, or what the system did. Append-only.

    `counted_key` is set for votes that count, so that nobody counts twice for one version. `proposed_digest` is that
    of the arguments that were up for the vote, `arguments_digest` that of what was voted for.
    """

    approval = models.ForeignKey(ToolApproval, on_delete=models.CASCADE, related_name="decisions")
    approval_version = models.PositiveIntegerField()
    verdict = models.CharField(max_length=16, choices=Verdict)
    refusal = models.CharField(
        max_length=32, blank=True, default="", help_text="Why the attempt was refused; empty when it counted."
    )
    counted_key = models.CharField(max_length=64, null=True, blank=True)  # noqa: DJ001 - unique unless null
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    actor_key = models.CharField(max_length=255, blank=True, default="")
    actor_name = models.CharField(max_length=255, blank=True, default="")
    channel = models.CharField(max_length=16, choices=Channel)
    note = models.TextField(blank=True, default="")
    arguments_digest = models.CharField(max_length=64, blank=True, default="")
    proposed_digest = models.CharField(max_length=64, blank=True, default="")
    created_at = models.DateTimeField()

    class Meta(Record.Meta):
        ordering = ("id",)
        constraints = (
            models.UniqueConstraint(fields=("approval", "counted_key"), name="agentcore_decision_counted_once"),
            models.CheckConstraint(condition=Q(verdict__in=Verdict.values), name="agentcore_decision_verdict"),
        )
        indexes = (models.Index(fields=("actor_key", "created_at"), name="agentcore_decision_actor"),)

    def __str__(self) -> str:
        return f"{self.actor_name or 'system'}: {self.verdict}"

    @property
    def is_edit(self) -> bool:
        """Whether somebody changed the arguments and approved them so."""
        return bool(self.proposed_digest) and self.proposed_digest != self.arguments_digest

    @property
    def is_own(self) -> bool:
        """Whether somebody decided their own request: allowed only where four eyes are off."""
        return self.counted_key is not None and self.actor_key == self.approval.requester_key
