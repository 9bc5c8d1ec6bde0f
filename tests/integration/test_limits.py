"""Time, steps and attempts: what a turn may use of each, and how it ends when that is used up."""

import threading

import pytest

from agentcore import ToolContext, TurnState, agent, runtime, tool
from agentcore.agents.registry import registry
from agentcore.approvals import previews
from agentcore.engine import draining
from agentcore.exceptions import InvalidInput, ProviderTimeout
from agentcore.messages import ModelReply
from agentcore.models import AgentContext, Erasure, SessionEvent, ToolApproval, ToolCall
from agentcore.testing import assert_invariants, calls, make_session, make_turn, make_user
from agentcore.testing import clock as test_clock

pytestmark = pytest.mark.django_db(transaction=True)

AGENT = "limited-agent"
# A hanging call is waited for in real time: as short as a loaded machine allows.
SHORT = 0.3
# What must not be waited for.
LONG = 50


class Hands:
    """What the tools share with the tests."""

    def __init__(self):
        self.ledger = []
        self.keys = []
        self.release = threading.Event()
        self.failures = {}

    def fails(self, tool):
        self.failures[tool] = self.failures.get(tool, 0) - 1
        return self.failures[tool] >= 0


hands = Hands()


@agent(name=AGENT, system_prompt="You are limited.", model="scripted:any")
class LimitedAgent:
    @tool(description="Hang; may have happened", timeout=SHORT)
    def charge(self, n: int) -> dict[str, int]:
        hands.ledger.append(("charge", n))
        hands.release.wait(LONG)
        return {"charged": n}

    @tool(description="Hang; the model is told", timeout=SHORT, on_unknown="tell")
    def mail(self, to: str) -> str:
        hands.ledger.append(("mail", to))
        hands.release.wait(LONG)
        return "sent"

    @tool(description="Hang; may be repeated", timeout=SHORT, idempotent=True, retries=1)
    def fetch(self, q: str, ctx: ToolContext) -> str:
        hands.ledger.append(("fetch", q))
        hands.keys.append(ctx.call_id)
        hands.release.wait(LONG)
        return "fetched"

    @tool(description="Hang for as long as the settings let it", idempotent=True)
    def hang(self) -> str:
        hands.ledger.append(("hang",))
        hands.release.wait(LONG)
        return "at last"

    @tool(description="Catch everything, and hang", timeout=SHORT)
    def stubborn(self) -> str:
        hands.ledger.append(("stubborn",))
        while not hands.release.is_set():
            try:
                hands.release.wait(LONG)
            except BaseException:  # as some tools are written
                continue
        return "never mind"

    @tool(description="Fail some times, then work", idempotent=True, retries=2)
    def lookup(self, q: str, ctx: ToolContext) -> str:
        hands.ledger.append(("lookup", q))
        hands.keys.append(ctx.call_id)
        if hands.fails("lookup"):
            raise ConnectionError("try again")
        return f"found {q}"

    @tool(description="Fail; not to be repeated")
    def pay_now(self, n: int) -> str:
        hands.ledger.append(("pay_now", n))
        raise TimeoutError("the bank did not answer")

    @tool(description="Needs a person", requires_approval=True)
    def pay(self, amount: int, to: str) -> str:
        hands.ledger.append(("pay", amount, to))
        return "paid"

    @tool(description="Take time", idempotent=True)
    def spend(self, seconds: int) -> str:
        hands.ledger.append(("spend", seconds))
        test_clock.advance(seconds)
        return "spent"

    @tool(description="Has a rule that hangs", requires_approval=lambda arguments, ctx: hands.release.wait(LONG))
    def ruled(self) -> str:
        hands.ledger.append(("ruled",))
        return "ran"

    @tool(description="Has a preview that hangs", requires_approval=True)
    def previewed(self) -> str:
        return "ran"

    @previewed.preview
    def _(self) -> str:
        hands.release.wait(LONG)
        return "too late"


registry.unregister(AGENT)


