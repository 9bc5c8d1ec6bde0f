"""Broker, channel layer and cache are down, or take connections and never answer: nobody waits, nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery, current_app
from django.test import Client
from rest_framework.test import APIClient

from agentcore import TurnState, clock, dispatch, runtime
from agentcore.agents.registry import registry
from agentcore.events import push
from agentcore.models import AgentContext, SessionEvent, ToolApproval
from agentcore.states import TERMINAL
from agentcore.testing import assert_invariants, make_user, run_turns
from tests.concurrency import crash_worker
from tests.concurrency.crash_worker import AGENT, ANSWER
from tests.concurrency.harness import Farm, Outage, Worker, wait_until
from tests.redis_database import own_redis_database

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(120),
]

DECIDE = "agentcore.decide_toolapproval"
VIEW = "agentcore.view_toolapproval"
# As the cases ask: a request that needs nothing of the broken thing, and any at all.
QUICK_SECONDS = 1.0
MOST_SECONDS = 3.0
# What a process may need to give up what it was sending.
SETTLE_SECONDS = 20.0

Break = Callable[[Outage], None]
WAYS = pytest.mark.parametrize(
    "break_it",
    [
        pytest.param(Outage.refuse, id="refuses"),
        pytest.param(Outage.hang, id="never-answers", marks=pytest.mark.slow),
    ],
)


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    crash_worker.define_agent()
    farm = Farm(tmp_path)
    yield farm
    farm.close()
    registry.unregister(AGENT)


@pytest.fixture
def owner() -> Any:
    return make_user("owner")


@pytest.fixture
def reviewer() -> Any:
    return make_user("reviewer", permissions=(DECIDE, VIEW))


@contextmanager
def celery_with(url: str) -> Iterator[None]:
    """Let this thread send its tasks to a broker."""
    before = current_app._get_current_object()
    app = Celery("outage", broker=url, set_as_current=False)
    app.set_current()
    try:
        yield
    finally:
        before.set_current()
        app.close()


@contextmanager
def within(seconds: float, what: str = "it") -> Iterator[None]:
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    assert took < seconds, f"{what} took {took:.2f} s"


def pass_time() -> None:
    """Let the pause before a queued turn is sent again be over."""
    AgentContext.objects.exclude(next_dispatch_at=None).update(next_dispatch_at=clock.now() - timedelta(minutes=1))


def make_waiting(farm: Farm, owner: Any) -> ToolApproval:
    """Return the request of a turn that waits for it."""
    session = runtime.create_session(AGENT, user=owner)
    made = farm.run("enqueue", session_id=session.session_id, message="one reply", key="waits", user=owner.pk)
    farm.run("work", execution_id=made["execution_id"])
    return ToolApproval.objects.pending().get(turn__execution_id=made["execution_id"])


def done(farm: Farm, kind: str) -> int:
    return sum(line["kind"] == kind for line in farm.ledger.read())


@WAYS
@pytest.mark.services("redis")
@pytest.mark.parametrize("scheme", ["redis", pytest.param("amqp", marks=pytest.mark.slow)])
def test_dur_20_apr_09_messages_and_approvals_given_while_the_broker_is_down(
    farm: Farm, owner: Any, reviewer: Any, scheme: str, break_it: Break
) -> None:
    approval = make_waiting(farm, owner)
    session = runtime.create_session(AGENT, user=owner)
    with own_redis_database() as url, Outage(url) as outage:
        break_it(outage)
        with celery_with(outage.url.replace("redis:", f"{scheme}:")):
            with within(QUICK_SECONDS, "the message"):
                sent = runtime.enqueue(session.session_id, "three tools", user=owner, idempotency_key="k")
            with within(QUICK_SECONDS, "the decision"):
                assert runtime.approve(approval.pk, reviewer).status == "approved"
            with within(QUICK_SECONDS, "the repeated message"):
                assert runtime.enqueue(session.session_id, "three tools", user=owner, idempotency_key="k").duplicate
            assert set(AgentContext.objects.values_list("state", flat=True)) == {TurnState.QUEUED}
            outage.refuse()
            # What this process still tries ends now: it marks its turns as unsent, and the sweep meets them at rest.
            assert dispatch.flush(SETTLE_SECONDS)
        pass_time()
        assert farm.run("sweep", options={"broker": url})["sent_again"] == 2
        with Worker(farm, url):
            wait_until(lambda: not AgentContext.objects.exclude(state__in=TERMINAL).exists(), what="both are done")
            assert not any(farm.run("sweep", options={"broker": url}).values())
    assert set(AgentContext.objects.values_list("state", "response")) == {(TurnState.COMPLETED, ANSWER)}
    assert sent.turn.pk in AgentContext.objects.values_list("pk", flat=True)
    assert (done(farm, "pay"), done(farm, "charge"), done(farm, "lookup")) == (1, 2, 3)
    assert SessionEvent.objects.filter(type="turn.input").count() == 2
    assert_invariants()


@WAYS
@pytest.mark.services("redis")
def test_dur_20_the_process_that_met_the_outage_sends_again_after_it(farm: Farm, owner: Any, break_it: Break) -> None:
    """What hung when the broker fell silent may hang for ever: it must not keep back what is sent later."""
    sessions = [runtime.create_session(AGENT, user=owner) for _ in range(3)]
    with own_redis_database() as url, Outage(url) as outage, celery_with(outage.url):
        runtime.enqueue(sessions[0].session_id, "nothing")
        assert dispatch.flush(5)
        assert length(url) == 1
        break_it(outage)
        with within(QUICK_SECONDS):
            runtime.enqueue(sessions[1].session_id, "nothing")
        time.sleep(0.5)
        outage.end()
        with within(QUICK_SECONDS):
            runtime.enqueue(sessions[2].session_id, "nothing")
        wait_until(lambda: length(url) >= 2, what="what is sent after the outage arrives", seconds=20)
        pass_time()
        runtime.recover()
        wait_until(lambda: length(url) >= 4, what="the sweep of this very process arrives", seconds=20)


def length(url: str) -> int:
    """Return how many messages wait on the broker."""
    with closing(redis.Redis.from_url(url)) as client:
        count: int = client.llen("celery")  # type: ignore[assignment]  # no awaitable here
        return count


@pytest.mark.services("redis")
def test_apr_08_a_turn_waits_in_the_database_and_nowhere_else(farm: Farm, owner: Any, reviewer: Any) -> None:
    with own_redis_database() as url:
        session = runtime.create_session(AGENT, user=owner)
        with Worker(farm, url), celery_with(url):
            runtime.enqueue(session.session_id, "one reply", user=owner)
            wait_until(lambda: ToolApproval.objects.exists(), what="it waits")
        with closing(redis.Redis.from_url(url)) as client:
            client.flushdb()
        [asked] = runtime.pending_approvals(reviewer)
        with celery_with(url):
            runtime.approve(asked.pk, reviewer)
            assert dispatch.flush(5)
        with Worker(farm, url):
            wait_until(lambda: AgentContext.objects.get().state in TERMINAL, what="it ends")
    turn = AgentContext.objects.get()
    assert (turn.state, turn.response, turn.takeovers) == (TurnState.COMPLETED, ANSWER, 0)
    assert (done(farm, "pay"), done(farm, "charge")) == (1, 1)
    assert_invariants()


@pytest.mark.services("redis")
def test_apr_08_a_message_that_redis_forgot_is_sent_again(farm: Farm) -> None:
    session = runtime.create_session(AGENT)
    with own_redis_database() as url, celery_with(url):
        runtime.enqueue(session.session_id, "nothing")
        assert dispatch.flush(5)
        with closing(redis.Redis.from_url(url)) as client:
            client.flushdb()
        assert runtime.recover()["sent_again"] == 0
        pass_time()
        assert runtime.recover()["sent_again"] == 1
        assert dispatch.flush(5)
        assert length(url) == 1


@pytest.fixture
def outage() -> Iterator[Outage]:
    """A server of whatever kind; it is down before anybody asks."""
    with Outage("redis://127.0.0.1:6379/0") as outage:
        yield outage
    # What was being pushed fails now, and not in the middle of another test.
    push.flush(5)


def _in_the_channel_layer(url: str) -> dict[str, Any]:
    return {
        "CHANNEL_LAYERS": {"default": {"BACKEND": "channels_redis.core.RedisChannelLayer", "CONFIG": {"hosts": [url]}}}
    }


def _in_the_cache(url: str) -> dict[str, Any]:
    return {"CACHES": {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": url}}}


@WAYS
@pytest.mark.parametrize("used_in", [_in_the_channel_layer, _in_the_cache], ids=["channel-layer", "cache"])
def test_red_03_everything_works_from_the_database(
    outage: Outage,
    settings: Any,
    scripted: Any,
    owner: Any,
    reviewer: Any,
    make_session: Any,
    used_in: Callable[[str], dict[str, Any]],
    break_it: Break,
) -> None:
    break_it(outage)
    for name, value in used_in(outage.url).items():
        setattr(settings, name, value)
    scripted(lambda request: crash_worker.calls(PAY) if request.messages[-1].role == "user" else "Paid.")
    session, other = make_session(user=owner), make_session(user=owner)
    mine, theirs, page = api(owner), api(reviewer), Client()
    page.force_login(reviewer)

    def ask(status: int, call: Callable[..., Any], path: str, *body: Any, seconds: float = MOST_SECONDS) -> Any:
        with within(seconds, path):
            answer = call(path, *body)
        assert answer.status_code == status, (path, answer.content)
        return answer

    ask(202, mine.post, f"/api/sessions/{session.session_id}/turns/", {"message": "pay"})
    ask(202, mine.post, f"/api/sessions/{other.session_id}/turns/", {"message": "pay"})
    with within(MOST_SECONDS, "two turns up to their request"):
        run_turns()
    ask(200, mine.get, f"/api/sessions/{session.session_id}/")
    ask(200, mine.get, f"/api/sessions/{session.session_id}/events/")
    waiting = ask(200, theirs.get, "/api/approvals/?status=pending").data["results"]
    ask(200, page.get, "/reviews/")
    ask(200, page.get, f"/reviews/{waiting[0]['id']}/")
    asked = ToolApproval.objects.get(session=session)
    ask(200, theirs.post, f"/api/approvals/{asked.pk}/approve/", {})
    ask(202, mine.post, f"/api/sessions/{other.session_id}/cancel/")
    assert AgentContext.objects.get(session=other).state == TurnState.CANCELLED
    with within(MOST_SECONDS, "the rest of the turn"):
        run_turns()
    ended = AgentContext.objects.get(session=session)
    assert (ended.state, ended.response) == (TurnState.COMPLETED, "Paid.")
    # What is not vital is told and makes nothing unhealthy.
    assert ask(200, mine.get, "/api/health/").data["status"] in {"healthy", "degraded"}
    assert_invariants()


PAY = ("pay", {"amount": 10, "to": "acme"})


def api(user: Any) -> APIClient:
    client = APIClient()
    client.force_authenticate(user)
    return client
