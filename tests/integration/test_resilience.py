"""What becomes of turns whose model fails, is left alone, or may not be asked so often."""

import threading
from datetime import timedelta

import pytest
from celery import current_app
from django.db import connections

from agentcore import TurnState, dispatch, runtime
from agentcore.approvals import decisions
from agentcore.engine import draining, loop
from agentcore.exceptions import (
    ProviderAuthError,
    ProviderBadRequest,
    ProviderOverloaded,
    ProviderRateLimited,
)
from agentcore.models import AgentContext, AgentStep, SessionEvent, ToolApproval, ToolCall
from agentcore.resilience import circuit_breaker, retry
from agentcore.testing import calls, make_approval, make_session, make_turn, make_user, run_turns
from agentcore.testing.agents import TESTING_AGENT, ledger
from agentcore.turns import claims, recovery, steps
from tests.integration.api import DECIDE

pytestmark = pytest.mark.django_db

MODEL = "scripted:any"
BUSY = ProviderOverloaded("busy")


@pytest.fixture
def configured(settings):
    """A function that changes settings."""

    def configure(**changes):
        settings.AGENTCORE = {**settings.AGENTCORE, **changes}

    return configure


@pytest.fixture(autouse=True)
def _short_pauses(configured):
    configured(RETRY={"attempts": 3, "initial": 0.001, "max": 0.001})


@pytest.fixture(autouse=True)
def _invariants(assert_invariants):
    yield
    assert_invariants()


def open_the_breaker():
    for _ in range(5):
        circuit_breaker.enter(MODEL).failed()


def now(turn):
    return AgentContext.objects.get(pk=turn.pk)


# Retries


def test_prv_15_a_provider_that_is_down_is_asked_as_often_as_configured(scripted):
    provider = scripted(lambda _: BUSY)
    turn = make_turn()
    run_turns()
    assert provider.call_count == 3
    assert now(turn).state == TurnState.FAILED
    assert now(turn).error["code"] == "driver_error"
    assert now(turn).error["details"] == {"kind": "ProviderOverloaded", "retryable": True}
    assert AgentStep.objects.get().failed_attempts == 3


def test_a_failure_that_passes_is_not_seen(scripted):
    scripted([BUSY, BUSY, "Hello."])
    turn = make_turn()
    run_turns()
    assert (now(turn).response, now(turn).step_count) == ("Hello.", 1)
    assert not SessionEvent.objects.filter(type__in=["turn.failed", "agent.step.failed"]).exists()


@pytest.mark.parametrize("error", [ProviderBadRequest("context too long"), ProviderAuthError("401")])
def test_prv_14_client_errors_are_asked_once(scripted, error):
    provider = scripted(lambda _: error)
    turn = make_turn()
    run_turns()
    assert provider.call_count == 1
    assert now(turn).error["details"] == {"kind": type(error).__name__, "retryable": False}
    assert circuit_breaker.state(MODEL) == "closed"


def test_a_worker_that_takes_over_goes_on_counting(scripted, clock):
    provider = scripted(lambda _: BUSY)
    turn = make_turn()
    loop_died_after(turn, attempts=2)
    clock.advance(3600)
    recovery.settle_abandoned()
    run_turns()
    assert provider.call_count == 1
    assert now(turn).error["details"]["kind"] == "ProviderOverloaded"


def loop_died_after(turn, *, attempts):
    steps.count_failures(claims.claim(turn.execution_id), attempts)


# Long waits


def test_prv_13_a_long_wait_gives_the_turn_back_and_frees_the_worker(scripted, clock):
    provider = scripted([ProviderRateLimited("429", retry_after=20), "Hello."])
    turn = make_turn()
    assert run_turns() == 1
    waiting = now(turn)
    assert (waiting.state, waiting.lease_owner, waiting.lease_expires_at) == (TurnState.QUEUED, "", None)
    assert timedelta(seconds=19) < waiting.due_at - clock.now() <= timedelta(seconds=22)
    assert waiting.worked_seconds < 5
    clock.advance(19)
    assert run_turns() == 0
    clock.advance(4)
    assert run_turns() == 1
    done = now(turn)
    assert (done.state, done.response, done.due_at, done.worked_seconds < 10) == ("completed", "Hello.", None, True)
    assert provider.call_count == 2
    step = AgentStep.objects.get()
    assert step.failed_attempts == 1
    assert 20 <= step.waited_seconds <= 22