@pytest.fixture(autouse=True)
def _hands():
    runtime.register(LimitedAgent)
    hands.__init__()
    yield
    let_go()
    registry.unregister(AGENT)


def let_go():
    """Let hanging calls return, and wait until their threads have said what came of them."""
    hands.release.set()
    for thread in threading.enumerate():
        if thread.name == "agentcore-tool":
            thread.join(LONG)


@pytest.fixture
def reviewer():
    return make_user("reviewer", permissions=("agentcore.decide_toolapproval",))


def the_call(**fields):
    return ToolCall.objects.get(**fields)


def told(provider, request=-1):
    return [message.content for message in provider.requests[request].messages if message.role == "tool"]


def assert_usable(scripted, result):
    """Say that the session takes the next turn, with a request that a strict API accepts."""
    provider = scripted(["Here I am."])
    assert runtime.execute(AGENT, "next", session_id=result.session_id).response == "Here I am."
    provider.assert_valid()
    assert_invariants()


# Time


def test_a_hanging_model_ends_the_turn_at_its_time(scripted):
    def hang(request):
        hands.release.wait(LONG)
        return "too late"

    provider = scripted(hang)
    result = runtime.execute(AGENT, "hi", timeout=SHORT)
    assert (result.state, result.error["code"], result.error["details"]) == (
        TurnState.FAILED,
        "turn_timeout",
        {"seconds": SHORT},
    )
    let_go()
    assert runtime.result(result.execution_id).response is None
    assert provider.call_count == 1
    assert not SessionEvent.objects.filter(type="message").exists()
    assert_usable(scripted, result)


def test_a_provider_that_gives_up_at_the_turns_time_is_a_turn_timeout_too(scripted, clock):
    def give_up(request):
        clock.advance(request.timeout)
        return ProviderTimeout("no answer")

    scripted(give_up)
    assert runtime.execute(AGENT, "hi").error["code"] == "turn_timeout"


def test_a_provider_that_gives_up_earlier_is_a_driver_error(scripted):
    scripted([ProviderTimeout("no answer")] * 3)
    error = runtime.execute(AGENT, "hi").error
    assert (error["code"], error["details"]) == ("driver_error", {"kind": "ProviderTimeout", "retryable": True})


def test_a_request_is_given_the_time_that_is_left(scripted, clock):
    provider = scripted([calls(("spend", {"seconds": 100})), "Done."])
    runtime.execute(AGENT, "hi", timeout=300)
    assert 295 < provider.requests[0].timeout <= 300
    assert 195 < provider.requests[1].timeout <= 200


def test_dur_17_after_the_time_no_model_and_no_tool_is_called(scripted, clock):
    provider = scripted(
        [calls(("spend", {"seconds": 200}), ("spend", {"seconds": 200}), ("lookup", {"q": "a"})), "never"]
    )
    result = runtime.execute(AGENT, "hi", timeout=300)
    assert (result.state, result.error["code"]) == (TurnState.FAILED, "turn_timeout")
    assert hands.ledger == [("spend", 200), ("spend", 200)]
    assert provider.call_count == 1
    lookup = the_call(tool="lookup")
    assert (lookup.status, lookup.attempts) == ("cancelled", 0)
    assert "Not run" in lookup.error["message"]
    assert_usable(scripted, result)


@pytest.mark.django_db  # in TestCase nothing ends a call, so that the reply does come late
def test_a_reply_that_comes_late_is_kept_and_not_acted_on(scripted, clock):
    def answer(request):
        clock.advance(1000)
        return calls(("pay_now", {"n": 5}))

    scripted(answer)
    result = runtime.execute(AGENT, "hi", timeout=300)
    assert (result.state, result.error["code"]) == (TurnState.FAILED, "turn_timeout")
    assert hands.ledger == []
    [call] = result.steps[0].tool_calls
    assert (call.status, call.attempts) == ("cancelled", 0)
    assert_usable(scripted, result)


