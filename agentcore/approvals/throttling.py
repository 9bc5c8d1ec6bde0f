"""Bound what one person's refused attempts leave behind. A decision that succeeds is never held up."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from agentcore.exceptions import AgentError, PermissionDenied, RateLimited
from agentcore.models import ApprovalDecision

# Of one person's refused attempts so many are recorded in PERIOD: for lack of permission, and in all.
MAX_DENIED = 30
MAX_REFUSED = 300
PERIOD = timedelta(minutes=1)


def find_refusal(by: Any, refusal: AgentError, *, now: datetime) -> RateLimited | None:
    """Return what a person is told in place of `refusal` when they were refused too often, or None.

    Counted from rows, so that all processes count alike. Attempts on several sessions at the same instant
    may pass together: the bound is kept to within their number.
    """
    refused = _latest_refusals(by, now)
    times = [at for _, at in refused]
    if len(times) >= MAX_REFUSED:
        return _too_many(times[MAX_REFUSED - 1], now)
    denied = [at for code, at in refused if code == PermissionDenied.code]
    if refusal.code == PermissionDenied.code and len(denied) >= MAX_DENIED:
        return _too_many(denied[MAX_DENIED - 1], now)
    return None


def _latest_refusals(by: Any, now: datetime) -> list[tuple[str, datetime]]:
    mine = ApprovalDecision.objects.filter(actor_key=str(by.pk), created_at__gt=now - PERIOD).exclude(refusal="")
    return list(mine.order_by("-created_at").values_list("refusal", "created_at")[:MAX_REFUSED])


def _too_many(oldest: datetime, now: datetime) -> RateLimited:
    wait = (oldest + PERIOD - now).total_seconds()
    return RateLimited(
        "Too many of your attempts were refused; wait a minute and look at what you may decide.", retry_after=wait
    )
