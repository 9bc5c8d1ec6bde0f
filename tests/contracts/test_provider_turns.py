"""Whole turns over each API: the loop works with what the wire carries, and sends back what the API takes."""

import pytest

from agentcore import runtime
from agentcore.models import ToolApproval
from agentcore.providers import registry
from agentcore.states import TurnState
from agentcore.testing.agents import ledger
from agentcore.testing.makers import make_session, make_turn, make_user
from agentcore.testing.turns import run_turns

pytestmark = pytest.mark.django_db


@pytest.fixture
def turn(api):
    with registry.override("scripted", api.provider):
        yield make_turn(make_session(), "Look it up, and pay.")


def test_a_turn_calls_tools_waits_for_approval_and_answers(api, turn):
    both = [("c1", "lookup", {"q": "acme"}), ("c2", "pay", {"amount": 10, "to": "acme"})]
    api.will_reply(text="One moment.", calls=both, finish="tool_calls", streams=False)
    run_turns()
    turn.refresh_from_db()
    assert (turn.state, ledger.entries) == (TurnState.WAITING_FOR_APPROVAL, [("lookup", "acme")])

    api.will_reply(text="Paid.", streams=False)
    reviewer = make_user(permissions=("agentcore.decide_toolapproval",))
    runtime.approve(ToolApproval.objects.get(turn=turn).pk, reviewer)
    run_turns()
    turn.refresh_from_db()
    assert (turn.state, turn.response) == (TurnState.COMPLETED, "Paid.")
    assert ledger.entries == [("lookup", "acme"), ("pay", 10, "acme")]
    assert turn.input_tokens == 22


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_prv_14_an_error_of_ours_ends_the_turn_after_one_attempt(api, turn, status):
    api.will_fail(status)
    run_turns()
    turn.refresh_from_db()
    assert (turn.state, turn.error["code"]) == (TurnState.FAILED, "driver_error")
    assert turn.error["details"]["retryable"] is False
    assert len(api.server.requests) == 1


def test_a_call_with_broken_arguments_and_of_no_tool_is_answered_and_the_session_goes_on(api, turn):
    invented = [("c.1", "functions.look up!", {}), ("c1", "lookup", {"nothing": 1})]
    api.will_reply(calls=invented, finish="tool_calls", streams=False)
    api.will_reply(text="I could not.", streams=False)
    run_turns()
    turn.refresh_from_db()
    assert (turn.state, turn.response, ledger.entries) == (TurnState.COMPLETED, "I could not.", [])
    assert len(api.server.requests) == 2