def test_waiting_for_people_costs_no_time(scripted, clock, reviewer, run_turns):
    scripted([calls(("pay", {"amount": 1, "to": "x"})), "Paid."])
    result = runtime.execute(AGENT, "pay", timeout=60)
    clock.advance(3 * 86_400)
    runtime.approve(result.pending_approvals[0].id, reviewer)
    clock.advance(3600)
    run_turns()
    assert runtime.result(result.execution_id).response == "Paid."
    assert hands.ledger == [("pay", 1, "x")]


def test_time_of_work_is_added_up_over_pauses(scripted, clock, reviewer, run_turns):
    def answer(request):
        clock.advance(50)
        return calls(("pay", {"amount": len(request.messages), "to": "x"}))

    provider = scripted(answer)
    result = runtime.execute(AGENT, "pay", timeout=120)
    while runtime.pending_approvals().exists():
        runtime.approve(runtime.pending_approvals().get().pk, reviewer)
        run_turns()
    ended = runtime.result(result.execution_id)
    assert (ended.error["code"], provider.call_count) == ("turn_timeout", 3)
    assert AgentContext.objects.get().worked_seconds >= 120
    assert_usable(scripted, ended)


def test_a_tool_gets_no_more_time_than_its_turn_has_left(scripted):
    provider = scripted([calls(("hang", {})), "never"])
    result = runtime.execute(AGENT, "hi", timeout=SHORT)
    assert (result.state, result.error["code"]) == (TurnState.FAILED, "turn_timeout")
    assert (hands.ledger, provider.call_count) == ([("hang",)], 1)
    assert_usable(scripted, result)


def test_the_tool_timeout_of_the_settings_is_the_default(scripted, settings):
    settings.AGENTCORE = {"TOOL_TIMEOUT": SHORT}
    provider = scripted([calls(("hang", {})), "Done."])
    assert runtime.execute(AGENT, "hi").response == "Done."
    assert "did not return within" in told(provider)[0]


# A call that does not return


def test_a_call_that_may_have_happened_is_unknown_and_not_run_again(scripted):
    provider = scripted([calls(("charge", {"n": 5}), ("lookup", {"q": "a"})), "never"])
    result = runtime.execute(AGENT, "charge")
    call = the_call(tool="charge")
    assert (call.status, call.attempts, call.error["code"]) == ("unknown", 1, "outcome_unknown")
    assert hands.ledger == [("charge", 5), ("lookup", "a")]
    assert result.state == TurnState.WAITING_FOR_APPROVAL
    assert provider.call_count == 1
    assert SessionEvent.objects.filter(type="tool.execution.unknown").count() == 1
    assert_invariants()


def test_a_late_result_is_kept_with_the_call_and_changes_nothing(scripted):
    scripted([calls(("charge", {"n": 5}))])
    result = runtime.execute(AGENT, "charge")
    state, events = runtime.result(result.execution_id).state, SessionEvent.objects.count()
    assert the_call().late_result is None
    let_go()
    call = the_call()
    assert (call.status, call.result, call.late_result) == ("unknown", None, {"charged": 5})
    assert runtime.result(result.execution_id).steps[0].tool_calls[0].late_result == {"charged": 5}
    assert (runtime.result(result.execution_id).state, SessionEvent.objects.count()) == (state, events)
    assert_invariants()


def test_with_tell_the_model_is_told_that_it_may_have_happened_and_goes_on(scripted):
    provider = scripted([calls(("mail", {"to": "a"}), ("lookup", {"q": "b"})), "I am not sure.", "Next."])
    result = runtime.execute(AGENT, "mail")
    assert (result.state, result.response) == (TurnState.COMPLETED, "I am not sure.")
    assert "may have happened" in told(provider)[0]
    assert told(provider)[1] == "found b"
    assert hands.ledger == [("mail", "a"), ("lookup", "b")]
    assert the_call(tool="mail").status == "unknown"
    let_go()
    assert the_call(tool="mail").late_result == "sent"
    assert_usable(scripted, result)


