"""Cancel: at once what nobody works on, after the call in hand what a worker has; the session goes on either way."""

import threading

import pytest
from asgiref.sync import sync_to_async
from django.db import transaction

from agentcore import ToolContext, TurnState, agent, runtime, tool
from agentcore.agents.registry import registry
from agentcore.events import log
from agentcore.exceptions import Conflict, NotFound
from agentcore.models import AgentContext, SessionEvent, ToolApproval, ToolCall
from agentcore.testing import assert_invariants, calls, make_session, make_user
from agentcore.turns import lifecycle, recovery, steps

pytestmark = pytest.mark.django_db(transaction=True)

AGENT = "cancelled-agent"
SHORT = 0.3
LONG = 50


class Hands:
    """What the tools share with the tests. `meanwhile` is what happens while a tool works."""

    def __init__(self):
        self.ledger = []
        self.meanwhile = lambda: None
        self.release = threading.Event()


hands = Hands()


@agent(name=AGENT, system_prompt="You are cancelled.", model="scripted:any")
class CancelledAgent:
    @tool(description="Charge; not to be repeated", timeout=LONG)
    def charge(self, n: int) -> dict[str, int]:
        hands.ledger.append(("charge", n))
        hands.meanwhile()
        return {"charged": n}

    @tool(description="Look", idempotent=True, retries=5)
    def lookup(self, q: str) -> str:
        hands.ledger.append(("lookup", q))
        hands.meanwhile()
        raise ConnectionError("try again")

    @tool(description="Hang", timeout=SHORT)
    def hang(self) -> str:
        hands.ledger.append(("hang",))
        hands.meanwhile()
        hands.release.wait(LONG)
        return "at last"

    @tool(description="Stop when asked to")
    def watchful(self, ctx: ToolContext) -> bool:
        hands.meanwhile()
        return ctx.cancelled

    @tool(description="Stop when asked to")
    async def watchful_async(self, ctx: ToolContext) -> bool:
        await sync_to_async(hands.meanwhile)()
        return ctx.cancelled

    @tool(description="Needs a person", requires_approval=True)
    def pay(self, amount: int, to: str) -> str:
        hands.ledger.append(("pay", amount, to))
        return "paid"

    @pay.preview
    def _(self, amount: int, to: str) -> str:
        hands.meanwhile()
        return "Pays"


registry.unregister(AGENT)


@pytest.fixture(autouse=True)
def _hands():
    runtime.register(CancelledAgent)
    hands.__init__()
    yield
    hands.release.set()
    for thread in threading.enumerate():
        if thread.name == "agentcore-tool":
            thread.join(LONG)
    registry.unregister(AGENT)


@pytest.fixture
def session():
    return make_session(AGENT)


@pytest.fixture
def cancel(session):
    """Cancel the session's turn, from whatever thread; returns the state it had then."""
    states = []

    def do():
        states.append(runtime.cancel(session.session_id, by="somebody").state)

    do.states = states
    return do


def go(session, message="go", **options):
    return runtime.execute(AGENT, message, session_id=session.session_id, **options)


def kinds(session):
    return list(session.events.order_by("sequence").values_list("type", flat=True))


def assert_cancelled(result):
    assert (result.state, result.response) == (TurnState.CANCELLED, None)
    assert result.error == {"code": "cancelled", "message": "The turn was cancelled.", "details": {}}
    assert result.pending_approvals == ()
    assert AgentContext.objects.get(execution_id=result.execution_id).active_session_id is None
    assert_invariants()


def assert_next_turn_works(scripted, session):
    """Say that the session takes the next message, and return what the model is told of the calls before."""
    provider = scripted(["Here I am."])
    assert go(session, "next").response == "Here I am."
    provider.assert_valid()
    assert_invariants()
    return [message.content for message in provider.requests[0].messages if message.role == "tool"]


# At once


def test_a_queued_turn_ends_at_once_and_is_never_run(scripted, session, cancel, run_turns):
    provider = scripted(["never", "Here I am."])
    turn = runtime.enqueue(session.session_id, "go").turn
    cancel()
    assert cancel.states == ["cancelled"]
    assert run_turns() == 0
    assert provider.call_count == 0
    assert_cancelled(runtime.result(turn.execution_id))
    assert kinds(session)[-2:] == ["agent.state.changed", "turn.cancelled"]
    assert_next_turn_works(scripted, session)


