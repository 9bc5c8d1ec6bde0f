"""What models really send: broken, cut, wrong and endless. The turn goes on, or ends with a reason."""

import dataclasses
import json

import pytest

from agentcore import TurnState, agent, runtime, tool
from agentcore.agents.registry import registry
from agentcore.exceptions import ProviderAuthError, ProviderBadRequest
from agentcore.messages import ModelReply, ToolRequest, Usage
from agentcore.models import AgentStep, ToolApproval, ToolCall
from agentcore.testing import assert_invariants, calls, make_user

pytestmark = pytest.mark.django_db(transaction=True)

AGENT = "patient-agent"
ledger: list[object] = []


@agent(name=AGENT, system_prompt="You are patient.", model="scripted:any", max_steps=30)
class PatientAgent:
    @tool(description="Look up", idempotent=True)
    def lookup(self, q: str) -> str:
        ledger.append(q)
        return f"found {q}"

    @tool(description="Take no arguments")
    def ping(self) -> str:
        ledger.append("ping")
        return "pong"

    @tool(description="Pay", requires_approval=True)
    def pay(self, amount: int, to: str, dry_run: bool = False) -> str:
        ledger.append((amount, to, dry_run))
        return "paid"

    @tool(description="Write a file")
    def write(self, path: str, text: str) -> str:
        ledger.append((path, text))
        return "written"

    @tool(description="Write a file, when a person allows it", requires_approval=True)
    def publish(self, path: str, text: str) -> str:
        ledger.append((path, text))
        return "published"


registry.unregister(AGENT)


@pytest.fixture(autouse=True)
def _agent():
    runtime.register(PatientAgent)
    ledger.clear()
    yield
    registry.unregister(AGENT)


def told(provider, request=-1):
    return [message.content for message in provider.requests[request].messages if message.role == "tool"]


def assert_usable(scripted, result):
    """Say that the session takes the next turn, with a request that a strict API accepts."""
    provider = scripted(["Here I am."])
    assert runtime.execute(AGENT, "next", session_id=result.session_id).response == "Here I am."
    provider.assert_valid()
    assert_invariants()


def cut(reply):
    return dataclasses.replace(reply, finish_reason="length")


def test_prv_01_broken_arguments_go_back_to_the_model_and_the_others_run(scripted):
    provider = scripted([calls(("lookup", '{"q": "a"'), ("lookup", '{"q":"b"}')), "Done."])
    result = runtime.execute(AGENT, "go")
    assert (result.state, ledger) == (TurnState.COMPLETED, ["b"])
    broken, found = told(provider)
    assert "not JSON" in broken
    assert '{"q": "a"' in broken
    assert len(broken) < 600
    assert found == "found b"
    assert_usable(scripted, result)


@pytest.mark.parametrize("raw", ["", "null", " {} ", None])
def test_prv_01_no_arguments_are_none_for_a_tool_that_takes_none(raw, scripted):
    reply = calls(("ping", "{}"))
    provider = scripted(
        [dataclasses.replace(reply, tool_calls=(dataclasses.replace(reply.tool_calls[0], arguments=raw),)), "Done."]
    )
    result = runtime.execute(AGENT, "go")
    assert (result.response, ledger) == ("Done.", ["ping"])
    assert ToolCall.objects.get().arguments == {}
    assert told(provider) == ["pong"]
    assert_usable(scripted, result)


@pytest.mark.parametrize("raw", ["[1]", '"q"', "{q: 1}", '{"q": NaN}', '{"q": "a"} trailing', "<q>a</q>", "{" * 5000])
def test_prv_01_whatever_is_no_object_does_not_spoil_later_requests(raw, scripted):
    provider = scripted([calls(("lookup", raw)), "Done."])
    result = runtime.execute(AGENT, "go")
    assert (result.state, ledger) == (TurnState.COMPLETED, [])
    assert "was not run" in told(provider)[0]
    assert ToolCall.objects.get().raw_arguments == raw
    provider.assert_valid()
    assert_usable(scripted, result)


def test_prv_04_an_unknown_tool_again_and_again_ends_the_turn(scripted):
    provider = scripted(lambda request: calls(("reed", {"path": "x"})))
    result = runtime.execute(AGENT, "go")
    assert (result.state, result.error["code"]) == (TurnState.FAILED, "driver_error")
    assert result.error["details"] == {"reason": "unknown_tool", "replies": 3}
    assert provider.call_count == 3
    assert "Unknown tool 'reed'" in told(provider)[0]
    assert "Available: lookup, pay, ping" in told(provider)[0]
    assert not ToolApproval.objects.exists()
    assert_usable(scripted, result)


