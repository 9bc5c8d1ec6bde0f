"""When a model is asked again, and who waits for how long."""

import pytest

from agentcore.resilience import retry


@pytest.fixture
def retries(settings):
    settings.AGENTCORE = {**settings.AGENTCORE, "RETRY": {"attempts": 9, "initial": 0.5, "max": 8}}


def pauses(attempt, **facts):
    return [retry.backoff(attempt, **facts) for _ in range(200)]


@pytest.mark.parametrize(("attempt", "step"), [(1, 0.5), (2, 1.0), (3, 2.0), (5, 8.0), (6, 8.0), (10_000, 8.0)])
def test_a_pause_doubles_up_to_the_longest_one(retries, attempt, step):
    found = pauses(attempt)
    assert step / 2 <= min(found) <= max(found) <= step


def test_pauses_of_many_are_spread(retries):
    assert len({round(pause, 4) for pause in pauses(3)}) > 100


@pytest.mark.parametrize("seconds", [0.5, 20, 3600])
def test_prv_13_nobody_comes_before_the_time_and_not_all_at_once(retries, seconds):
    found = pauses(1, retry_after=seconds)
    assert min(found) >= seconds
    assert max(found) <= seconds + max(seconds / 10, 1)
    assert len({round(pause, 4) for pause in found}) > 100


@pytest.mark.parametrize("nothing", [None, 0, 0.0])
def test_without_a_time_the_backoff_is_what_is_waited(retries, nothing):
    assert max(pauses(1, retry_after=nothing)) <= 0.5


def test_a_wait_is_over_early_when_nobody_should_wait(clock):
    class Hurried(retry.Patience):
        def is_over(self):
            clock.advance(4)
            return clock.now() > begin + self.limit

    from datetime import timedelta

    Hurried.limit, begin = timedelta(seconds=5), clock.now()
    assert 0 < Hurried().sleep(60) < 60 - 4


def test_a_wait_that_is_not_broken_off_leaves_nothing():
    assert retry.Patience().sleep(0.01) == 0.0
