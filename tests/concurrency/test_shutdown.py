"""A Celery worker that is told to stop in the middle of a turn hands it over: nothing is lost, nothing done twice."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentcore import TurnState, runtime
from agentcore.agents.registry import registry
from agentcore.models import AgentContext, AgentStep
from agentcore.states import TERMINAL
from agentcore.testing import assert_invariants
from tests.concurrency import crash_worker
from tests.concurrency.crash_worker import AGENT, ANSWER
from tests.concurrency.harness import Farm, Outage, Worker, wait_until
from tests.redis_database import own_redis_database

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.services("redis"),
    pytest.mark.timeout(120),
]

# Long enough for a signal to hit a call in hand, also on a busy machine.
CALL_SECONDS = 0.6
BROKER_DELAY = 0.05


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    crash_worker.define_agent()
    farm = Farm(tmp_path)
    yield farm
    farm.close()
    registry.unregister(AGENT)


@pytest.mark.parametrize(
    ("pool", "hit"),
    [
        pytest.param("prefork", "model", marks=pytest.mark.slow),
        ("prefork", "charge"),
        pytest.param("threads", "charge", marks=pytest.mark.slow),
    ],
)
def test_dur_18_a_worker_that_is_told_to_stop_gives_its_turns_back(farm: Farm, pool: str, hit: str) -> None:
    """SIGTERM hits the second step of one turn while others wait behind it. The broker is slow, and is waited for."""
    with (
        own_redis_database() as url,
        Outage(url) as slow,
        Worker(farm, slow.url, pool=pool, delay=CALL_SECONDS) as first,
    ):
        slow.delay = BROKER_DELAY
        _enqueue(farm, url, "four steps")
        wait_until(lambda: _count(farm, "model") == 1, what="the first turn is worked on")
        _enqueue(farm, url, "nothing")
        _enqueue(farm, url, "nothing")
        wait_until(lambda: _count(farm, hit) == 2, what=f"the second {hit} is called")
        first.send(signal.SIGTERM)
        assert first.wait(CALL_SECONDS + 10) == 0
        # The call in hand was let end, and nothing after it has begun.
        assert set(AgentContext.objects.values_list("state", "takeovers", "lease_owner")) == {(TurnState.QUEUED, 0, "")}
        assert (_count(farm, "model"), _count(farm, "charge")) == (2, 2 if hit == "charge" else 1)
        # No sweep comes by: what was given back, or not begun, is on its way to whoever starts.
        with Worker(farm, url) as second:
            wait_until(_all_ended, what="the next one ends them", seconds=15, told=lambda: first.log + second.log)
    assert set(AgentContext.objects.values_list("state", "response", "takeovers")) == {(TurnState.COMPLETED, ANSWER, 0)}
    charged = Counter(line["n"] for line in farm.ledger.read() if line["kind"] == "charge")
    assert charged == {1: 1, 2: 1, 3: 1, 4: 1}
    assert _count(farm, "model") == AgentStep.objects.count() == 5 + 1 + 1
    assert_invariants()


def _enqueue(farm: Farm, url: str, message: str) -> None:
    session = runtime.create_session(AGENT)
    farm.run("enqueue", options={"broker": url}, session_id=session.session_id, message=message, key="k")


def _all_ended() -> bool:
    return not AgentContext.objects.exclude(state__in=TERMINAL).exists()


def _count(farm: Farm, kind: str) -> int:
    return sum(line["kind"] == kind for line in farm.ledger.read())
