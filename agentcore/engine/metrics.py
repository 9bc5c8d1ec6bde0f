"""What the runtime did, in numbers: the same in every process, because they are read from the rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from statistics import fmean, median
from typing import Any

from django.db.models import Q

from agentcore.conf import settings
from agentcore.engine import sums, tallies
from agentcore.engine.tallies import APPROVAL, CALL, FAILED, MODEL, NOT_RUN, REPLIED, TIMED_OUT, TURN, Tallies
from agentcore.exceptions import Unavailable
from agentcore.memory import keeping
from agentcore.models import AgentContext, ToolApproval
from agentcore.states import ApprovalStatus, CallStatus, TurnState

# Percentiles are those of the latest so many: a list of fixed length, whatever was done before.
LATEST_TURNS = 10_000
LATEST_DECISIONS = 1_000
BY_PEOPLE = (ApprovalStatus.APPROVED, ApprovalStatus.REJECTED, ApprovalStatus.RESPONDED)
# Of these it is known for how long they worked: a cancelled or interrupted one was left in the middle.
TIMED = (TurnState.COMPLETED, TurnState.FAILED)
# Calls that were begun and came to an end of their own, or to none in time.
RAN = (CallStatus.COMPLETED, CallStatus.FAILED, TIMED_OUT, CallStatus.UNKNOWN)
CALL_OUTCOMES = (
    *RAN,
    CallStatus.REJECTED,
    CallStatus.EXPIRED,
    CallStatus.CANCELLED,
    NOT_RUN,
)


def report() -> dict[str, Any]:
    """Return the numbers since the last reset; raise Unavailable with METRICS off.

    Durations are in seconds of work: waiting for people is apart, in `approvals`. What has no data is None.
    """
    require_on()
    counts = sums.read()
    return {
        "executions": _executions(counts.tallies),
        "performance": _performance(_latest_durations(counts.counted_from)),
        "tools": _tools(counts.tallies),
        "llm": _llm(counts.tallies),
        "memory": keeping.count_by_kind(),
        "approvals": _approvals(counts.tallies, counts.counted_from),
    }


def require_on() -> None:
    """Raise Unavailable with METRICS off."""
    if not settings.METRICS:
        raise Unavailable("Metrics are off: AGENTCORE['METRICS'] is False.", setting="METRICS")


def reset() -> datetime:
    """Count from now on, in every process; return the time that is."""
    return sums.reset()


def keep_up() -> None:
    """Do the periodic work of metrics, if they are on."""
    if settings.METRICS:
        sums.sum_up()


def catch_up() -> None:
    """Sum up all that has settled, if metrics are on, however long it takes."""
    while settings.METRICS and sums.sum_up():
        pass


def rate(good: int, bad: int) -> float | None:
    """Return the share of what went well, None when there was nothing."""
    return good / (good + bad) if good + bad else None


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest of the ordered values that at least `share` of them do not exceed."""
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


def _executions(found: Tallies) -> dict[str, Any]:
    by_state = _by_outcome(found.of(TURN))
    successful, failed = by_state.get(TurnState.COMPLETED, 0), by_state.get(TurnState.FAILED, 0)
    return {
        "total": sum(by_state.values()),
        "successful": successful,
        "failed": failed,
        "cancelled": by_state.get(TurnState.CANCELLED, 0),
        # A turn that somebody cancelled is neither a success nor a failure.
        "success_rate": rate(successful, failed + by_state.get(TurnState.INTERRUPTED, 0)),
    }


def _performance(durations: list[float]) -> dict[str, float | None]:
    if not durations:
        return dict.fromkeys(("average_duration", "min", "max", "p50", "p95", "p99"))
    ordered = sorted(durations)
    return {
        "average_duration": fmean(ordered),
        "min": ordered[0],
        "max": ordered[-1],
        "p50": percentile(ordered, 0.5),
        "p95": percentile(ordered, 0.95),
        "p99": percentile(ordered, 0.99),
    }


def _latest_durations(counted_from: datetime | None) -> list[float]:
    ended = AgentContext.objects.filter(_since("completed_at", counted_from), state__in=TIMED, started_at__isnull=False)
    return list(ended.order_by("-completed_at").values_list("worked_seconds", flat=True)[:LATEST_TURNS])


def _tools(found: Tallies) -> dict[str, Any]:
    by_tool: dict[str, dict[str, int]] = {}
    for key, tally in found.of(CALL, known=tallies.known_tools()):
        counts = by_tool.setdefault(key.label, {"calls": 0, **dict.fromkeys(map(str, CALL_OUTCOMES), 0)})
        counts["calls"] += tally.count
        counts[key.outcome] += tally.count
    total = _by_outcome(found.of(CALL))
    bad = total.get(CallStatus.FAILED, 0) + total.get(TIMED_OUT, 0)
    return {
        "total_calls": sum(total.values()),
        "by_tool": by_tool,
        # What people declined, what nobody decided and what was never run is no failure of a tool.
        "success_rate": rate(total.get(CallStatus.COMPLETED, 0), bad),
    }


def _llm(found: Tallies) -> dict[str, Any]:
    calls = found.of(MODEL)
    outcomes = _by_outcome(calls)
    return {
        "total_calls": outcomes.get(REPLIED, 0) + outcomes.get(FAILED, 0),
        "tokens": sum(tally.input_tokens + tally.output_tokens for _, tally in calls),
        "errors": outcomes.get(FAILED, 0),
    }


def _approvals(found: Tallies, counted_from: datetime | None) -> dict[str, Any]:
    outcomes = _by_outcome(found.of(APPROVAL))
    waited = _latest_waits(counted_from)
    return {
        "pending": pending().count(),
        "decided": sum(outcomes.get(status, 0) for status in BY_PEOPLE),
        "median_seconds": median(waited) if waited else None,
    }


def pending() -> Any:
    """Return the requests that wait for a decision."""
    return ToolApproval.objects.pending().filter(session__deleted_at=None).order_by()


def _latest_waits(counted_from: datetime | None) -> list[float]:
    """Return for how long people let the latest requests wait that they decided on, in seconds."""
    decided = ToolApproval.objects.filter(_since("decided_at", counted_from), status__in=BY_PEOPLE)
    times = decided.order_by("-updated_at").values_list("requested_at", "decided_at")[:LATEST_DECISIONS]
    return [(decided_at - requested_at).total_seconds() for requested_at, decided_at in times if decided_at]


def _since(field: str, counted_from: datetime | None) -> Q:
    # Said in any case: what has no end comes first where NULL is the largest.
    return Q(**{f"{field}__isnull": False}) if counted_from is None else Q(**{f"{field}__gte": counted_from})


def _by_outcome(found: Iterable[tuple[tallies.Key, tallies.Tally]]) -> dict[str, int]:
    outcomes: dict[str, int] = {}
    for key, tally in found:
        outcomes[key.outcome] = outcomes.get(key.outcome, 0) + tally.count
    return outcomes
