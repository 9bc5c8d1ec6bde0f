"""Turns that ask their user: what waits, what an answer does, and what crashes and races leave of it."""

import pytest
from django.db import OperationalError

from agentcore import TurnState, agent, runtime, tool
from agentcore.agents.registry import registry
from agentcore.approvals import invariants
from agentcore.conf import settings as agentcore_settings
from agentcore.engine import loop
from agentcore.exceptions import Conflict, InvalidInput, NotFound, TooLarge, ToolError
from agentcore.models import AgentContext, SessionEvent, ToolApproval, ToolCall, ToolOverride, UserQuestion
from agentcore.testing import assert_invariants, calls, make_session, make_user
from agentcore.testing.agents import ledger
from agentcore.tools import ask_user
from agentcore.turns import questions

pytestmark = pytest.mark.django_db

NAME = "asking-agent"
COLOUR, SIZE = ("ask_user", {"question": "Which colour?"}), ("ask_user", {"question": "Which size?"})


@agent(name=NAME, model="scripted:any", tools=(ask_user,), max_steps=3)
class AskingAgent:
    @tool(description="Look up", idempotent=True)
    def lookup(self, q: str) -> str:
        ledger.write("lookup", q)
        return q

    @tool(description="Pay", requires_approval=True)
    def pay(self, amount: int) -> str:
        ledger.write("pay", amount)
        return "paid"


registry.unregister(NAME)


@pytest.fixture(autouse=True)
def _agent():
    runtime.register(AskingAgent)
    yield
    registry.unregister(NAME)


@pytest.fixture
def reviewer():
    return make_user("reviewer", permissions=("agentcore.decide_toolapproval",))


def ask(scripted, *replies):
    provider = scripted(list(replies) or [calls(COLOUR), "Blue it is."])
    return provider, runtime.execute(NAME, "paint it")


def kinds(result):
    return list(SessionEvent.objects.filter(turn_id=result.execution_id).values_list("type", flat=True))


def data_of(kind):
    return SessionEvent.objects.get(type=kind).data


def test_a_turn_waits_with_its_question_and_the_answer_is_the_calls_result(scripted):
    provider, waiting = ask(scripted)
    assert (waiting.state, waiting.question) == (TurnState.WAITING_FOR_INPUT, "Which colour?")
    assert waiting.steps[0].action == "ask_user"
    turn = AgentContext.objects.get()
    assert (turn.lease_owner, turn.lease_expires_at, turn.active_session_id) == ("", None, turn.session_id)
    assert_invariants()

    done = runtime.resume(waiting.execution_id, "blue", by="cora")
    assert (done.state, done.response, done.question) == (TurnState.COMPLETED, "Blue it is.", None)
    [call] = done.steps[0].tool_calls
    assert (call.status, call.result, call.attempts) == ("completed", "blue", 0)
    assert [message.content for message in provider.requests[1].messages[-1:]] == ["blue"]
    provider.assert_valid()
    assert_invariants()


def test_its_events_say_what_was_asked_and_answered(scripted):
    _, waiting = ask(scripted)
    call_id = ToolCall.objects.get().call_id
    assert kinds(waiting)[-3:] == ["agent.input.requested", "agent.state.changed", "turn.waiting"]
    assert data_of("agent.input.requested") == {"question": "Which colour?", "call_id": call_id, "step": 1}
    assert data_of("turn.waiting") == {"reason": "input"}
    runtime.resume(waiting.execution_id, {"role": "user", "content": "blue"}, by="cora")
    assert data_of("agent.input.received") == {"answer": "blue", "call_id": call_id, "step": 1, "by": "cora"}
    after = kinds(waiting)[kinds(waiting).index("agent.input.received") :]
    assert after[:4] == ["agent.input.received", "tool.execution.completed", "agent.state.changed", "turn.resumed"]
    assert data_of("turn.resumed") == {"reason": "answered"}
    assert SessionEvent.objects.get(type="agent.step.completed", data__step=1).data["action"] == "ask_user"


def test_a_python_call_of_the_tool_has_nobody_to_ask():
    with pytest.raises(ToolError, match="no user here"):
        ask_user(question="Who?")


def test_free_calls_run_first_then_approvals_are_decided_then_questions_come_one_by_one(scripted, reviewer, run_turns):
    order = calls(COLOUR, ("pay", {"amount": 5}), SIZE, ("lookup", {"q": "x"}))
    provider, waiting = ask(scripted, order, "Done.")
    assert waiting.state == TurnState.WAITING_FOR_APPROVAL
    assert (waiting.question, ledger.entries) == (None, [("lookup", "x")])
    runtime.approve(waiting.pending_approvals[0].id, reviewer)
    run_turns()
    first = runtime.result(waiting.execution_id)
    assert (first.state, first.question) == (TurnState.WAITING_FOR_INPUT, "Which colour?")
    assert ledger.entries == [("lookup", "x"), ("pay", 5)]
    assert_invariants()
    second = runtime.resume(waiting.execution_id, "blue")
    assert (second.state, second.question) == (TurnState.WAITING_FOR_INPUT, "Which size?")
    assert_invariants()
    done = runtime.resume(waiting.execution_id, "small")
    assert done.state == TurnState.COMPLETED
    assert [message.content for message in provider.requests[1].messages[-4:]] == ["blue", "paid", "small", "x"]
    assert provider.call_count == 2
    assert_invariants()