def test_a_turn_that_waits_for_approval_ends_at_once_with_its_requests(scripted, session, cancel, run_turns):
    scripted([calls(("pay", {"amount": 1, "to": "x"}), ("pay", {"amount": 2, "to": "y"}))])
    result = go(session)
    cancel()
    assert cancel.states == ["cancelled"]
    assert set(ToolApproval.objects.values_list("status", flat=True)) == {"cancelled"}
    for approval in ToolApproval.objects.all():
        [entry] = approval.decisions.all()
        assert (entry.verdict, entry.actor_key, entry.channel) == ("cancel", "", "system")
    assert kinds(session).count("tool.approval.cancelled") == 2
    assert run_turns() == 0
    assert hands.ledger == []
    assert_cancelled(runtime.result(result.execution_id))
    told = assert_next_turn_works(scripted, session)
    assert told == ["Not run: the turn ended before."] * 2


def test_a_turn_that_waits_for_input_ends_at_once(scripted, session, cancel):
    turn = runtime.enqueue(session.session_id, "go").turn
    AgentContext.objects.filter(pk=turn.pk).update(state="waiting_for_input", question="Which one?")
    cancel()
    assert cancel.states == ["cancelled"]
    turn.refresh_from_db()
    assert (turn.state, turn.active_session_id) == ("cancelled", None)
    assert_next_turn_works_after_forced_state(scripted, session)


def assert_next_turn_works_after_forced_state(scripted, session):
    # The forced state is not in the log, so the invariants do not hold here.
    scripted(["Here I am."])
    assert go(session, "next").response == "Here I am."


def test_an_approved_turn_that_is_queued_again_does_not_run_what_was_approved(scripted, session, cancel, run_turns):
    scripted([calls(("pay", {"amount": 1, "to": "x"}))])
    result = go(session)
    reviewer = make_user(permissions=("agentcore.decide_toolapproval",))
    runtime.approve(result.pending_approvals[0].id, reviewer)
    cancel()
    assert cancel.states == ["cancelled"]
    assert run_turns() == 0
    assert hands.ledger == []
    assert ToolCall.objects.get().status == "cancelled"
    assert_cancelled(runtime.result(result.execution_id))
    assert assert_next_turn_works(scripted, session) == ["Not run: the turn ended before."]


@pytest.mark.parametrize("answer", ["Done.", RuntimeError("broken")])
def test_an_ended_turn_cannot_be_cancelled(answer, scripted, session):
    scripted([answer])
    before = go(session).state
    events = kinds(session)
    with pytest.raises(Conflict, match="no active turn"):
        runtime.cancel(session.session_id)
    assert kinds(session) == events
    assert AgentContext.objects.get().state == before


def test_a_session_that_is_not_there_is_not_found():
    with pytest.raises(NotFound):
        runtime.cancel("nowhere")


# While a worker has it


def test_while_the_model_works_its_reply_is_not_acted_on(scripted, session, cancel):
    def answer(request):
        cancel()
        return calls(("charge", {"n": 5}))

    provider = scripted(answer)
    result = go(session)
    assert cancel.states == ["cancelling"]
    assert_cancelled(result)
    assert (hands.ledger, provider.call_count) == ([], 1)
    assert not ToolCall.objects.exists()
    assert kinds(session)[-5:] == [
        "agent.state.changed",
        "turn.cancelling",
        "agent.step.failed",
        "agent.state.changed",
        "turn.cancelled",
    ]
    assert_next_turn_works(scripted, session)


def test_while_the_model_works_an_answer_comes_too_late(scripted, session, cancel):
    def answer(request):
        cancel()
        return "Done."

    scripted(answer)
    assert_cancelled(go(session))
    assert "message" not in kinds(session)


def test_while_the_model_works_and_fails(scripted, session, cancel):
    def answer(request):
        cancel()
        return RuntimeError("broken")

    scripted(answer)
    assert_cancelled(go(session))


def test_dur_14_while_a_tool_runs_its_result_is_kept_and_the_rest_is_not_started(scripted, session, cancel):
    provider = scripted([calls(("charge", {"n": 5}), ("charge", {"n": 6})), "never"])
    hands.meanwhile = cancel
    result = go(session)
    assert cancel.states == ["cancelling"]
    assert_cancelled(result)
    assert hands.ledger == [("charge", 5)]
    assert provider.call_count == 1
    first, second = result.steps[0].tool_calls
    assert (first.status, first.attempts, first.late_result) == ("cancelled", 1, {"charged": 5})
    assert (second.status, second.attempts, second.late_result) == ("cancelled", 0, None)
    told = assert_next_turn_works(scripted, session)
    assert told == ["Cancelled, may have happened.", "Not run: the turn ended before."]