def test_prv_13_ten_turns_none_before_the_time_and_not_all_at_once(scripted, clock):
    provider = scripted(lambda _: ProviderRateLimited("429", retry_after=20) if provider.call_count == 1 else "Hello.")
    turns = [make_turn() for _ in range(10)]
    assert run_turns() == 10
    assert provider.call_count == 1
    dues = {now(turn).due_at for turn in turns}
    assert len(dues) == 10
    assert min(dues) >= clock.now() + timedelta(seconds=18)
    clock.advance(25)
    run_turns()
    assert {now(turn).state for turn in turns} == {"completed"}
    assert provider.call_count == 11


def test_prv_13_a_wait_longer_than_the_turn_may_take_fails_at_once(scripted):
    provider = scripted([ProviderRateLimited("429", retry_after=86_400)])
    turn = make_turn()
    run_turns()
    error = now(turn).error
    assert (error["code"], error["details"]["kind"], error["details"]["retryable"]) == (
        "unavailable",
        "ProviderPostponed",
        True,
    )
    assert 86_400 <= error["details"]["retry_after"] <= 95_040
    assert "longer than this turn may take" in error["message"]
    assert provider.call_count == 1


def test_prv_15_waits_end_too(scripted, clock, configured):
    """A provider that is down for an hour keeps no turn waiting for an hour."""
    configured(CIRCUIT_BREAKER={"failure_threshold": 1, "reset_timeout": 30}, RETRY={"attempts": 1})
    scripted([])
    turn = make_turn()
    for _ in range(40):
        circuit_breaker.enter(MODEL).failed()
        run_turns()
        if now(turn).state != TurnState.QUEUED:
            break
        clock.advance(now(turn).due_at - clock.now() + timedelta(seconds=0.1))
    assert (now(turn).state, now(turn).error["code"]) == ("failed", "unavailable")
    assert AgentStep.objects.get().waited_seconds <= 300


def test_dur_02_early_copies_of_the_task_do_nothing(scripted, clock):
    provider = scripted([ProviderRateLimited("429", retry_after=100), "Hello."])
    turn = make_turn()
    run_turns()
    rows = (list(SessionEvent.objects.values()), list(AgentContext.objects.values()))
    for _ in range(5):
        assert not loop.run(turn.execution_id)
    assert (list(SessionEvent.objects.values()), list(AgentContext.objects.values())) == rows
    clock.advance(111)
    assert [loop.run(turn.execution_id) for _ in range(5)] == [True, False, False, False, False]
    assert provider.call_count == 2


def test_a_turn_that_waits_is_not_overdue_and_the_sweep_sends_it_when_its_message_was_lost(scripted, clock):
    scripted([ProviderRateLimited("429", retry_after=100), "Hello."])
    turn = make_turn()
    run_turns()
    clock.advance(99)
    assert recovery.send_overdue() == 0
    assert runtime.health()["parts"]["turns"]["status"] == "healthy"
    clock.advance(100 + 10 + 60)
    assert recovery.send_overdue() == 1
    run_turns()
    assert now(turn).response == "Hello."


def test_a_turn_that_waits_can_be_cancelled(scripted):
    scripted([ProviderRateLimited("429", retry_after=100)])
    turn = make_turn()
    run_turns()
    runtime.cancel(turn.session.session_id)
    assert (now(turn).state, now(turn).due_at) == ("cancelled", None)


@pytest.mark.django_db(transaction=True)
def test_a_turn_given_back_is_sent_for_its_time(scripted, monkeypatch):
    sent = []
    monkeypatch.setattr(dispatch, "_publish", lambda app, execution_id, after=0.0: sent.append(after))
    scripted([ProviderRateLimited("429", retry_after=100)])
    make_turn()
    run_turns()
    dispatch.flush()
    assert sent[0] == 0.0
    assert 100 <= sent[1] <= 111
    # After a restart everything that is queued is sent, this one for its time still.
    recovery.send_queued()
    dispatch.flush()
    assert 99 <= sent[2] <= 111


@pytest.mark.django_db(transaction=True)
def test_the_message_of_a_turn_that_waits_has_a_countdown(scripted):
    scripted([ProviderRateLimited("429", retry_after=100)])
    make_turn()
    dispatch.flush()
    with current_app.connection_for_read() as connection:
        connection.SimpleQueue("celery").clear()
        run_turns()
        dispatch.flush()
        message = connection.SimpleQueue("celery").get(block=False)
    assert message.headers["eta"] is not None


@pytest.fixture
def impatient(monkeypatch):
    """Let even short waits be long ones, for tests that wait in real time."""
    monkeypatch.setattr(retry, "LONGEST_SLEEP_SECONDS", 0.1)
    monkeypatch.setattr(retry, "SHORTEST_SPREAD_SECONDS", 0.01)


