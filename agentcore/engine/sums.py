"""Metrics over time: what is counted live, what is summed up already, and a new beginning.

Turns that ended a while ago are summed into few rows by the periodic work. So a reading looks at the last minutes and
at what is active, however many turns there have been, and what is counted once stays when rows are removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import F

from agentcore import clock, database
from agentcore.engine import tallies
from agentcore.engine.tallies import Key, Span, Tallies, Tally
from agentcore.models import AgentContext, MetricsSum, MetricsWindow

# A turn that ended so long ago is committed, whatever the workers' clocks differ by.
SETTLED_AFTER = timedelta(minutes=10)
# Not at each tick: the sums are written once for all that ended since.
PATIENCE = timedelta(minutes=10)
# The first time there may be years to sum up: so much in one transaction, and for so long in one tick.
LONGEST_SPAN = timedelta(days=1)
BUDGET_SECONDS = 2.0
WINDOW = 1
ATTEMPTS_TO_READ = 5


@dataclass(frozen=True, kw_only=True)
class Counts:
    """All that is counted since `counted_from` (None: since the first turn)."""

    counted_from: datetime | None
    tallies: Tallies


def read() -> Counts:
    """Return the sums and, on top, what is not in them yet."""
    window, found = _read_sums()
    found.add_all(tallies.count(_unsummed(window)).items())
    return Counts(counted_from=window.counted_from, tallies=found)


def reset() -> datetime:
    """Count from now on, in every process; return the time that is."""
    with database.atomic():
        _lock()
        now = clock.now()
        MetricsSum.objects.all().delete()
        MetricsWindow.objects.filter(pk=WINDOW).update(counted_from=now, summed_until=None)
    return now


def sum_up() -> int:
    """Sum up what has settled, the oldest first, for about two seconds; return how many spans that were."""
    began, spans = clock.monotonic(), 0
    while clock.monotonic() - began < BUDGET_SECONDS and _sum_up_one():
        spans += 1
    return spans


@database.retried
def _sum_up_one() -> bool:
    with database.atomic():
        window = _lock()
        span = _next_span(window)
        if span is None:
            return False
        for key, tally in sorted(tallies.count(span).items()):
            _add(key, tally)
        MetricsWindow.objects.filter(pk=WINDOW).update(summed_until=span.end)
    return True


def _lock() -> MetricsWindow:
    """Return the window, locked by a write: two ticks at once count nothing twice."""
    if not MetricsWindow.objects.filter(pk=WINDOW).update(summed_until=F("summed_until")):
        MetricsWindow.objects.get_or_create(pk=WINDOW)
        MetricsWindow.objects.filter(pk=WINDOW).update(summed_until=F("summed_until"))
    window: MetricsWindow = MetricsWindow.objects.get(pk=WINDOW)
    return window


def _next_span(window: MetricsWindow) -> Span | None:
    unsummed = _unsummed(window)
    ends = AgentContext.objects.filter(unsummed.ended()).order_by("completed_at").values_list("completed_at", flat=True)
    first, settled = ends.first(), clock.now() - SETTLED_AFTER
    if first is None or first > settled - PATIENCE:
        return None
    end = min(first + LONGEST_SPAN, settled)
    return Span(begin=unsummed.begin, end=end, counted_from=window.counted_from)


def _unsummed(window: MetricsWindow) -> Span:
    return Span(begin=window.summed_until or window.counted_from, counted_from=window.counted_from)


def _add(key: Key, tally: Tally) -> None:
    values = {name: getattr(tally, name) for name in ("count", "seconds", "input_tokens", "output_tokens")}
    grown = {name: F(name) + value for name, value in values.items()}
    if not MetricsSum.objects.filter(**key._asdict()).update(**grown):
        MetricsSum.objects.create(**key._asdict(), **values)


def _read_sums() -> tuple[MetricsWindow, Tallies]:
    """Read window and sums so that they belong together: a tick may be summing up just now."""
    window = _window()
    for _ in range(ATTEMPTS_TO_READ):
        found = Tallies()
        for row in MetricsSum.objects.all():
            key = Key(row.subject, row.label, row.outcome, row.detail)
            found.add(
                key,
                Tally(
                    count=row.count,
                    seconds=row.seconds,
                    input_tokens=row.input_tokens,
                    output_tokens=row.output_tokens,
                ),
            )
        again = _window()
        if (again.counted_from, again.summed_until) == (window.counted_from, window.summed_until):
            break
        window = again
    return window, found


def _window() -> MetricsWindow:
    return MetricsWindow.objects.filter(pk=WINDOW).first() or MetricsWindow(pk=WINDOW)
