"""The database refuses a change, or loses a connection, at any moment: nothing is lost, and nothing happens twice."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager

import pytest
from django.db import DataError, OperationalError, connection
from rest_framework.test import APIClient

from agentcore import TurnState, database, runtime
from agentcore.engine import loop
from agentcore.events.log import Journal
from agentcore.models import AgentContext, AgentSession, SessionEvent, ToolApproval, ToolCall
from agentcore.testing import TESTING_AGENT, assert_invariants, calls, make_user, run_turns
from agentcore.testing.agents import ledger
from agentcore.turns import leases, steps

pytestmark = pytest.mark.django_db(transaction=True)

DECIDE = "agentcore.decide_toolapproval"
# What the model says, by how often it has spoken in this conversation: a reply that was lost is given again.
SCRIPT = [calls(("charge", {"n": 5}), ("lookup", {"q": "a"})), calls(("pay", {"amount": 1, "to": "x"})), "Done."]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    ledger.clear()
    monkeypatch.setattr(database, "PAUSES", (0.0, 0.0, 0.0))
    monkeypatch.setattr(loop, "LONG_PAUSES", (0.0, 0.0, 0.0))


class Refusals:
    """Refuses changes right before their commit; counts those that were tried."""

    def __init__(self, at=()):
        self.at, self.count = set(at), 0

    @contextmanager
    def in_force(self, monkeypatch):
        flush = Journal.flush

        def refuse(journal):
            flush(journal)
            self.count += 1
            if self.count - 1 in self.at:
                raise OperationalError("database is locked")

        with monkeypatch.context() as patched:
            patched.setattr(Journal, "flush", refuse)
            yield self


def tell(scripted, reviewer):
    """Have a turn with two free calls and a gated one worked to its end."""
    ledger.clear()
    scripted(lambda request: SCRIPT[sum(message.role == "assistant" for message in request.messages)])
    session = runtime.create_session(TESTING_AGENT)
    turn = runtime.enqueue(session.session_id, "go").turn
    run_turns()
    for approval in ToolApproval.objects.pending().order_by("pk"):
        seen = approval.kind == "outcome" and _took_effect(approval.call)
        runtime.respond(approval.pk, reviewer, "seen") if seen else runtime.approve(approval.pk, reviewer)
        run_turns()
    return runtime.result(turn.execution_id)


def _took_effect(call):
    return any(entry[0] == call.tool for entry in ledger.entries)


@pytest.fixture
def changes(scripted, monkeypatch):
    """Return how many changes the story makes when nothing is refused."""
    with Refusals().in_force(monkeypatch) as counted:
        tell(scripted, make_user("first", permissions=(DECIDE,)))
    return counted.count


def test_a_change_that_is_refused_once_is_made_the_next_time(scripted, monkeypatch, changes):
    reviewer = make_user("reviewer", permissions=(DECIDE,))
    assert changes > 8
    for at in range(changes):
        with Refusals({at}).in_force(monkeypatch):
            result = tell(scripted, reviewer)
        assert (result.state, result.response) == (TurnState.COMPLETED, "Done."), at
        assert Counter(ledger.entries) == {("charge", 5): 1, ("lookup", "a"): 1, ("pay", 1, "x"): 1}, at
        assert_invariants()
    assert not ToolApproval.objects.filter(kind="outcome").exists()
    assert not AgentContext.objects.filter(takeovers__gt=0).exists()


def test_a_database_that_stays_away_longer_than_a_change_is_tried_loses_nothing(scripted, monkeypatch, changes):
    """What a call returned may be lost with the change that would keep it: then a person is asked."""
    reviewer = make_user("reviewer", permissions=(DECIDE,))
    # The first changes and the decisions are of people: they are told, and try again themselves.
    for at in range(2, changes, 1 if connection.vendor == "sqlite" else 4):
        refused = Refusals(range(at, at + 1 + len(database.PAUSES)))
        with refused.in_force(monkeypatch):
            try:
                result = tell(scripted, reviewer)
            except OperationalError:
                # A claim or a decision that was refused is made again by whoever made it.
                result = AgentContext.objects.latest("pk")
        run_turns()
        while (waiting := ToolApproval.objects.pending().first()) is not None:
            is_known = waiting.kind == "outcome" and _took_effect(waiting.call)
            runtime.respond(waiting.pk, reviewer, "seen") if is_known else runtime.approve(waiting.pk, reviewer)
            run_turns()
        result = runtime.result(result.execution_id)
        assert (result.state, result.response) == (TurnState.COMPLETED, "Done."), at
        effects = Counter(ledger.entries)
        assert (effects["charge", 5], effects["pay", 1, "x"]) == (1, 1), at
        assert_invariants()


def test_a_turn_whose_database_is_gone_is_left_to_its_lease(scripted, monkeypatch, clock):
    scripted(lambda request: "Done.")
    turn = runtime.enqueue(runtime.create_session(TESTING_AGENT).session_id, "go").turn
    with monkeypatch.context() as patched:
        patched.setattr(steps.lifecycle, "complete", _refuse)
        with pytest.raises(OperationalError):
            loop.run(turn.execution_id)
    turn.refresh_from_db()
    assert turn.state == TurnState.THINKING
    assert_invariants()
    clock.advance(leases.duration().total_seconds() + 1)
    assert runtime.recover()["taken_over"] == 1
    run_turns()
    assert runtime.result(turn.execution_id).state == TurnState.COMPLETED
    assert_invariants()


def _refuse(*args, **kwargs):
    raise OperationalError("server closed the connection unexpectedly")


@pytest.mark.services("postgres")
def test_a_connection_that_the_server_ends_costs_a_turn_nothing(scripted, monkeypatch):
    scripted([SCRIPT[0], "Done."])
    turn = runtime.enqueue(runtime.create_session(TESTING_AGENT).session_id, "go").turn
    flush, ended = Journal.flush, []

    def end_the_connection(journal):
        if len(ended) < 3 and not journal.session.pk < 0:
            ended.append(connection.connection)
            connection.connection.close()
        flush(journal)

    monkeypatch.setattr(Journal, "flush", end_the_connection)
    run_turns()
    result = runtime.result(turn.execution_id)
    assert (len(ended), result.state, result.response) == (3, TurnState.COMPLETED, "Done.")
    assert ledger.entries == [("charge", 5), ("lookup", "a")]
    assert AgentContext.objects.get().takeovers == 0
    assert_invariants()


def test_a_request_of_the_api_is_tried_again_too(monkeypatch):
    client = APIClient()
    client.force_authenticate(make_user("owner"))
    session = client.post("/api/sessions/", {"agent": TESTING_AGENT}, format="json").data
    path = f"/api/sessions/{session['session_id']}/"
    with Refusals({0, 1}).in_force(monkeypatch):
        assert client.post(f"{path}turns/", {"message": "hello"}, format="json").status_code == 202
    with Refusals({0}).in_force(monkeypatch):
        assert client.post(f"{path}cancel/").status_code == 202
    with Refusals({0}).in_force(monkeypatch):
        assert client.post(f"{path}archive/").status_code == 200
    assert_invariants()


def test_a_change_in_a_callers_transaction_is_not_tried_again(monkeypatch):
    session = runtime.create_session(TESTING_AGENT)
    with (
        Refusals({0}).in_force(monkeypatch) as refused,
        pytest.raises(OperationalError),
        database.atomic(),
    ):
        runtime.enqueue(session.session_id, "hello")
    assert refused.count == 1
    assert not AgentContext.objects.exists()
    assert AgentSession.objects.get().last_sequence == SessionEvent.objects.count()


def test_prv_20_a_result_that_the_database_does_not_take_is_kept_as_a_note(scripted, monkeypatch):
    scripted([calls(("charge", {"n": 5})), "Done."])
    store = steps.calls.store_result

    def refuse_results(journal, turn, call, status, *, result=None, **facts):
        if isinstance(result, dict) and "omitted" not in result:
            raise DataError("string too long")
        store(journal, turn, call, status, result=result, **facts)

    monkeypatch.setattr(steps.calls, "store_result", refuse_results)
    result = runtime.execute(TESTING_AGENT, "go")
    assert result.state == TurnState.COMPLETED
    call = ToolCall.objects.get()
    assert call.status == "completed"
    assert "that the database did not take" in call.result["omitted"]
    assert ledger.entries == [("charge", 5)]
    assert_invariants()
