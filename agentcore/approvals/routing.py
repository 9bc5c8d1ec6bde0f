"""Report the requests that too few people may decide: when they are asked for, and whenever that changes."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable
from typing import Any

from django.db.models import Count, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from agentcore import clock
from agentcore.approvals import deciders, telling
from agentcore.approvals.record import COUNTED
from agentcore.events import log
from agentcore.events.kinds import EventType
from agentcore.events.log import Journal
from agentcore.models import DECIDE_PERMISSION, ApprovalDecision, ToolApproval

logger = logging.getLogger("agentcore.approvals")

# Of one sweep: groups of requests that ask for the same; of each, requests that are marked, and that are cleared.
MAX_GROUPS = 100
BATCH = 100


def report_new(journal: Journal, asked: Iterable[ToolApproval]) -> None:
    """Mark those of new requests that too few people may decide, in the transaction that stores them."""
    groups: dict[tuple[str, int], list[ToolApproval]] = {}
    for approval in asked:
        groups.setdefault((approval.permission, approval.votes_needed), []).append(approval)
    for (permission, votes), group in groups.items():
        people = deciders.find(permission, limit=votes + 1)
        if people is None:
            continue
        for approval in group:
            if _is_stuck(approval, people):
                _mark(journal, approval.pk, people)


def look_again() -> int:
    """Mark the pending requests that too few people may decide now, and clear the others; return how many were marked.

    A bounded part of the work is done each time, of other requests when there is more.
    """
    pending = ToolApproval.objects.pending()
    groups = _groups(pending)
    # By chance, so that none is left out for ever.
    chosen = random.sample(groups, min(len(groups), MAX_GROUPS))
    return sum(_look_at(_of_group(pending, *group), *group) for group in chosen)


def _look_at(group: QuerySet[ToolApproval], permission: str, votes: int) -> int:
    people = deciders.find(permission, limit=votes + 1)
    if people is None:
        _clear(group.filter(is_unroutable=True))
        return 0
    stuck = _stuck(group, votes, people)
    _clear(group.filter(is_unroutable=True).exclude(pk__in=stuck.values("pk")))
    marked = 0
    for pk, session_pk in list(stuck.filter(is_unroutable=False).values_list("pk", "session_id")[:BATCH]):
        with log.writing(session_pk) as journal:
            marked += _mark(journal, pk, people)
    return marked


def _groups(approvals: QuerySet[ToolApproval]) -> list[tuple[str, int]]:
    return list(approvals.order_by().values_list("permission", "votes_needed").distinct())


def _of_group(approvals: QuerySet[ToolApproval], permission: str, votes: int) -> QuerySet[ToolApproval]:
    return approvals.filter(permission=permission, votes_needed=votes)


def _stuck(group: QuerySet[ToolApproval], votes: int, people: list[Any]) -> QuerySet[ToolApproval]:
    """Keep what too few may decide. `people` are up to one more than there must be, four eyes aside."""
    missing = votes - len(people)
    of_nobody_known = Q(four_eyes=True, requester=None) & ~Q(requester_key="")
    if missing < 0:
        return group.filter(of_nobody_known)
    theirs = Q(four_eyes=True, requester__in=people)
    counted = group.annotate(kept_votes=Coalesce(Subquery(_votes_of_others(people)), 0))
    return counted.filter(of_nobody_known | Q(kept_votes__lt=missing) | (theirs & Q(kept_votes__lte=missing)))


def _is_stuck(new: ToolApproval, people: list[Any]) -> bool:
    """Say the same of a request that nobody has voted on, without asking for it."""
    if new.four_eyes and new.requester_id is None and new.requester_key:
        return True
    missing = new.votes_needed - len(people)
    return missing > 0 or (missing == 0 and new.four_eyes and new.requester_id in people)


def _votes_of_others(people: list[Any]) -> QuerySet[Any]:
    """Count the votes on a request that hold although who gave them may not decide any more."""
    votes = ApprovalDecision.objects.filter(COUNTED, approval=OuterRef("pk"), approval_version=OuterRef("version"))
    others = votes.exclude(actor_key__in=[str(key) for key in people])
    counts: QuerySet[Any] = others.order_by().values("approval").annotate(count=Count("pk")).values("count")
    return counts


def _mark(journal: Journal, pk: int, people: list[Any]) -> bool:
    pending = ToolApproval.objects.pending().filter(pk=pk, is_unroutable=False)
    if not pending.update(is_unroutable=True, updated_at=journal.now):
        return False
    approval = ToolApproval.objects.select_related("call", "turn").get(pk=pk)
    reason = _reason(approval, people)
    telling.append(journal, approval, EventType.TOOL_APPROVAL_UNROUTABLE, reason=reason)
    logger.error(
        "Too few active users may decide a request",
        extra={"execution_id": str(approval.turn.execution_id), "approval_id": pk, "reason": reason},
    )
    return True


def _clear(approvals: QuerySet[ToolApproval]) -> None:
    # One by one: a statement that locks many rows can meet another one that locks them in another order.
    for pk in list(approvals.values_list("pk", flat=True)[:BATCH]):
        ToolApproval.objects.filter(pk=pk).update(is_unroutable=False, updated_at=clock.now())


def _reason(approval: ToolApproval, people: list[Any]) -> str:
    names = ", ".join((DECIDE_PERMISSION, *approval.permission.split()))
    found, aside = len(people), ""
    if approval.four_eyes and approval.requester_key:
        found = 0 if approval.requester_id is None else len([key for key in people if key != approval.requester_id])
        aside = " besides the requester"
        if approval.requester_id is None:
            aside = "; its requester was deleted, so nobody is known to be somebody else"
    return f"Active users with {names}: {approval.votes_needed} needed, {found} found{aside}."
