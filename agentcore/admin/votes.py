"""How many of the approvals that a request needs are given, and whether the reader gave one."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, Exists, F, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.utils.translation import gettext_lazy as _

from agentcore.admin.ways import Text
from agentcore.approvals.record import COUNTED
from agentcore.models import ApprovalDecision, ToolApproval
from agentcore.states import ApprovalStatus, Verdict

YOU_HAVE = _("You have voted; it waits for others.")


def with_votes(queryset: QuerySet[ToolApproval], user: Any) -> QuerySet[ToolApproval]:
    """Add `given`, the approvals of the present version, and `has_mine`, whether one vote on it is the user's."""
    given = _on_present_version().filter(verdict=Verdict.APPROVE).order_by().values("approval")
    number = Subquery(given.annotate(number=Count("pk")).values("number"))
    return queryset.annotate(given=Coalesce(number, 0), has_mine=has_vote_of(user))


def has_vote_of(user: Any) -> Exists:
    """Return the condition that a user has voted on a request as it is now."""
    return Exists(_on_present_version().filter(actor_key=str(user.pk)))


def voted_on(user: Any, approval_ids: Any) -> set[int]:
    """Return those of the requests on whose present version `user` has voted."""
    mine = ApprovalDecision.objects.filter(COUNTED, approval_id__in=list(approval_ids), actor_key=str(user.pk))
    return set(mine.filter(approval_version=F("approval__version")).values_list("approval_id", flat=True))


def told(given: int, needed: int) -> Text:
    """Say how many approvals are there of how many."""
    return _("%(given)d of %(needed)d approvals") % {"given": given, "needed": needed}


def of_row(approval: Any) -> list[Text]:
    """Return what there is to say of the votes on a pending request that `with_votes` read."""
    if approval.status != ApprovalStatus.PENDING:
        return []
    said: list[Text] = [told(approval.given, approval.votes_needed)] if approval.votes_needed > 1 else []
    return [*said, YOU_HAVE] if approval.has_mine else said


def _on_present_version() -> QuerySet[ApprovalDecision]:
    of_row = {"approval": OuterRef("pk"), "approval_version": OuterRef("version")}
    found: QuerySet[ApprovalDecision] = ApprovalDecision.objects.filter(COUNTED, **of_row)
    return found