@pytest.mark.django_db(transaction=True)
def test_without_a_broker_a_timer_keeps_the_time(scripted, configured, impatient):
    """In thread mode, and for real."""
    configured(DISPATCH="thread")
    done = threading.Event()
    runtime.on("turn.completed", lambda event: done.set())
    scripted([ProviderRateLimited("429", retry_after=0.5), "Hello."])
    turn = make_turn()
    assert done.wait(20)
    assert now(turn).response == "Hello."
    assert SessionEvent.objects.filter(turn_id=turn.execution_id, type="turn.resumed").count() == 1
    dispatch.work_off(10)


@pytest.mark.django_db(transaction=True)
def test_execute_waits_for_its_turn(scripted, configured, impatient):
    configured(CIRCUIT_BREAKER={"failure_threshold": 3, "reset_timeout": 0.5}, RETRY={"attempts": 9, "initial": 0.001})
    scripted([BUSY, BUSY, BUSY, "Hello."])
    result = runtime.execute(TESTING_AGENT, "hi")
    assert (result.state, result.response) == ("completed", "Hello.")
    assert SessionEvent.objects.filter(type="turn.resumed").count() == 1
    assert 0.4 < AgentStep.objects.get().waited_seconds < 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("ending", ["cancel", "shutdown"])
def test_a_short_wait_ends_early(scripted, configured, ending):
    configured(RETRY={"attempts": 3, "initial": 2.9, "max": 2.9})
    asked = threading.Event()

    def busy(request):
        asked.set()
        return BUSY

    scripted(busy)
    turn = make_turn()

    def work():
        loop.run(turn.execution_id)
        connections.close_all()

    working = threading.Thread(target=work)
    working.start()
    assert asked.wait(10)
    if ending == "cancel":
        runtime.cancel(turn.session.session_id)
    else:
        draining.start()
    working.join(2.0 if ending == "shutdown" else 10)
    assert not working.is_alive()
    assert now(turn).state == ("cancelled" if ending == "cancel" else "queued")
    draining.stop()


# An open breaker


def test_lim_05_an_approved_tool_runs_while_its_model_is_left_alone(scripted, clock):
    reviewer = make_user(permissions=(DECIDE,))
    approval = make_approval()
    open_the_breaker()
    provider = scripted(["Paid."])
    decisions.approve(approval.pk, reviewer)
    run_turns()
    turn = now(approval.turn)
    assert ledger.entries == [("pay", 10, "acme")]
    assert ToolCall.objects.get().status == "completed"
    assert (turn.state, provider.call_count) == (TurnState.QUEUED, 0)
    clock.advance(35)
    run_turns()
    assert (now(turn).state, now(turn).response) == ("completed", "Paid.")
    assert ledger.entries == [("pay", 10, "acme")]
    assert ToolApproval.objects.count() == 1
    assert circuit_breaker.state(MODEL) == "closed"


def test_lim_05_or_the_turn_fails_at_once_and_says_that_trying_again_may_help(scripted, configured):
    configured(BREAKER_OPEN="fail")
    open_the_breaker()
    provider = scripted(["never"])
    turn = make_turn()
    run_turns()
    error = now(turn).error
    assert (now(turn).state, error["code"], provider.call_count) == ("failed", "unavailable", 0)
    assert error["details"]["retryable"] is True
    assert 29 < error["details"]["retry_after"] <= 30


def test_lim_01_turns_stop_asking_when_a_provider_is_down(scripted):
    provider = scripted(lambda _: BUSY)
    for _ in range(10):
        make_turn()
    run_turns()
    assert provider.call_count == 5
    assert circuit_breaker.states() == {MODEL: "open"}
    assert AgentContext.objects.filter(state=TurnState.QUEUED).count() == 9


def test_apr_22_rejections_are_no_failures(scripted, settings):
    reviewer = make_user(permissions=(DECIDE,))
    session = make_session()
    for amount in range(1, 6):
        approval = make_approval(arguments={"amount": amount, "to": "acme"}, session=session)
        scripted(["I will not."])
        decisions.reject(approval.pk, reviewer)
        run_turns()
    assert set(ToolCall.objects.values_list("status", "attempts")) == {("rejected", 0)}
    assert circuit_breaker.states([MODEL]) == {MODEL: "closed"}
    approval = make_approval(arguments={"amount": 6, "to": "acme"}, session=session)
    scripted(["Paid."])
    decisions.approve(approval.pk, reviewer)
    run_turns()
    assert ledger.entries == [("pay", 6, "acme")]


def test_each_step_has_attempts_of_its_own(scripted):
    scripted([calls(("lookup", {"q": "a"})), BUSY, "Found."])
    turn = make_turn()
    run_turns()
    assert now(turn).response == "Found."
    assert list(AgentStep.objects.order_by("number").values_list("failed_attempts", flat=True)) == [0, 1]