def test_prv_04_a_model_that_finds_the_right_name_goes_on(scripted):
    wrong = calls(("reed", {"q": "x"}))
    right = calls(("lookup", {"q": "x"}))
    provider = scripted([wrong, wrong, right, wrong, wrong, "Done."])
    assert runtime.execute(AGENT, "go").response == "Done."
    assert (ledger, provider.call_count) == (["x"], 6)


def test_prv_04_what_else_a_reply_asks_for_is_progress(scripted):
    both = calls(("reed", {"q": "x"}), ("lookup", {"q": "x"}))
    scripted([both] * 6 + ["Done."])
    assert runtime.execute(AGENT, "go").response == "Done."
    assert ledger == ["x"] * 6


@pytest.mark.parametrize("name", ["re\x00ed", "functions.lookup", "", "é" * 300])
def test_prv_04_an_unknown_name_of_any_kind_does_not_spoil_later_requests(name, scripted):
    provider = scripted([calls((name, {"q": "x"})), "Done."])
    result = runtime.execute(AGENT, "go")
    assert (result.state, ledger) == (TurnState.COMPLETED, [])
    provider.assert_valid()
    assert_usable(scripted, result)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ("{}", "amount"),
        ('{"amount":"5","to":"a"}', "amount"),
        ('{"amount":5,"to":"a","x":1}', "x"),
        ('{"amount":5,"to":"a","dry_run":"false"}', "dry_run"),
        ('{"amount":5,"to":"a","dry_run":0}', "dry_run"),
        ('{"amount":5.5,"to":"a"}', "amount"),
        ('{"amount":1e400,"to":"a"}', "amount"),
        ('{"amount":5,"to":7}', "to"),
    ],
)
def test_prv_05_wrong_arguments_are_named_before_anybody_is_asked(arguments, field, scripted):
    provider = scripted([calls(("pay", arguments)), "Done."])
    result = runtime.execute(AGENT, "pay")
    assert (result.state, ledger) == (TurnState.COMPLETED, [])
    assert f"{field}: " in told(provider)[0]
    assert not ToolApproval.objects.exists()
    assert_invariants()


def test_prv_05_what_is_shown_is_what_runs(scripted, run_turns):
    scripted([calls(("pay", '{"amount":5.0,"to":"a"}')), "Done."])
    result = runtime.execute(AGENT, "pay")
    approval = ToolApproval.objects.get()
    assert approval.arguments == {"amount": 5, "to": "a", "dry_run": False}
    runtime.approve(approval.pk, make_user(permissions=("agentcore.decide_toolapproval",)))
    run_turns()
    assert ledger == [(5, "a", False)]
    assert runtime.result(result.execution_id).response == "Done."


@pytest.mark.parametrize("name", ["write", "publish"])
@pytest.mark.parametrize(
    ("finish_reason", "arguments"),
    [("length", '{"path":"/a","text":"half"}'), ("tool_calls", '{"path":"/a","text":"ha'), ("stop", '{"path":"/a",')],
)
def test_prv_10_half_a_call_is_neither_run_nor_offered_and_the_model_is_told(finish_reason, arguments, name, scripted):
    reply = dataclasses.replace(calls((name, arguments)), finish_reason=finish_reason)
    provider = scripted([reply, "Sorry."])
    result = runtime.execute(AGENT, "go")
    assert (result.response, ledger) == ("Sorry.", [])
    assert not ToolApproval.objects.exists()
    assert "cut off" in told(provider)[0]
    assert_usable(scripted, result)


@pytest.mark.parametrize(
    "reply",
    [
        cut(calls(("write", '{"path":"/a","text":"half"}'))),
        calls(("write", '{"path":"/a","text":"ha')),
    ],
)
def test_prv_10_repeated_cuts_end_the_turn(reply, scripted):
    provider = scripted(lambda request: reply)
    result = runtime.execute(AGENT, "go")
    assert (result.state, result.error["code"]) == (TurnState.FAILED, "driver_error")
    assert result.error["details"] == {"reason": "cut", "replies": 3}
    assert (provider.call_count, ledger) == (3, [])
    assert_usable(scripted, result)