def test_dur_17_a_tool_that_catches_everything_is_left_behind(scripted):
    provider = scripted([calls(("stubborn", {})), "never"])
    result = runtime.execute(AGENT, "go")
    assert result.state != TurnState.COMPLETED
    assert (the_call().status, provider.call_count) == ("unknown", 1)
    let_go()
    assert the_call().late_result == "never mind"


def test_an_idempotent_call_that_hangs_is_tried_again_and_then_failed(scripted):
    provider = scripted([calls(("fetch", {"q": "a"})), "Nothing there."])
    result = runtime.execute(AGENT, "fetch")
    assert result.response == "Nothing there."
    call = the_call()
    assert (call.status, call.attempts, call.error["code"]) == ("failed", 2, "timeout")
    assert hands.ledger == [("fetch", "a")] * 2
    assert set(hands.keys) == {call.call_id}
    assert "did not return within" in told(provider)[0]
    let_go()
    assert the_call().late_result == "fetched"
    assert_usable(scripted, result)


# Attempts


@pytest.mark.parametrize(
    ("failures", "status", "attempts"), [(0, "completed", 1), (2, "completed", 3), (9, "failed", 3)]
)
def test_lim_06_an_idempotent_call_has_its_retries(failures, status, attempts, scripted):
    hands.failures["lookup"] = failures
    provider = scripted([calls(("lookup", {"q": "a"})), "Done."])
    result = runtime.execute(AGENT, "look")
    assert result.response == "Done."
    call = the_call()
    assert (call.status, call.attempts) == (status, attempts)
    assert hands.ledger == [("lookup", "a")] * attempts
    assert set(hands.keys) == {call.call_id}
    started = SessionEvent.objects.filter(type="tool.execution.started").order_by("sequence")
    assert [event.data["attempt"] for event in started] == list(range(1, attempts + 1))
    ended = "tool.execution.completed" if status == "completed" else "tool.execution.failed"
    assert (
        SessionEvent.objects.filter(type__in=("tool.execution.completed", "tool.execution.failed")).get().type == ended
    )
    assert len(told(provider)) == 1
    assert_invariants()


def test_lim_06_a_call_that_may_not_be_repeated_is_attempted_once(scripted):
    provider = scripted([calls(("pay_now", {"n": 5})), "It did not work."])
    result = runtime.execute(AGENT, "pay")
    assert result.response == "It did not work."
    assert hands.ledger == [("pay_now", 5)]
    assert (the_call().status, the_call().attempts) == ("failed", 1)
    assert "ran and failed (TimeoutError)" in told(provider)[0]


def test_retries_end_with_the_turns_time(scripted, clock, monkeypatch):
    hands.failures["lookup"] = 9
    original = hands.fails

    def slow(tool):
        clock.advance(200)
        return original(tool)

    monkeypatch.setattr(hands, "fails", slow)
    scripted([calls(("lookup", {"q": "a"})), "never"])
    result = runtime.execute(AGENT, "look", timeout=300)
    assert result.error["code"] == "turn_timeout"
    assert len(hands.ledger) == 2
    assert_invariants()


# Steps


def test_an_answer_in_the_last_step_completes_the_turn(scripted):
    scripted([calls(("lookup", {"q": "a"})), "Done."])
    assert runtime.execute(AGENT, "hi", max_steps=2).response == "Done."


def test_calls_in_the_last_step_are_not_run_and_each_has_its_result(scripted):
    provider = scripted(
        [calls(("lookup", {"q": "a"})), calls(("lookup", {"q": "b"}), ("pay", {"amount": 1, "to": "x"}))]
    )
    result = runtime.execute(AGENT, "hi", max_steps=2)
    assert (result.state, result.error["code"], provider.call_count) == (TurnState.FAILED, "max_steps", 2)
    assert hands.ledger == [("lookup", "a")]
    for call in result.steps[1].tool_calls:
        assert (call.status, call.attempts) == ("failed", 0)
        assert "step limit" in call.error["message"]
    assert not ToolApproval.objects.exists()
    assert_usable(scripted, result)


