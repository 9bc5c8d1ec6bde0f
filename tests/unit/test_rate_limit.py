"""Rates as people write them, and how many of a thing may be taken when."""

from datetime import timedelta

import pytest
from django.db import transaction

from agentcore.exceptions import RateLimited
from agentcore.models import RateCount
from agentcore.resilience import rate_limit
from agentcore.resilience.rate_limit import Allowance, Rate

pytestmark = pytest.mark.django_db

HOURLY = rate_limit.parse("5/hour")
BUCKET = rate_limit.parse({"per_minute": 60, "burst": 10})


def take(rate, times=1, name="it"):
    """Return how many of so many attempts were taken."""
    return sum(not rate_limit.take(name, rate) for _ in range(times))


@pytest.mark.parametrize(
    ("given", "rate"),
    [
        ("5/hour", Rate(limit=5, period=3600)),
        ("60/minute", Rate(limit=60, period=60)),
        ({"per_minute": 60, "burst": 10}, Rate(limit=60, period=60, burst=10, spacing=1.0)),
        ({"per_minute": 6}, Rate(limit=6, period=60, burst=6, spacing=10.0)),
        ({"per_minute": 0.5, "burst": 1}, Rate(limit=1, period=60, burst=1, spacing=120.0)),
        *((bad, None) for bad in ("5/week", "0/hour", "/hour", "5", "-5/hour", "five/hour", "٥/hour", 5, None, [])),
        *(({"per_minute": bad}, None) for bad in (0, -1, "6", True, float("inf"))),
        *(({"per_minute": 6, "burst": bad}, None) for bad in (0, 1.5, "6", True)),
        ({"burst": 6}, None),
        ({"per_minute": 6, "wrong": 1}, None),
    ],
)
def test_a_rate_is_read_or_refused(given, rate):
    assert rate_limit.parse(given) == rate


def test_no_more_than_the_limit_in_any_hour_wherever_it_begins(clock):
    assert take(HOURLY) == 1
    clock.advance(3540)
    assert take(HOURLY, 10) == 4
    # The window of a clock's hour would be over here: ten in two minutes.
    clock.advance(61)
    assert take(HOURLY, 10) == 1
    clock.advance(3480)
    assert take(HOURLY, 10) == 0
    clock.advance(60)
    assert take(HOURLY, 10) == 4


def test_who_waits_as_long_as_told_gets_one(clock):
    assert take(HOURLY, 5) == 5
    wait = rate_limit.take("it", HOURLY)
    assert 3599 < wait <= 3600
    clock.advance(wait)
    assert rate_limit.take("it", HOURLY) == 0.0


def test_after_a_burst_they_come_one_by_one(clock):
    assert take(BUCKET, 20) == 10
    assert 0 < rate_limit.take("it", BUCKET) <= 1
    clock.advance(3)
    assert take(BUCKET, 20) == 3
    clock.advance(60)
    assert take(BUCKET, 20) == 10


def test_with_a_burst_too_a_minute_is_a_minute(clock):
    """A plain bucket lets seventy through in the first minute of "60 a minute"."""
    begin, taken = clock.now(), take(BUCKET, 12)
    for second in range(1, 59):
        clock.set(begin + timedelta(seconds=second + 0.5))
        taken += take(BUCKET, 2)
    assert taken == 60


def test_many_times_are_kept_in_a_small_row_and_never_too_many_are_taken(clock):
    rate = Rate(limit=1000, period=3600)
    assert take(rate, 400) == 400
    row = RateCount.objects.get()
    assert len(str(row.taken)) < 10_000
    assert sum(count for _, count in row.taken) == 400
    clock.advance(3600)
    RateCount.objects.update(taken=[[row.taken[-1][0], 1000]])
    # Rounded up: it is given free a little later, not earlier.
    assert 0 < rate_limit.take("it", rate) <= 3600 / rate_limit.EXACT_TIMES


def test_what_is_not_committed_was_not_taken():
    with transaction.atomic():
        assert take(HOURLY, 5) == 5
        transaction.set_rollback(True)
    assert take(HOURLY, 9) == 5


def test_names_are_limited_by_themselves_however_they_are_written():
    assert take(HOURLY, 9, name="tool:pay:1") == take(HOURLY, 9, name="TOOL:PAY:1 ") == 5
    assert take(HOURLY, 9, name="x" * 400) == 5


def test_a_refusal_says_when_to_come_again():
    allowance = Allowance(name="it", rate=HOURLY)
    for _ in range(5):
        allowance.require("too many")
    with pytest.raises(RateLimited, match="too many") as refused:
        allowance.require("too many")
    assert 3599 < refused.value.details["retry_after"] <= 3600
    assert refused.value.details["limit"] == "5 per hour"


def test_rows_are_removed_once_they_limit_nothing(clock):
    take(HOURLY, 1, name="old")
    clock.advance(timedelta(minutes=59))
    take(HOURLY, 1, name="new")
    assert rate_limit.forget_old() == 0
    clock.advance(timedelta(minutes=2))
    assert rate_limit.forget_old() == 1
    assert RateCount.objects.get().name == "new"