def test_prv_10_a_text_that_was_cut_is_stored_and_marked(scripted):
    scripted([cut(ModelReply(content="Once upon"))])
    result = runtime.execute(AGENT, "tell")
    assert (result.state, result.response) == (TurnState.COMPLETED, "Once upon")
    assert result.steps[0].finish_reason == "length"
    assert_usable(scripted, result)


def test_prv_10_an_empty_reply_that_was_cut_is_asked_for_once_more(scripted):
    provider = scripted([cut(ModelReply()), cut(ModelReply())])
    result = runtime.execute(AGENT, "think")
    assert (result.state, result.response, provider.call_count) == (TurnState.COMPLETED, "", 2)
    assert [step.finish_reason for step in result.steps] == ["length", "length"]
    assert_usable(scripted, result)


@pytest.mark.parametrize("reason", ["content_filter", "refusal"])
def test_the_calls_of_a_refused_reply_are_not_run_and_no_hole_in_the_history(reason, scripted, caplog):
    scripted([dataclasses.replace(calls(("lookup", {"q": "a"}), content="No."), finish_reason=reason)])
    result = runtime.execute(AGENT, "go")
    assert (result.state, result.error["code"], ledger) == (TurnState.FAILED, "refused", [])
    assert_usable(scripted, result)
    assert "incomplete" not in caplog.text


def test_a_finish_reason_nobody_knows_is_other(scripted):
    scripted([ModelReply(content="Hm.", finish_reason="sleepy")])
    assert runtime.execute(AGENT, "go").steps[0].finish_reason == "other"


def test_prv_08_pairs_that_broke_in_the_turn_in_hand_are_repaired_too(scripted, run_turns, caplog):
    scripted([calls(("lookup", {"q": "a"}), ("lookup", {"q": "b"})), calls(("pay", {"amount": 1, "to": "x"}))])
    result = runtime.execute(AGENT, "go")
    ToolCall.objects.filter(raw_arguments=json.dumps({"q": "a"})).update(result=None, status="executing")
    ToolCall.objects.filter(raw_arguments=json.dumps({"q": "a"})).update(completed_at=None)
    ToolCall.objects.filter(raw_arguments=json.dumps({"q": "b"})).delete()
    before = list(ToolCall.objects.filter(tool="lookup").values())
    provider = scripted(["Done."])
    runtime.approve(result.pending_approvals[0].id, make_user(permissions=("agentcore.decide_toolapproval",)))
    run_turns()
    assert runtime.result(result.execution_id).response == "Done."
    assert told(provider) == ["There is no result of this call.", "paid"]
    provider.assert_valid()
    assert list(ToolCall.objects.filter(tool="lookup").values()) == before
    assert any(getattr(record, "calls_missing", None) == 1 for record in caplog.records)


@pytest.mark.parametrize(
    "error",
    [ProviderBadRequest("400"), ProviderAuthError("401"), ProviderBadRequest("This model's context is 8000 tokens.")],
)
def test_prv_14_what_the_api_refuses_is_tried_once(error, scripted):
    provider = scripted([error])
    result = runtime.execute(AGENT, "go")
    assert (result.state, result.error["code"]) == (TurnState.FAILED, "driver_error")
    assert result.error["details"]["retryable"] is False
    assert error.message in result.error["message"]
    assert provider.call_count == 1
    assert AgentStep.objects.get().state == "failed"
    assert_usable(scripted, result)


# What a project's own provider may return by mistake


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        ({"content": "hi", "model": 5}, "content or model is no text"),
        ({"tool_calls": ("z",)}, "tool_calls are not ToolRequests"),
        (
            {"tool_calls": (ToolRequest(id="c", name="lookup", arguments={"q": "a"}),)},
            "tool_calls are not ToolRequests",
        ),
        ({"content": "hi", "usage": None}, "usage is not two whole numbers"),
        ({"content": "hi", "usage": Usage(output_tokens=10**30)}, "usage is not two whole numbers"),
        ({"content": "hi", "usage": Usage(input_tokens=-1)}, "usage is not two whole numbers"),
    ],
)
def test_a_reply_that_is_none_fails_the_turn_in_words(reply, told, scripted):
    scripted([ModelReply(**reply)])
    result = runtime.execute("testing-agent", "hi")
    assert (result.state, result.error["code"]) == (TurnState.FAILED, "driver_error")
    assert told in result.error["message"]
    assert result.error["details"]["kind"] == "ProviderBadReply"
    assert_invariants()