def test_one_step_is_enough_for_an_answer(scripted):
    scripted(["Done."])
    assert runtime.execute(AGENT, "hi", max_steps=1).response == "Done."


def test_the_limit_of_the_settings_is_the_default(scripted, settings):
    settings.AGENTCORE = {"MAX_STEPS": 2}
    provider = scripted(lambda request: calls(("lookup", {"q": "a"})))
    assert runtime.execute(AGENT, "hi").error["code"] == "max_steps"
    assert provider.call_count == 2


def test_an_empty_reply_is_asked_for_once_more(scripted):
    provider = scripted([ModelReply(), "Here.", ModelReply(), ModelReply()])
    first = runtime.execute(AGENT, "hi")
    assert (first.state, first.response, len(first.steps)) == (TurnState.COMPLETED, "Here.", 2)
    second = runtime.execute(AGENT, "hi", session_id=first.session_id)
    assert (second.state, second.response) == (TurnState.COMPLETED, "")
    assert provider.call_count == 4
    provider.assert_valid()
    assert_usable(scripted, second)


@pytest.mark.parametrize("reason", ["content_filter", "refusal"])
def test_a_refused_reply_fails_the_turn_with_its_text(reason, scripted):
    scripted([ModelReply(content="I will not.", finish_reason=reason)])
    result = runtime.execute(AGENT, "hi")
    assert (result.state, result.error["code"], result.error["details"]) == (
        TurnState.FAILED,
        "refused",
        {"text": "I will not."},
    )
    assert_usable(scripted, result)


def test_prv_10_a_call_that_was_cut_off_is_not_run(scripted):
    reply = calls(("pay_now", {"n": 5}))
    cut = ModelReply(tool_calls=reply.tool_calls, finish_reason="length")
    provider = scripted([cut, "Sorry."])
    assert runtime.execute(AGENT, "hi").response == "Sorry."
    assert hands.ledger == []
    assert "cut off" in told(provider)[0]


# What a person is shown


@pytest.fixture
def _quick_questions(monkeypatch):
    monkeypatch.setattr(previews, "QUESTION_SECONDS", SHORT)


@pytest.mark.usefixtures("_quick_questions")
def test_apr_39_a_rule_that_hangs_means_that_a_person_is_asked(scripted):
    scripted([calls(("ruled", {}))])
    result = runtime.execute(AGENT, "go")
    assert result.state == TurnState.WAITING_FOR_APPROVAL
    assert "took longer than" in ToolApproval.objects.get().reason
    assert hands.ledger == []
    assert_invariants()


@pytest.mark.usefixtures("_quick_questions")
def test_a_preview_that_hangs_does_not_keep_the_request_back(scripted):
    scripted([calls(("previewed", {}))])
    result = runtime.execute(AGENT, "go")
    assert result.state == TurnState.WAITING_FOR_APPROVAL
    assert "took longer than" in ToolApproval.objects.get().preview
    assert_invariants()


@pytest.mark.parametrize("seconds", ["x", float("nan"), float("inf"), 2e9, True, [1]], ids=str)
def test_a_time_to_wait_that_is_none_is_refused_before_anything_is_done(seconds):
    refused = "must be (None or )?a number of seconds, at most 1,000,000,000, not"
    session, owner = make_session(), make_user()
    turn = make_turn(session, "hello")
    for verb in (
        lambda: runtime.shutdown(seconds),
        lambda: runtime.wait(turn.execution_id, seconds),
        lambda: runtime.send(make_session().session_id, "hello", timeout=seconds),
        lambda: runtime.erase(owner, wait=seconds),
    ):
        with pytest.raises(InvalidInput, match=refused):
            verb()
    assert AgentContext.objects.get().state == TurnState.QUEUED
    assert not Erasure.objects.exists()
    assert not draining.is_on()


def test_a_time_to_wait_that_has_passed_is_none_left():
    turn = make_turn(make_session(), "hello")
    assert runtime.wait(turn.execution_id, -1).state == TurnState.QUEUED