def test_while_a_tool_fails_its_error_is_kept(scripted, session, cancel):
    scripted([calls(("lookup", {"q": "a"})), "never"])
    hands.meanwhile = cancel
    result = go(session)
    assert_cancelled(result)
    assert hands.ledger == [("lookup", "a")]  # and no retry after the cancel
    assert result.steps[0].tool_calls[0].status == "cancelled"
    assert_next_turn_works(scripted, session)


def test_while_a_tool_hangs_the_turn_ends_with_its_timeout(scripted, session, cancel):
    scripted([calls(("hang", {})), "never"])
    hands.meanwhile = cancel
    result = go(session)
    assert_cancelled(result)
    assert result.steps[0].tool_calls[0].status == "cancelled"
    assert assert_next_turn_works(scripted, session) == ["Cancelled, may have happened."]
    hands.release.set()
    for thread in threading.enumerate():
        if thread.name == "agentcore-tool":
            thread.join(LONG)
    assert ToolCall.objects.get().late_result == "at last"


def test_while_a_preview_is_made_nobody_is_asked(scripted, session, cancel):
    scripted([calls(("pay", {"amount": 1, "to": "x"}))])
    hands.meanwhile = cancel
    result = go(session)
    assert cancel.states == ["cancelling"]
    assert_cancelled(result)
    assert not ToolApproval.objects.exists()
    assert "tool.approval.requested" not in kinds(session)
    assert assert_next_turn_works(scripted, session) == ["Not run: the turn ended before."]


@pytest.mark.parametrize("name", ["watchful", "watchful_async"])
def test_a_tool_can_see_that_it_was_cancelled(name, scripted, session, cancel):
    scripted([calls((name, {})), "never"])
    hands.meanwhile = cancel
    result = go(session)
    assert_cancelled(result)
    assert result.steps[0].tool_calls[0].late_result is True


@pytest.mark.parametrize("name", ["watchful", "watchful_async"])
def test_a_tool_can_see_that_it_was_not(name, scripted, session):
    scripted([calls((name, {})), "Done."])
    assert go(session).steps[0].tool_calls[0].result is False


def test_cancelling_twice_is_told_once_and_by_whom(scripted, session, cancel):
    scripted([calls(("charge", {"n": 5})), "never"])

    def twice():
        cancel()
        cancel()

    hands.meanwhile = twice
    result = go(session)
    assert cancel.states == ["cancelling", "cancelling"]
    assert_cancelled(result)
    [event] = session.events.filter(type="turn.cancelling")
    assert event.data == {"reason": "cancelled", "by": "somebody"}


def test_a_turn_whose_worker_died_while_cancelling_is_ended_by_the_sweep(scripted, session, cancel, clock):
    turn = runtime.enqueue(session.session_id, "go").turn
    with log.writing(turn.session_id) as journal:
        lifecycle.claim(journal, turn)
    cancel()
    assert cancel.states == ["cancelling"]
    assert runtime.recover()["taken_over"] == 0
    clock.advance(10_000)
    assert runtime.recover()["taken_over"] == 1
    turn.refresh_from_db()
    assert (turn.state, turn.active_session_id, turn.error["code"]) == ("cancelled", None, "cancelled")
    assert_invariants()
    assert_next_turn_works(scripted, session)


def test_a_worker_that_finds_its_cancelled_turn_ended_by_the_sweep_does_nothing(
    scripted, session, cancel, clock, monkeypatch, caplog
):
    """The sweep may end the turn between the worker's noticing of the cancel and its acting on it."""
    real = steps.cancel_turn

    def sweep_first(work, **late):
        clock.advance(10_000)
        assert recovery.settle_abandoned() == 1
        real(work, **late)

    def answer(request):
        cancel()
        return "Done."

    monkeypatch.setattr(steps, "cancel_turn", sweep_first)
    scripted(answer)
    assert_cancelled(go(session))
    assert kinds(session).count("turn.cancelled") == 1
    assert "Lost ownership" in caplog.text


def test_the_pending_requests_of_other_sessions_stay(scripted, session, cancel):
    other = make_session(AGENT)
    scripted([calls(("pay", {"amount": 1, "to": "x"}))] * 2)
    go(session)
    kept = go(other)
    cancel()
    assert runtime.result(kept.execution_id).state == TurnState.WAITING_FOR_APPROVAL
    assert runtime.pending_approvals().count() == 1
    assert_invariants()


def test_a_cancel_is_part_of_the_callers_transaction(scripted, session):
    turn = runtime.enqueue(session.session_id, "go").turn
    events = SessionEvent.objects.count()
    with transaction.atomic():
        runtime.cancel(session.session_id)
        transaction.set_rollback(True)
    turn.refresh_from_db()
    assert turn.state == "queued"
    assert SessionEvent.objects.count() == events
    assert_invariants()
