"""Limits and breakers that four worker processes share."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentcore import TurnState, runtime
from agentcore.agents.registry import registry
from agentcore.approvals import decisions
from agentcore.models import AgentContext, ToolCall
from agentcore.resilience import circuit_breaker, rate_limit
from agentcore.testing import ScriptedProvider, assert_invariants, make_user, run_turns
from tests import settings as test_settings
from tests.concurrency import limits_worker
from tests.concurrency.harness import Farm
from tests.concurrency.limits_worker import LIMITED, MODEL

pytestmark = pytest.mark.django_db(transaction=True)

JOBS = "tests.concurrency.limits_worker"
PROCESSES = 4
BREAKER = {"CIRCUIT_BREAKER": {"failure_threshold": 5, "reset_timeout": 60}, "RETRY": {"attempts": 3, "initial": 0.01}}


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    limits_worker.define_agent()
    farm = Farm(tmp_path)
    yield farm
    farm.close()
    registry.unregister(LIMITED)


@pytest.fixture
def cache(settings: Any) -> Iterator[dict[str, Any]]:
    """A cache that processes share, this one too."""
    shared = {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": test_settings.REDIS_URL,
        "KEY_PREFIX": f"test-{uuid.uuid4().hex}",
    }
    settings.CACHES = {"default": shared}
    settings.AGENTCORE = {**settings.AGENTCORE, **BREAKER}
    yield shared
    circuit_breaker.reset(MODEL)


def everywhere(farm: Farm, job: str, shares: list[list[str]], name: str, **arguments: Any) -> list[dict[str, Any]]:
    """Do a job in a process for each share, all at once; return what each said."""
    options = {"settings": BREAKER}
    started = [farm.start(f"{JOBS}.{job}", options=options, **{name: share}, **arguments) for share in shares if share]
    return [process.result for process in started]


def shared_out(items: list[str]) -> list[list[str]]:
    return [items[number::PROCESSES] for number in range(PROCESSES)]


def asked(farm: Farm) -> int:
    return Counter(line["kind"] for line in farm.ledger.read())["model"]


@pytest.mark.services("redis")
def test_lim_01_a_provider_that_is_down_is_left_alone_by_all_processes(farm, cache):
    sessions = [runtime.create_session(LIMITED) for _ in range(40)]
    turns = [str(runtime.enqueue(session.session_id, "hi").turn.execution_id) for session in sessions]
    everywhere(farm, "work_turns", shared_out(turns), "execution_ids", cache=cache, down=True)
    before = asked(farm)
    assert 5 <= before <= 5 + PROCESSES
    assert circuit_breaker.states([MODEL]) == {MODEL: "open"}
    assert not AgentContext.objects.exclude(state__in=[TurnState.QUEUED, TurnState.FAILED]).exists()
    # All workers are new, and the provider is back; nobody asks it before the time is over.
    queued = [turn for turn in turns if AgentContext.objects.get(execution_id=turn).state == TurnState.QUEUED]
    queued = queued[: 2 * PROCESSES]
    everywhere(farm, "work_turns", shared_out(queued), "execution_ids", cache=cache, down=False, shift=30)
    assert asked(farm) == before
    everywhere(farm, "work_turns", shared_out(queued), "execution_ids", cache=cache, down=False, shift=130)
    assert circuit_breaker.state(MODEL) == "closed"
    # One of those that came while another one probed waits for its next time.
    states = Counter(AgentContext.objects.filter(execution_id__in=queued).values_list("state", flat=True))
    assert set(states) <= {"completed", "queued"}
    assert states["completed"] == asked(farm) - before > 0
    assert_invariants()


@pytest.mark.services("redis")
def test_lim_02_of_fifty_in_four_processes_one_probes(farm, cache):
    for _ in range(5):
        circuit_breaker.enter(MODEL).failed()
    results = [
        farm.start(f"{JOBS}.ask_at_once", options={"settings": BREAKER}, times=times, cache=cache, shift=61, seconds=1)
        for times in (13, 13, 12, 12)
    ]
    outcomes = sum((Counter(process.result) for process in results), Counter[str]())
    assert outcomes == {"answered": 1, "ProviderPostponed": 49}
    assert asked(farm) == 1
    assert circuit_breaker.state(MODEL) == "closed"


def test_lim_07_of_twenty_approved_calls_at_once_five_run(farm):
    # SQLite has one writer at a time in any case: there, a few show it too.
    number = 20 if test_settings.TEST_DB != "sqlite" else 8
    owner, reviewer = make_user(), make_user(permissions=("agentcore.decide_toolapproval",))
    with ScriptedProvider(limits_worker.answer).installed("limited"):
        for _ in range(number):
            session = runtime.create_session(LIMITED, user=owner)
            runtime.enqueue(session.session_id, "pay", user=owner)
        run_turns()
    for approval in runtime.pending_approvals():
        decisions.approve(approval.pk, reviewer)
    turns = [str(execution_id) for execution_id in AgentContext.objects.values_list("execution_id", flat=True)]
    everywhere(farm, "pay", shared_out(turns), "execution_ids")
    assert len([line for line in farm.ledger.read() if line["kind"] == "pay"]) == 5
    run = ToolCall.objects.filter(status="completed", attempts=1)
    refused = ToolCall.objects.filter(attempts=0, error__code="rate_limited")
    assert (run.count(), refused.count()) == (5, number - 5)
    for call in refused:
        assert "not run" in call.error["message"]
        assert 0 < call.error["details"]["retry_after"] <= 3600
    assert set(AgentContext.objects.values_list("state", flat=True)) == {"completed"}
    assert_invariants()


def test_ten_08_of_fifty_messages_at_once_ten_are_taken(farm, settings):
    limit = {"RATE_LIMIT": {"per_minute": 10, "burst": 10}}
    first, second = make_user(), make_user()
    sessions = [runtime.create_session(LIMITED, user=first).session_id for _ in range(50)]
    others = [runtime.create_session(LIMITED, user=second).session_id for _ in range(5)]
    posting = [
        farm.start(f"{JOBS}.post", options={"settings": limit}, session_ids=share, user=first.pk)
        for share in shared_out(sessions)
    ]
    other = farm.run(f"{JOBS}.post", options={"settings": limit}, session_ids=others, user=second.pk)
    outcomes = sum((Counter(process.result) for process in posting), Counter[str]())
    assert outcomes == {"taken": 10, "rate_limited": 40}
    assert other == {"taken": 5}
    assert AgentContext.objects.count() == 15
    assert rate_limit.take(f"turns:{first.pk}", rate_limit.parse(limit["RATE_LIMIT"])) > 0
