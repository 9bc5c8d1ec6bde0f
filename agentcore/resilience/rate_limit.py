"""Rate limits, exact over all processes: kept in the database, so that they hold whatever cache there is.

Of each thing that is limited one row keeps when it was taken. No more than `limit` are taken in any `period`, wherever
one begins to count, and with a `burst` they come one after another once so many were taken at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import F

from agentcore import canonical, clock, database
from agentcore.exceptions import RateLimited
from agentcore.models import RateCount

PERIODS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
ALLOWED = "a number per second, minute, hour or day, like '60/minute', or {'per_minute': 60, 'burst': 10}"
# Of more than that the times are rounded up, so that a row stays small: who waits does so for a little longer.
EXACT_TIMES = 200
BATCH = 500
NEW = timedelta(minutes=1)
MICRO = 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Rate:
    """At most `limit` in any `period` seconds; `burst` at once, then one every `spacing` seconds."""

    limit: int
    period: float
    burst: int | None = None
    spacing: float = 0.0

    def __str__(self) -> str:
        names = {seconds: name for name, seconds in PERIODS.items()}
        return f"{self.limit} per {names.get(int(self.period), f'{self.period:g} seconds')}"


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """One thing that is limited: `name` says whose and what, `rate` how much of it."""

    name: str
    rate: Rate

    def require(self, message: str) -> None:
        """Take one; raise RateLimited with `message` and `retry_after` in seconds, and nothing is taken."""
        wait = take(self.name, self.rate)
        if wait:
            raise RateLimited(message, retry_after=wait, limit=str(self.rate))


def parse(given: Any) -> Rate | None:
    """Return the rate of "5/hour" or {"per_minute", "burst"}, or None for anything else."""
    if isinstance(given, str):
        count, _, name = given.partition("/")
        is_rate = count.isascii() and count.isdecimal() and len(count) < 10 and int(count) > 0 and name in PERIODS
        return Rate(limit=int(count), period=PERIODS[name]) if is_rate else None
    if isinstance(given, Mapping) and "per_minute" in given and set(given) <= {"per_minute", "burst"}:
        return _parse_bucket(**given)
    return None


def _parse_bucket(*, per_minute: Any, burst: Any = None) -> Rate | None:
    is_number = isinstance(per_minute, int | float) and not isinstance(per_minute, bool) and math.isfinite(per_minute)
    is_count = burst is None or (isinstance(burst, int) and not isinstance(burst, bool) and burst > 0)
    if not (is_number and per_minute > 0 and is_count):
        return None
    whole = math.ceil(per_minute)
    burst = whole if burst is None else burst
    return Rate(limit=max(whole, burst), period=60, burst=burst, spacing=60 / per_minute)


def take(name: str, rate: Rate) -> float:
    """Take one and return 0.0; or return in how many seconds one can be had, and nothing is taken.

    Joins the caller's transaction: what that one does not commit was not taken.
    """
    with database.atomic():
        row = _locked(name)
        now = _microseconds(row.read_at)
        taken = [(at, count) for at, count in row.taken if at + rate.period * MICRO > now]
        wait = max(_until_window_has_room(taken, rate, now), _until_burst_is_over(row.next_at, rate, now))
        if wait > 0:
            return wait / MICRO
        next_at = max(row.next_at, now) + round(rate.spacing * MICRO)
        kept_for = max(rate.period, (next_at - now) / MICRO)
        RateCount.objects.filter(pk=row.pk).update(
            taken=_with_one_more(taken, rate, now),
            next_at=next_at,
            forget_at=row.read_at + timedelta(seconds=kept_for),
        )
    return 0.0


def forget_old() -> int:
    """Remove rows that limit nothing any more; return how many."""
    old = RateCount.objects.filter(forget_at__lt=clock.db_now())
    found = list(old.order_by("forget_at").values_list("pk", flat=True)[:BATCH])
    # Asked again: one of them may be in use by now.
    return int(old.filter(pk__in=found).delete()[0])


def _locked(name: str) -> Any:
    """Return the row of a name, which is this transaction's alone from here, with the database's time as `read_at`."""
    rows = RateCount.objects.filter(digest=canonical.text_digest(name))
    # Written first and read second: row locks do nothing on SQLite, where reading first loses to "locked".
    while not rows.update(forget_at=F("forget_at")):
        row = RateCount(digest=canonical.text_digest(name), name=name[:255], forget_at=clock.now() + NEW)
        RateCount.objects.bulk_create([row], ignore_conflicts=True)
    return rows.annotate(read_at=clock.db_now()).get()


def _until_window_has_room(taken: list[tuple[int, int]], rate: Rate, now: int) -> float:
    """Return the microseconds until less than `limit` were taken in the last `period` seconds."""
    too_many = sum(count for _, count in taken) - rate.limit + 1
    wait = 0.0
    for at, count in taken:
        if too_many <= 0:
            break
        too_many -= count
        wait = at + rate.period * MICRO - now
    return wait


def _until_burst_is_over(next_at: int, rate: Rate, now: int) -> float:
    """Return the microseconds until one more may follow what was taken at once."""
    return 0.0 if rate.burst is None else next_at - (rate.burst - 1) * rate.spacing * MICRO - now


def _with_one_more(taken: list[tuple[int, int]], rate: Rate, now: int) -> list[tuple[int, int]]:
    grain = 1 if rate.limit <= EXACT_TIMES else math.ceil(rate.period * MICRO / EXACT_TIMES)
    at = -(-now // grain) * grain
    if taken and taken[-1][0] == at:
        return [*taken[:-1], (at, taken[-1][1] + 1)]
    return [*taken, (at, 1)]


def _microseconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)
