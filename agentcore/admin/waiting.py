"""What waits for a decision, in a few numbers for the admin's front page: three queries, however much waits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from django.db.models import Count, Min, Q, QuerySet
from django.utils.timesince import timesince
from django.utils.translation import gettext as _

from agentcore import clock
from agentcore.admin import display, votes
from agentcore.approvals.background import DECIDED
from agentcore.models import DECIDE_PERMISSION, VIEW_PERMISSION, ToolApproval

LATEST_DAYS = 30
LATEST_DECISIONS = 200


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """How many requests wait, and how long the oldest does.

    `is_yours`: only what the user may decide, and has not voted on, is counted. `unroutable` counts, of all that the
    user may see, those that too few people may decide. `usual` is the median time to decide, "" when nothing was
    decided lately.
    """

    count: int
    age: str
    is_yours: bool
    unroutable: int
    usual: str


def for_user(user: Any) -> Waiting | None:
    """Return what waits for this user, or in all for who may only look; None for everybody else."""
    decides, views = user.has_perm(DECIDE_PERMISSION), user.has_perm(VIEW_PERMISSION)
    if not (decides or views):
        return None
    pending = ToolApproval.objects.pending().filter(session__deleted_at=None)
    mine = pending.for_reviewer(user).exclude(votes.has_vote_of(user)) if decides else pending
    return Waiting(**_counted(pending if views else mine, mine), is_yours=decides, usual=_usual())


def _counted(seen: QuerySet[ToolApproval], mine: QuerySet[ToolApproval]) -> dict[str, Any]:
    is_mine = Q(pk__in=mine.order_by().values("pk"))
    found = seen.order_by().aggregate(
        count=Count("pk", filter=is_mine),
        oldest=Min("requested_at", filter=is_mine),
        unroutable=Count("pk", filter=Q(is_unroutable=True)),
    )
    oldest: datetime | None = found.pop("oldest")
    return {**found, "age": display.age(oldest) if oldest else ""}


def _usual() -> str:
    """Return the median time from request to decision, of the latest decisions only. No database has a median alike."""
    now = clock.now()
    lately = ToolApproval.objects.filter(status__in=DECIDED, updated_at__gte=now - timedelta(days=LATEST_DAYS))
    times = lately.order_by("-updated_at").values_list("requested_at", "decided_at")[:LATEST_DECISIONS]
    taken = [(decided - requested).total_seconds() for requested, decided in times if decided]
    if not taken:
        return ""
    usual = timedelta(seconds=median(taken))
    return _("a minute") if usual < timedelta(minutes=1) else timesince(now - usual, now)