@pytest.mark.django_db(transaction=True)
def test_what_was_asked_is_not_asked_again_after_a_crash(scripted, monkeypatch, clock):
    def die(*args, **kwargs):
        raise _Died

    scripted([calls(COLOUR), "Blue it is."])
    with monkeypatch.context() as patch:
        patch.setattr(questions, "ask", die)
        with pytest.raises(_Died):
            runtime.execute(NAME, "paint it")
    clock.advance(61)
    assert runtime.recover()["taken_over"] == 1
    turn = AgentContext.objects.get()
    assert loop.run(turn.execution_id)
    assert UserQuestion.objects.count() == 1
    questions.answer(turn, message={"role": "user", "content": "blue"}, key="k", by="")
    # The worker that takes the answer up dies too, twice in different places.
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(loop, "_run", die)
            with pytest.raises(_Died):
                loop.run(turn.execution_id)
        clock.advance(61)
        runtime.recover()
        assert UserQuestion.objects.filter(answer="blue").count() == 1
    assert runtime.result(turn.execution_id).state == TurnState.INTERRUPTED
    assert_invariants()


class _Died(BaseException):
    pass


@pytest.mark.django_db(transaction=True)
def test_a_question_is_asked_once_when_the_database_loses_the_answer_to_its_commit(scripted, monkeypatch):
    create = UserQuestion.objects.create
    failed = []

    def fail_once(**fields):
        if not failed:
            failed.append(1)
            raise OperationalError("database is locked")
        return create(**fields)

    monkeypatch.setattr(UserQuestion.objects, "create", fail_once)
    _, waiting = ask(scripted)
    assert waiting.state == TurnState.WAITING_FOR_INPUT
    assert kinds(waiting).count("agent.input.requested") == 1
    assert_invariants()


def test_cancelling_while_it_waits_works_at_once(scripted):
    _, waiting = ask(scripted)
    assert runtime.cancel(waiting.session_id).state == TurnState.CANCELLED
    result = runtime.result(waiting.execution_id)
    assert (result.question, result.steps[0].tool_calls[0].status) == (None, "cancelled")
    assert_invariants()
    with pytest.raises(Conflict, match="does not wait for input"):
        runtime.resume(waiting.execution_id, "too late")
    scripted(["Next."])
    assert runtime.execute(NAME, "next", session_id=waiting.session_id).response == "Next."
    assert_invariants()


def test_a_question_in_the_last_allowed_reply_is_not_asked(scripted):
    scripted([calls(COLOUR)])
    result = runtime.execute(NAME, "paint it", max_steps=1)
    assert (result.state, result.error["code"]) == (TurnState.FAILED, "max_steps")
    assert "step limit" in result.steps[0].tool_calls[0].error["message"]
    assert not UserQuestion.objects.exists()
    assert_invariants()


def test_each_reply_counts_over_the_pause(scripted):
    _, waiting = ask(scripted, *[calls(COLOUR)] * 3)
    again = runtime.resume(waiting.execution_id, "blue")
    assert again.state == TurnState.WAITING_FOR_INPUT
    assert runtime.resume(waiting.execution_id, "green").error["code"] == "max_steps"
    assert_invariants()


def test_a_malformed_question_goes_back_to_the_model(scripted):
    provider, result = ask(scripted, calls(("ask_user", {"question": ""}), ("ask_user", {})), "Never mind.")
    assert (result.state, result.response) == (TurnState.COMPLETED, "Never mind.")
    assert not UserQuestion.objects.exists()
    provider.assert_valid()
    assert_invariants()


@pytest.mark.parametrize(
    ("message", "error"),
    [("", InvalidInput), (" \n", InvalidInput), ("a\x00b", InvalidInput), ("\ud83d", InvalidInput), (7, InvalidInput)],
)
def test_an_answer_is_checked_as_a_message_is(scripted, message, error):
    _, waiting = ask(scripted)
    with pytest.raises(error) as refused:
        runtime.resume(waiting.execution_id, message)
    assert refused.value.details["field"] == "message"
    assert runtime.result(waiting.execution_id).state == TurnState.WAITING_FOR_INPUT


