"""A commit that was made, and whose answer never came: the change is found, not made a second time."""

from __future__ import annotations

import pytest
from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

from agentcore import TurnState, agent, runtime, tool
from agentcore.agents.registry import registry
from agentcore.models import AgentContext, AgentSession, ToolApproval
from agentcore.testing import assert_invariants, calls, run_turns
from agentcore.turns import sessions

pytestmark = pytest.mark.django_db(transaction=True)

NAME = "charging"
# Opening, the reply with its call, the result, the answer.
COMMITS = 4

ledger: list[int] = []


@pytest.fixture(autouse=True)
def _charging():
    @agent(name=NAME, model="scripted:x")
    class Charging:
        @tool(description="Charges, once")
        def charge(self, n: int) -> int:
            ledger.append(n)
            return n

    ledger.clear()
    yield
    registry.unregister(NAME)


@pytest.fixture
def losing(monkeypatch):
    """Let the answer to the n-th commit be lost, after the commit or in place of it."""

    def lose(number, *, is_made=True):
        count, commit = 0, BaseDatabaseWrapper._commit

        def counting(self):
            nonlocal count
            count += 1
            if count != number:
                return commit(self)
            if is_made:
                commit(self)
            raise OperationalError("the server closed the connection")

        monkeypatch.setattr(BaseDatabaseWrapper, "_commit", counting)

    return lose


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr("agentcore.database.PAUSES", (0.01, 0.01, 0.01))


def story(scripted):
    scripted(lambda request: "Done." if request.messages[-1].role == "tool" else calls(("charge", {"n": 1})))
    runtime.create_session(NAME)  # the revision is stored


@pytest.mark.parametrize("is_made", [True, False], ids=["made", "not made"])
@pytest.mark.parametrize("number", range(1, COMMITS + 1))
@pytest.mark.parametrize("session_id", [None, "mine"])
def test_a_lost_answer_costs_nothing_and_doubles_nothing(number, is_made, session_id, scripted, losing):
    story(scripted)
    losing(number, is_made=is_made)
    result = runtime.execute(NAME, "go", session_id=session_id)
    assert (result.state, result.response) == (TurnState.COMPLETED, "Done.")
    assert ledger == [1]
    assert AgentContext.objects.count() == 1
    assert AgentSession.objects.count() == 2
    assert not ToolApproval.objects.exists()
    assert_invariants()


@pytest.mark.parametrize("number", range(1, COMMITS + 1))
def test_a_worker_goes_on_after_a_lost_answer(number, scripted, losing):
    story(scripted)
    turn = runtime.enqueue(runtime.create_session(NAME).session_id, "go").turn
    losing(number)
    run_turns()
    turn.refresh_from_db()
    assert (turn.state, turn.takeovers, ledger) == (TurnState.COMPLETED, 0, [1])
    assert_invariants()


def test_a_session_that_somebody_else_made_meanwhile_is_used(scripted, monkeypatch):
    story(scripted)
    same = {"session_id": "shared", "idempotency_key": "k"}
    first = runtime.execute(NAME, "go", **same)
    looked, find = [], sessions.find

    def find_too_early(session_id):
        looked.append(session_id)
        return None if len(looked) == 1 else find(session_id)

    monkeypatch.setattr(sessions, "find", find_too_early)
    again = runtime.execute(NAME, "go", **same)
    assert (again.execution_id, again.response, ledger) == (first.execution_id, "Done.", [1])
    assert AgentContext.objects.count() == 1
    assert_invariants()
