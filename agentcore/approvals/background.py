"""What helps a person to decide: what the call is about, why it is asked for, what was decided before."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.apps import apps
from django.contrib.auth import get_permission_codename
from django.db.models import Count, Model

from agentcore.approvals.record import COUNTED
from agentcore.models import ApprovalDecision, ToolApproval
from agentcore.states import ApprovalStatus

MAX_EARLIER = 5
DECIDED = (ApprovalStatus.APPROVED, ApprovalStatus.REJECTED, ApprovalStatus.RESPONDED)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A row the call is about. `label` is "" for who may not view such rows; `model` is None when it is gone."""

    model: type[Model] | None
    kind: str
    object_key: str
    label: str


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """A decision on the same tool with the same arguments."""

    approval_id: int
    status: str
    by: str
    note: str
    at: datetime | None


def subjects(approval: ToolApproval, user: Any) -> list[Subject]:
    """Return what the call is about, as `user` may see it."""
    return [_subject(link.model, link.object_key, link.label, user) for link in approval.links.all()]


def said_with(approval: ToolApproval) -> str:
    """Return what the agent wrote when it asked for the call, "" for nothing."""
    message = approval.call.step.message or {}
    return str(message.get("content") or "")


def earlier(approval: ToolApproval, user: Any) -> list[Earlier]:
    """Return the latest decisions on the same tool and arguments that `user` may see, the newest first."""
    same = ToolApproval.objects.filter(
        tool=approval.tool, arguments_digest=approval.arguments_digest, agent_id=approval.agent_id, status__in=DECIDED
    )
    found = same.exclude(pk=approval.pk).visible_to(user).order_by("-decided_at", "-id")
    found = found.only("status", "decided_at")[:MAX_EARLIER]
    votes = _last_votes(found)
    return [_earlier(item, votes.get(item.pk)) for item in found]


def tally(approval: ToolApproval) -> dict[str, int]:
    """Return how often this agent's calls of this tool were approved, rejected and answered so far."""
    decided = ToolApproval.objects.filter(tool=approval.tool, agent_id=approval.agent_id, status__in=DECIDED)
    counts = dict(decided.order_by().values_list("status").annotate(count=Count("pk")))
    return {str(status): counts.get(status, 0) for status in DECIDED}


def _subject(label_of_model: str, object_key: str, label: str, user: Any) -> Subject:
    try:
        model = apps.get_model(label_of_model)
    except (LookupError, ValueError):
        return Subject(model=None, kind=label_of_model, object_key=object_key, label="")
    options = model._meta
    may_view = user.has_perm(f"{options.app_label}.{get_permission_codename('view', options)}")
    return Subject(model=model, kind=str(options.verbose_name), object_key=object_key, label=label if may_view else "")


def _last_votes(approvals: Any) -> dict[int, ApprovalDecision]:
    votes = ApprovalDecision.objects.filter(COUNTED, approval_id__in=[item.pk for item in approvals])
    return {vote.approval_id: vote for vote in votes.order_by("id")}


def _earlier(approval: ToolApproval, vote: ApprovalDecision | None) -> Earlier:
    return Earlier(
        approval_id=approval.pk,
        status=approval.status,
        by=vote.actor_name if vote else "",
        note=vote.note if vote else "",
        at=approval.decided_at,
    )
