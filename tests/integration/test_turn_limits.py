"""How many turns a user may begin, and how often a provider may be asked."""

import pytest
from django.db import transaction

from agentcore import runtime
from agentcore.exceptions import Conflict, RateLimited
from agentcore.models import AgentContext, AgentSession, SessionEvent
from agentcore.testing import make_session, make_turn, make_user, run_turns
from agentcore.testing.agents import TESTING_AGENT
from tests.integration.api import client_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def configured(settings):
    """A function that changes settings."""

    def configure(**changes):
        settings.AGENTCORE = {**settings.AGENTCORE, **changes}

    return configure


@pytest.fixture(autouse=True)
def _invariants(assert_invariants):
    yield
    assert_invariants()


def now(turn):
    return AgentContext.objects.get(pk=turn.pk)


def test_ten_08_a_user_begins_no_more_turns_than_allowed(configured, clock):
    configured(RATE_LIMIT={"per_minute": 10, "burst": 10})
    first, second = make_user(), make_user()
    for _ in range(10):
        make_turn(user=first)
    session = make_session(user=first)
    before = (AgentContext.objects.count(), SessionEvent.objects.count())
    with pytest.raises(RateLimited) as refused:
        runtime.enqueue(session.session_id, "hello", user=first)
    assert (AgentContext.objects.count(), SessionEvent.objects.count()) == before
    for _ in range(5):
        make_turn(user=second)
    clock.advance(refused.value.details["retry_after"])
    assert not runtime.enqueue(session.session_id, "hello", user=first).duplicate


def test_ten_08_over_http_the_answer_says_when_to_come_again(configured):
    configured(RATE_LIMIT={"per_minute": 6, "burst": 1})
    user = make_user()
    client = client_of(user)
    sessions = [make_session(user=user).session_id for _ in range(2)]
    first, second = (client.post(f"/api/sessions/{name}/turns/", {"message": "hi"}) for name in sessions)
    assert (first.status_code, second.status_code) == (202, 429)
    assert second.json()["code"] == "rate_limited"
    assert 1 <= int(second["Retry-After"]) <= 60
    assert 0 < second.json()["details"]["retry_after"] <= 60


def test_what_is_refused_or_known_is_not_counted(configured):
    configured(RATE_LIMIT={"per_minute": 2, "burst": 2})
    user = make_user()
    session = make_session(user=user)
    turn = make_turn(session, user=user, idempotency_key="k")
    for _ in range(5):
        with pytest.raises(Conflict):
            runtime.enqueue(session.session_id, "another", user=user)
        assert runtime.enqueue(session.session_id, "hello", user=user, idempotency_key="k").duplicate
    make_turn(user=user)
    assert runtime.enqueue(session.session_id, "hello", user=user, idempotency_key="k").turn.pk == turn.pk


def test_what_the_callers_transaction_undoes_is_not_counted(configured):
    configured(RATE_LIMIT={"per_minute": 1, "burst": 1})
    user = make_user()
    session = make_session(user=user)
    with transaction.atomic():
        runtime.enqueue(session.session_id, "hello", user=user)
        transaction.set_rollback(True)
    assert not runtime.enqueue(session.session_id, "hello", user=user).duplicate


def test_execute_makes_no_session_for_a_turn_that_is_refused(configured, scripted):
    configured(RATE_LIMIT={"per_minute": 1, "burst": 1})
    user = make_user()
    scripted(["Hello."])
    assert runtime.execute(TESTING_AGENT, "hi", user=user).response == "Hello."
    with pytest.raises(RateLimited):
        runtime.execute(TESTING_AGENT, "hi", user=user)
    assert AgentSession.objects.count() == 1


def test_a_turn_counts_for_its_sessions_owner_and_one_of_nobody_for_nobody(configured):
    configured(RATE_LIMIT={"per_minute": 1, "burst": 1})
    owner = make_user()
    make_turn(make_session(user=owner))
    with pytest.raises(RateLimited):
        make_turn(make_session(user=owner))
    for _ in range(3):
        make_turn()


def test_a_providers_rate_limit_holds_for_all_its_turns(configured, scripted, clock):
    configured(PROVIDERS={"scripted": {"class": "demo", "rate_limit": "2/minute"}})
    provider = scripted(lambda _: "Hello.")
    turns = [make_turn() for _ in range(3)]
    run_turns()
    assert provider.call_count == 2
    assert sorted(now(turn).state for turn in turns) == ["completed", "completed", "queued"]
    clock.advance(67)
    run_turns()
    assert {now(turn).state for turn in turns} == {"completed"}


def test_red_03_limits_hold_without_a_cache(configured, settings):
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:9/0"}
    }
    configured(RATE_LIMIT={"per_minute": 1, "burst": 1})
    user = make_user()
    make_turn(user=user)
    with pytest.raises(RateLimited):
        make_turn(user=user)
