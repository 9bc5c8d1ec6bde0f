"""Transactions: what joins the caller's, what refuses to, and that none is open while models and tools work."""

import threading

import pytest
from django.db import OperationalError, connections, transaction
from django.test import TestCase

from agentcore import ToolContext, TurnState, agent, database, dispatch, runtime, tool
from agentcore.agents.registry import registry
from agentcore.engine import loop
from agentcore.exceptions import Conflict, PermissionDenied
from agentcore.models import AgentContext, AgentSession, ContextEntry, SessionEvent, ToolApproval, ToolCall
from agentcore.testing import (
    TESTING_AGENT,
    ScriptedProvider,
    assert_invariants,
    calls,
    make_session,
    make_turn,
    make_user,
    run_turns,
)
from agentcore.testing.agents import ledger
from agentcore.turns import lifecycle, sessions

pytestmark = pytest.mark.django_db(transaction=True)

AGENT = "watching-agent"
LONG = 30

# What happens while user code works, by its name.
meanwhile = {}


def look(name):
    meanwhile.get("anything", lambda name: None)(name)


def rule(arguments, ctx):
    look("rule")
    return True


@agent(name=AGENT, model="scripted:any")
class WatchingAgent:
    @tool(description="Free", idempotent=True)
    def free(self, ctx: ToolContext) -> str:
        look("free tool")
        return "done"

    @tool(description="Free")
    async def free_async(self) -> str:
        look("async tool")
        return "done"

    @tool(description="Gated", requires_approval=rule)
    def gated(self) -> str:
        look("gated tool")
        return "done"

    @gated.preview
    def _(self) -> str:
        look("preview")
        return "shown"

    @tool(description="Remember")
    def remember(self, key: str, ctx: ToolContext) -> str:
        ctx.working_memory[key] = key
        look("remember")
        return "done"


registry.unregister(AGENT)


@pytest.fixture(autouse=True)
def _agent():
    runtime.register(WatchingAgent)
    meanwhile.clear()
    ledger.clear()
    yield
    registry.unregister(AGENT)


@pytest.fixture
def reviewer():
    return make_user("reviewer", permissions=("agentcore.decide_toolapproval",))


@pytest.fixture
def sent(monkeypatch):
    found = []
    monkeypatch.setattr(dispatch, "_send", found.append)
    return found


def rows():
    """All that a change could have written."""
    return {
        model.__name__: list(model.objects.order_by("pk").values())
        for model in (AgentSession, AgentContext, ToolCall, ToolApproval, SessionEvent)
    }


# Verbs that work for long refuse


def test_execute_resume_and_send_refuse_to_work_inside_a_transaction(scripted):
    provider = scripted(["never"])
    turn = make_turn()
    before = rows()
    for verb in (
        lambda: runtime.execute(TESTING_AGENT, "hi"),
        lambda: runtime.resume(turn.execution_id),
        lambda: runtime.send(turn.session.session_id, "hi"),
    ):
        with pytest.raises(RuntimeError, match="open transaction"), transaction.atomic():
            verb()
    assert rows() == before
    assert provider.call_count == 0


def test_a_refused_execute_leaves_the_callers_transaction_usable(scripted):
    scripted(["never"])
    with transaction.atomic():
        with pytest.raises(RuntimeError):
            runtime.execute(TESTING_AGENT, "hi")
        kept = make_turn()
    kept.refresh_from_db()
    assert kept.state == TurnState.QUEUED


# Short verbs join the caller's


def test_dur_19_what_is_stored_in_a_transaction_is_there_with_it_or_not_at_all(sent, make_session):
    session, before = make_session(), rows()
    with transaction.atomic():
        runtime.enqueue(session.session_id, "hi")
        runtime.create_session(TESTING_AGENT)
        assert sent == []
        transaction.set_rollback(True)
    assert rows() == before
    with transaction.atomic():
        turn = runtime.enqueue(session.session_id, "hi").turn
        assert not seen_elsewhere(turn)
        assert sent == []
    assert seen_elsewhere(turn)
    assert sent == [str(turn.execution_id)]
    assert_invariants()