def test_an_answer_has_a_limit(scripted, settings):
    settings.AGENTCORE = {**settings.AGENTCORE, "MAX_INPUT_BYTES": 10}
    assert agentcore_settings.MAX_INPUT_BYTES == 10
    _, waiting = ask(scripted)
    with pytest.raises(TooLarge) as refused:
        runtime.answer(waiting.execution_id, "é" * 6)
    assert refused.value.details["field"] == "message"
    assert runtime.answer(waiting.execution_id, "é" * 5).turn.state == TurnState.QUEUED


def test_the_same_key_answers_once_also_after_the_turn_went_on(scripted, run_turns):
    _, waiting = ask(scripted, calls(COLOUR), calls(SIZE), "Done.")
    id = waiting.execution_id
    first, again = (runtime.answer(id, "blue", idempotency_key="k") for _ in range(2))
    assert (first.duplicate, again.duplicate) == (False, True)
    with pytest.raises(Conflict, match="another answer"):
        runtime.answer(id, "red", idempotency_key="k")
    run_turns()
    # It waits with its next question by now: the copy of the first answer is no answer to that one.
    assert runtime.answer(id, "blue", idempotency_key="k").duplicate
    assert runtime.resume(id, "blue", idempotency_key="k").question == "Which size?"
    assert runtime.resume(id, "small", idempotency_key="K").response == "Done."
    assert runtime.resume(id, "small", idempotency_key="K").response == "Done."
    with pytest.raises(Conflict, match="does not wait"):
        runtime.answer(id, "small")
    assert list(UserQuestion.objects.values_list("answer", flat=True)) == ["blue", "small"]
    assert_invariants()


def test_a_turn_that_does_not_wait_for_input_takes_no_answer(scripted, make_approval, make_turn):
    for turn in (make_approval().turn, make_turn()):
        with pytest.raises(Conflict, match="does not wait for input"):
            runtime.resume(turn.execution_id, "blue")
    with pytest.raises(NotFound):
        runtime.answer("00000000-0000-4000-8000-000000000000", "blue")


def test_a_waiting_turn_is_not_run_without_a_message(scripted):
    _, waiting = ask(scripted)
    with pytest.raises(Conflict, match="only a queued turn"):
        runtime.resume(waiting.execution_id)
    assert not loop.run(waiting.execution_id)


@pytest.mark.django_db(transaction=True)
def test_an_answer_dispatches_and_in_python_runs_here(scripted, monkeypatch):
    sent = []
    monkeypatch.setattr("agentcore.dispatch._send", sent.append)
    _, waiting = ask(scripted, calls(COLOUR), calls(SIZE), "Done.")
    runtime.resume(waiting.execution_id, "blue")
    assert sent == []
    runtime.answer(waiting.execution_id, "small")
    assert [str(one) for one in sent] == [waiting.execution_id]


def test_staff_may_ask_to_see_a_question_before_the_user_does(scripted, reviewer):
    session = make_session(NAME)
    ToolOverride.objects.create(agent=session.agent, tool="ask_user", always_ask=True)
    scripted([calls(COLOUR), "Blue it is."])
    waiting = runtime.execute(NAME, "paint it", session_id=session.session_id)
    assert waiting.state == TurnState.WAITING_FOR_APPROVAL
    runtime.approve(waiting.pending_approvals[0].id, reviewer, arguments={"question": "Which colour, please?"})
    assert runtime.resume(waiting.execution_id).question == "Which colour, please?"
    assert_invariants()
    assert runtime.resume(waiting.execution_id, "blue").response == "Blue it is."
    assert ToolApproval.objects.get().status == "approved"
    assert_invariants()


def test_a_question_that_lost_its_tool_is_not_asked_and_one_asked_is_still_answered(scripted):
    _, waiting = ask(scripted)
    registry.unregister(NAME)

    @agent(name=NAME, model="scripted:any", max_steps=3)
    class Without:
        pass

    assert runtime.resume(waiting.execution_id, "blue").response == "Blue it is."
    assert_invariants()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda turn: AgentContext.objects.filter(pk=turn.pk).update(question=None), "question is missing"),
        (lambda turn: AgentContext.objects.filter(pk=turn.pk).update(question="What?"), "not the one it asked"),
        (lambda turn: UserQuestion.objects.filter(turn=turn).delete(), "0 of its questions are open"),
        (lambda turn: UserQuestion.objects.filter(turn=turn).update(question="What?"), "question and event"),
        (lambda turn: UserQuestion.objects.filter(turn=turn).update(answer="red"), "has answer set"),
    ],
)
def test_what_was_done_to_a_question_by_hand_is_found(scripted, change, said):
    ask(scripted)
    turn = AgentContext.objects.get()
    assert list(invariants.problems(turn.session)) == []
    change(turn)
    assert said in "\n".join(invariants.problems(turn.session))
