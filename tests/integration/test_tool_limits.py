"""Tools that may be called only so often: what is counted, for whom, and what the model is told of the others."""

import pytest

from agentcore import agent, runtime, tool
from agentcore.agents.registry import registry
from agentcore.approvals import decisions
from agentcore.models import RateCount, ToolApproval, ToolCall
from agentcore.testing import calls, make_user
from agentcore.testing.agents import ledger
from tests.integration.api import DECIDE

pytestmark = pytest.mark.django_db

ONE, OTHER = "stingy-agent", "other-stingy-agent"


@tool(description="Ask somewhere", rate_limit="2/hour")
def ask_around(q: str) -> str:
    ledger.write("ask_around", q)
    return "heard"


@pytest.fixture(autouse=True)
def _agents(assert_invariants):
    @agent(name=ONE, model="scripted:any", tools=(ask_around,))
    class StingyAgent:
        @tool(description="Pay", requires_approval=True, rate_limit="1/hour")
        def pay(self, amount: int) -> str:
            ledger.write("pay", amount)
            return "paid"

        @tool(description="Fails at first", rate_limit="1/hour", idempotent=True, retries=2)
        def flaky(self) -> str:
            ledger.write("flaky")
            if len(ledger.entries) < 3:
                raise RuntimeError("not yet")
            return "done"

    @agent(name=OTHER, model="scripted:any", tools=(ask_around,))
    class OtherStingyAgent:
        pass

    yield
    assert_invariants()
    registry.unregister(ONE)
    registry.unregister(OTHER)


def ask(*questions):
    return calls(*(("ask_around", {"q": q}) for q in questions))


def outcomes():
    return [(call.status, (call.error or {}).get("code")) for call in ToolCall.objects.order_by("pk")]


def test_calls_past_the_limit_are_not_run_and_the_model_is_told_when_they_may(scripted, clock):
    provider = scripted([ask("a", "b", "c"), "Done.", ask("d"), "Done."])
    user = make_user()
    first = runtime.execute(ONE, "hi", user=user)
    assert (first.state, ledger.entries) == ("completed", [("ask_around", "a"), ("ask_around", "b")])
    assert outcomes() == [("completed", None), ("completed", None), ("failed", "rate_limited")]
    refused = ToolCall.objects.last()
    assert (refused.attempts, refused.started_at) == (0, None)
    told = provider.requests[1].messages[-1].content
    assert "2 per hour" in told
    assert "not run" in told
    assert "Retry after 3600 seconds" in told or "Retry after 3599 seconds" in told
    assert "executing" not in {call.status for call in ToolCall.objects.all()}
    clock.advance(3601)
    runtime.execute(ONE, "again", user=user)
    assert ledger.entries[-1] == ("ask_around", "d")


def test_the_limit_is_each_users_and_the_functions_in_every_agent(scripted):
    scripted([ask("a", "b"), "Done.", ask("c"), "Done.", ask("d"), "Done."])
    first, second = make_user(), make_user()
    runtime.execute(ONE, "hi", user=first)
    runtime.execute(OTHER, "hi", user=first)
    runtime.execute(OTHER, "hi", user=second)
    assert ledger.entries == [("ask_around", "a"), ("ask_around", "b"), ("ask_around", "d")]


def test_lim_07_an_approval_does_not_open_the_limit_and_covers_no_later_call(scripted, clock):
    owner, reviewer = make_user(), make_user(permissions=(DECIDE,))
    scripted([calls(("pay", {"amount": 1}), ("pay", {"amount": 2})), "One of two.", calls(("pay", {"amount": 2})), "?"])
    result = runtime.execute(ONE, "hi", user=owner)
    for approval in runtime.pending_approvals():
        decisions.approve(approval.pk, reviewer)
    assert runtime.resume(result.execution_id).response == "One of two."
    assert ledger.entries == [("pay", 1)]
    assert outcomes() == [("completed", None), ("failed", "rate_limited")]
    clock.advance(3601)
    asked = runtime.execute(ONE, "once more", session_id=result.session_id, user=owner)
    assert asked.state == "waiting_for_approval"
    assert ToolApproval.objects.count() == 3


def test_retries_of_one_call_count_once(scripted):
    scripted([calls(("flaky", {})), "Done."])
    runtime.execute(ONE, "hi", user=make_user())
    assert outcomes() == [("completed", None)]
    assert ToolCall.objects.get().attempts == 3
    assert len(RateCount.objects.get().taken) == 1


def test_what_was_never_asked_for_takes_no_part_of_the_limit(scripted):
    owner, reviewer = make_user(), make_user(permissions=(DECIDE,))
    scripted([calls(("pay", {"amount": 1})), "No?", calls(("pay", {"amount": 2})), "Yes."])
    rejected = runtime.execute(ONE, "hi", user=owner)
    decisions.reject(runtime.pending_approvals().get().pk, reviewer)
    runtime.resume(rejected.execution_id)
    assert not RateCount.objects.exists()
    approved = runtime.execute(ONE, "hi", user=owner)
    decisions.approve(runtime.pending_approvals().get().pk, reviewer)
    assert runtime.resume(approved.execution_id).response == "Yes."
    assert ledger.entries == [("pay", 2)]