def seen_elsewhere(turn):
    found = []

    def see():
        try:
            found.append(AgentContext.objects.filter(execution_id=turn.execution_id).exists())
        finally:
            connections.close_all()

    thread = threading.Thread(target=see)
    thread.start()
    thread.join(LONG)
    return found == [True]


def test_dur_19_a_decision_that_is_rolled_back_was_never_made(sent, reviewer, make_approval):
    approval = make_approval()
    sent.clear()
    before = rows()
    for decide in (
        lambda: runtime.approve(approval.pk, reviewer),
        lambda: runtime.reject(approval.pk, reviewer, reason="no"),
        lambda: runtime.respond(approval.pk, reviewer, "paid by hand"),
        lambda: runtime.cancel(approval.session.session_id),
    ):
        with transaction.atomic():
            decide()
            transaction.set_rollback(True)
    assert rows() == before
    assert sent == []
    assert approval.decisions.count() == 0
    with transaction.atomic():
        runtime.approve(approval.pk, reviewer)
        assert sent == []
    assert sent == [str(approval.turn.execution_id)]
    assert_invariants()


def test_two_decisions_in_one_transaction_wake_the_turn_once(scripted, sent, reviewer):
    scripted([calls(("pay", {"amount": 1, "to": "x"}), ("pay", {"amount": 2, "to": "y"})), "Paid."])
    result = runtime.execute(TESTING_AGENT, "pay")
    with transaction.atomic():
        for approval in ToolApproval.objects.order_by("pk"):
            runtime.approve(approval.pk, reviewer)
    assert sent == [result.execution_id]
    assert SessionEvent.objects.filter(type="turn.resumed").count() == 1
    run_turns()
    assert ledger.entries == [("pay", 1, "x"), ("pay", 2, "y")]
    assert_invariants()


def test_several_changes_of_one_session_in_one_transaction_are_numbered_in_a_row(make_session):
    session = make_session()
    with transaction.atomic():
        runtime.enqueue(session.session_id, "one")
        runtime.cancel(session.session_id)
        runtime.enqueue(session.session_id, "two")
    numbers = list(session.events.order_by("sequence").values_list("sequence", flat=True))
    assert numbers == list(range(1, len(numbers) + 1))
    assert_invariants()


def test_an_inner_block_that_is_rolled_back_leaves_no_gap(make_session):
    session = make_session()
    with transaction.atomic():
        runtime.enqueue(session.session_id, "one")
        with transaction.atomic():
            runtime.cancel(session.session_id)
            transaction.set_rollback(True)
        runtime.cancel(session.session_id)
    assert session.events.filter(type="turn.cancelled").count() == 1
    assert_invariants()


def test_a_refused_attempt_is_kept_although_it_raises(make_approval):
    approval = make_approval()
    nobody = make_user("nobody")
    with pytest.raises(PermissionDenied):
        runtime.approve(approval.pk, nobody)
    with transaction.atomic(), pytest.raises(PermissionDenied):
        runtime.reject(approval.pk, nobody)
    refused = list(approval.decisions.order_by("pk").values_list("verdict", "refusal", "actor_name"))
    assert refused == [("approve", "permission_denied", "nobody"), ("reject", "permission_denied", "nobody")]
    approval.refresh_from_db()
    assert approval.status == "pending"


def test_apr_12_an_expiry_that_a_decision_finds_is_kept_although_it_raises(clock, reviewer, make_approval):
    approval = make_approval()
    clock.advance(8 * 86_400)
    with pytest.raises(Conflict, match="expired"):
        runtime.approve(approval.pk, reviewer)
    approval.refresh_from_db()
    assert (approval.status, approval.turn.state) == ("expired", "queued")
    assert_invariants()


def test_dur_29_a_pause_that_cannot_be_written_shows_nobody_a_request(scripted, monkeypatch, clock):
    told = []
    runtime.on_any(told.append)

    def fail(*args, **kwargs):
        raise OperationalError("disk full")

    scripted([calls(("pay", {"amount": 1, "to": "x"}))])
    monkeypatch.setattr(database, "PAUSES", ())
    monkeypatch.setattr(loop, "LONG_PAUSES", ())
    try:
        with monkeypatch.context() as broken:
            broken.setattr(lifecycle, "suspend", fail)
            with pytest.raises(OperationalError):
                runtime.execute(TESTING_AGENT, "pay")
    finally:
        runtime.off("*", told.append)
    assert not ToolApproval.objects.exists()
    assert "tool.approval.requested" not in {event.type for event in told}
    assert [event.sequence for event in told] == list(range(1, SessionEvent.objects.count() + 1))
    assert_invariants()
    # Whoever takes the turn over shows it.
    clock.advance(3_600)
    runtime.recover()
    run_turns()
    assert AgentContext.objects.get().state == TurnState.WAITING_FOR_APPROVAL
    assert ToolApproval.objects.pending().count() == 1
    assert ledger.entries == []
    assert_invariants()


# Nothing is held while user code works


def test_dur_21_no_transaction_and_no_connection_is_held_while_models_and_tools_work(scripted, reviewer):
    mine, seen = connections["default"], {}

    def note(name):
        seen.setdefault(name, set()).add((mine.connection is None, mine.in_atomic_block))

    def answer(request):
        note("model")
        if len(request.messages) == 2:
            return calls(("free", {}), ("free_async", {}), ("gated", {}))
        return "Done."

    meanwhile["anything"] = note
    scripted(answer)
    result = runtime.execute(AGENT, "hi")
    assert mine.connection is not None  # so that it can be seen to be given back
    runtime.approve(result.pending_approvals[0].id, reviewer)
    assert runtime.resume(result.execution_id).response == "Done."
    names = {"model", "free tool", "async tool", "rule", "preview", "gated tool"}
    assert seen == {name: {(True, False)} for name in names}


def test_dur_21_others_read_rename_and_cancel_the_session_while_the_model_works(scripted):
    session = make_session(TESTING_AGENT)

    def answer(request):
        # On a server this waits for ever if the worker holds the row, on SQLite until "database is locked".
        sessions.change(sessions.get(session.session_id), title="renamed")
        runtime.cancel(session.session_id)
        return "Done."

    scripted(answer)
    result = runtime.execute(TESTING_AGENT, "hi", session_id=session.session_id)
    assert result.state == TurnState.CANCELLED
    session.refresh_from_db()
    assert session.title == "renamed"


def test_dur_25_what_others_change_while_a_worker_works_is_not_lost(scripted):
    session = make_session(AGENT, title="a", metadata={"x": 1})

    def change(name):
        meanwhile.clear()
        sessions.change(sessions.get(session.session_id), title="b", metadata={"x": 1, "tag": True})
        turn = AgentContext.objects.get()
        ContextEntry.objects.create(
            turn=turn,
            kind="working_memory",
            key="theirs",
            key_digest="d",
            value="kept",
            created_at=turn.created_at,
            updated_at=turn.created_at,
        )

    meanwhile["anything"] = change
    scripted([calls(("remember", {"key": "mine"}), ("remember", {"key": "too"})), "Done."])
    assert runtime.execute(AGENT, "hi", session_id=session.session_id).response == "Done."
    session.refresh_from_db()
    assert (session.title, session.metadata) == ("b", {"x": 1, "tag": True})
    assert dict(ContextEntry.objects.values_list("key", "value")) == {"mine": "mine", "too": "too", "theirs": "kept"}
    assert_invariants()


def test_a_waiting_turn_holds_no_connection_and_no_thread(scripted, make_approval):
    make_approval()
    runtime.wait(AgentContext.objects.get().execution_id, timeout=0)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("agentcore-tool")]


class InATestCaseTests(TestCase):
    """The innermost block is the test's own: that one is no transaction of the caller's."""

    def test_execute_works_and_leaves_the_connection_alone(self):
        connection = connections["default"].connection
        with ScriptedProvider(["Done."]).installed():
            assert runtime.execute(TESTING_AGENT, "hi").response == "Done."
        assert connections["default"].connection is connection

    def test_execute_inside_a_block_of_the_test_raises(self):
        with pytest.raises(RuntimeError, match="open transaction"), transaction.atomic():
            runtime.execute(TESTING_AGENT, "hi")

    def test_a_rolled_back_block_leaves_nothing(self):
        session = make_session()
        with transaction.atomic():
            runtime.enqueue(session.session_id, "hi")
            transaction.set_rollback(True)
        assert not AgentContext.objects.exists()
        assert_invariants()
