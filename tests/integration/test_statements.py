"""What a step writes, and how: straight statements, the session's row first, and no more of them than needed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.contrib.contenttypes.models import ContentType
from django.db import IntegrityError, connection, connections
from django.test.utils import CaptureQueriesContext

from agentcore import ApprovalPolicy, agent, canonical, clock, database, runtime, tool
from agentcore.agents.registry import registry
from agentcore.events import log
from agentcore.events.kinds import EventType
from agentcore.exceptions import NotFound
from agentcore.models import (
    AgentContext,
    AgentSession,
    ContextEntry,
    EntryKind,
    SessionEvent,
    ToolApproval,
    ToolOverride,
    statements,
)
from agentcore.states import TurnState
from agentcore.testing import assert_invariants, calls, make_session, make_turn, make_user
from agentcore.turns import lifecycle

pytestmark = pytest.mark.django_db

# What opens and closes a transaction is no statement.
BRACKETS = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE")
NAME = "counted"


@pytest.fixture
def counted():
    @agent(name=NAME, model="scripted:x")
    class Counted:
        @tool(description="Looks something up", idempotent=True)
        def lookup(self, q: str) -> str:
            return q

        @tool(description="Pays")
        def pay(self, n: int) -> int:
            return n

        @tool(description="Sends", requires_approval=True)
        def send(self, n: int) -> int:
            return n

        @tool(description="Wires", requires_approval=True, approval=ApprovalPolicy(votes=2))
        def wire(self, n: int) -> int:
            return n

    yield NAME
    registry.unregister(NAME)


# The statements themselves


def entry(turn, key, value):
    return ContextEntry(
        turn=turn,
        kind=EntryKind.FACT,
        key=key,
        key_digest=canonical.text_digest(key),
        value=value,
        created_at=clock.now(),
        updated_at=clock.now(),
    )


@pytest.mark.parametrize("value", [None, 1, 1.5, "é 漢 <b>", [1, {"a": None}], {"k": "v'\"\\%s"}, True])
def test_a_row_is_inserted_as_django_would(value):
    turn = make_turn()
    ours, djangos = entry(turn, "ours", value), entry(turn, "djangos", value)
    statements.insert([ours])
    djangos.save()
    assert ours.pk is not None
    assert not ours._state.adding
    assert ContextEntry.objects.get(pk=ours.pk).value == ContextEntry.objects.get(pk=djangos.pk).value == value


def test_each_of_several_rows_gets_its_own_key():
    turn = make_turn()
    rows = [entry(turn, f"k{number}", number) for number in range(300)]
    statements.insert(rows)
    assert {row.pk: row.value for row in rows} == dict(ContextEntry.objects.values_list("pk", "value"))
    statements.insert([])


def test_a_constraint_refuses_a_row_as_it_would_any_other():
    turn = make_turn()
    statements.insert([entry(turn, "k", 1)])
    with pytest.raises(IntegrityError), database.atomic():
        statements.insert([entry(turn, "k", 2)])


def test_an_update_names_its_rows_and_tells_how_many_there_were():
    turn, other = make_turn(), make_turn()
    mine = {"pk": turn.pk, "state": ["queued", "thinking"], "error": None}
    assert statements.update(AgentContext, mine, response="%s", error={"code": "x"}, metadata={"a": [1]}) == 1
    assert statements.update(AgentContext, mine, response="again") == 0
    turn.refresh_from_db()
    other.refresh_from_db()
    assert (turn.response, turn.error, turn.metadata) == ("%s", {"code": "x"}, {"a": [1]})
    assert (other.response, other.error) == (None, None)
    # A value that is there already counts as well: the row was found.
    assert statements.update(AgentContext, {"pk": turn.pk}, response="%s") == 1
    assert statements.update(AgentContext, {"pk": turn.pk}, error=None) == 1
    assert AgentContext.objects.filter(pk=turn.pk, error__isnull=True).exists()


def test_an_update_adds_and_takes_the_databases_time():
    turn = make_turn()
    statements.update(
        AgentContext, {"pk": turn.pk}, input_tokens=statements.Plus(3), worked_seconds=statements.Plus(1.5)
    )
    statements.update(AgentContext, {"pk": turn.pk}, input_tokens=statements.Plus(4))
    statements.update(AgentContext, {"pk": turn.pk}, lease_expires_at=clock.db_now(plus=timedelta(hours=1)))
    turn.refresh_from_db()
    assert (turn.input_tokens, turn.worked_seconds) == (7, 1.5)
    assert timedelta(minutes=59) < turn.lease_expires_at - clock.now() < timedelta(minutes=61)


def test_whether_a_table_has_rows_is_asked_cheaply(django_assert_num_queries):
    with django_assert_num_queries(2):
        assert not statements.has_rows(ToolOverride)
        assert not statements.has_rows(SessionEvent)
    make_session()
    assert statements.has_rows(SessionEvent)


# One change in one go


def test_what_others_wrote_meanwhile_keeps_its_numbers():
    known = make_session()
    with log.writing(known.pk) as journal:
        journal.append("theirs")
    with log.in_one_go(known) as journal:
        journal.append("mine")
        journal.append("mine")
    told = list(SessionEvent.objects.filter(session=known).order_by("sequence").values_list("sequence", "type"))
    assert told == [(1, EventType.SESSION_STARTED), (2, "theirs"), (3, "mine"), (4, "mine")]
    stored = AgentSession.objects.get(pk=known.pk)
    assert (known.last_sequence, known.last_hash) == (stored.last_sequence, stored.last_hash) == (4, stored.last_hash)
    assert_invariants()


def test_a_row_that_is_known_is_read_again_only_where_its_log_ends_and_only_if_that_moved():
    known = make_session()
    for theirs in (True, False):
        if theirs:
            with log.writing(known.pk) as journal:
                journal.append("theirs")
        with CaptureQueriesContext(connection) as captured, log.writing(known) as journal:
            journal.append("mine")
        read = [query["sql"] for query in captured.captured_queries if query["sql"].startswith("SELECT")]
        assert len(read) == theirs
    told = SessionEvent.objects.filter(session=known).order_by("sequence").values_list("type", flat=True)
    assert list(told) == [EventType.SESSION_STARTED, "theirs", "mine", "mine"]
    assert known.last_sequence == AgentSession.objects.get(pk=known.pk).last_sequence == 4
    assert_invariants()


def test_a_session_that_is_gone_is_not_found_by_its_row_either():
    session = make_session()
    AgentSession.objects.filter(pk=session.pk).delete()
    with pytest.raises(NotFound), database.atomic(), log.writing(session):
        pytest.fail("there is nothing to write to")


def test_a_turn_that_moved_since_it_was_read_moves_on_from_where_it_is():
    turn = make_turn()
    AgentContext.objects.filter(pk=turn.pk).update(state=TurnState.WAITING_FOR_APPROVAL)
    assert turn.state == TurnState.QUEUED
    with log.writing(turn.session_id) as journal:
        lifecycle.wake(journal, turn, reason="approved")
    told = SessionEvent.objects.filter(turn_id=turn.execution_id, type=EventType.STATE_CHANGED).last()
    assert (told.data["previous"], told.data["new"]) == (TurnState.WAITING_FOR_APPROVAL, TurnState.QUEUED)


def test_nothing_is_written_before_the_block_ends_and_nothing_at_all_when_it_raises():
    session, seen = make_session(), []
    with log.in_one_go(session) as journal:
        journal.write(lambda: seen.append(SessionEvent.objects.count()))
        journal.append("one")
        assert seen == []
    assert seen == [1]  # the rows come before their event
    with pytest.raises(NotFound):
        _write(session, fails_at="the block")
    with pytest.raises(NotFound), database.atomic():
        _write(session, fails_at="a row")
    assert SessionEvent.objects.filter(session=session).count() == 2
    assert AgentSession.objects.get(pk=session.pk).last_sequence == 2


def _write(session, *, fails_at):
    with log.in_one_go(session) as journal:
        journal.append("two")
        journal.write(_refuse)
        if fails_at == "the block":
            _refuse()


def _refuse():
    raise NotFound("no")


# How many


def sent_by(work):
    with CaptureQueriesContext(connection) as captured:
        work()
    sql = [query["sql"].lstrip().upper() for query in captured.captured_queries]
    return sum(not text.startswith(BRACKETS) for text in sql), sum(text.startswith("INSERT") for text in sql)


def test_a_step_with_a_call_takes_eleven_statements_and_another_call_five(scripted, counted):
    """The goal is eight: each of the two transactions updates the session, the turn, the step and the call."""

    def run(*steps):
        scripted([*(calls(*step) for step in steps), "Done."])
        sent, _ = sent_by(lambda: runtime.execute(counted, "go"))
        return sent

    step, pay = [("lookup", {"q": "a"})], ("pay", {"n": 1})
    run(step)  # its revision is stored at the first use
    assert run(step, step) - run(step) == 11
    assert run([*step, pay]) - run(step) == 5


@pytest.fixture
def reviewers():
    people = [make_user(f"reviewer-{number}", permissions=("agentcore.decide_toolapproval",)) for number in range(2)]
    for person in people:
        assert person.has_perm("agentcore.decide_toolapproval")
    # Django reads a person's permissions once, and what it calls a model in a process once.
    ContentType.objects.get_for_model(ToolApproval, for_concrete_model=False)
    return people


def selects(work):
    with CaptureQueriesContext(connection) as captured:
        work()
    return sum(query["sql"].lstrip().upper().startswith("SELECT") for query in captured.captured_queries)


@pytest.fixture
def paused(scripted, counted, reviewers):
    """Return what brings a turn to its pause: all its calls wait for somebody."""

    def until(*asked):
        scripted(lambda request: calls(*asked) if request.messages[-1].role == "user" else "Done.")
        return lambda: runtime.execute(counted, "go")

    return until


def test_a_turn_with_an_approval_takes_fifty_three_statements_thirteen_of_them_reads(paused, reviewers):
    start = paused(("send", {"n": 1}))
    start()  # its revision is stored at the first use
    found, sent, read = [], {}, {}
    parts = {
        "pause": lambda: found.append(start()),
        "decide": lambda: runtime.approve(found[-1].pending_approvals[0].id, reviewers[0]),
        "go on": lambda: found.append(runtime.resume(found[-1].execution_id)),
    }
    for name, part in parts.items():
        sent[name], _ = sent_by(part)
    assert found[-1].state == TurnState.COMPLETED
    for name, part in parts.items():
        read[name] = selects(part)
    assert sent == {"pause": 19, "decide": 10, "go on": 24}
    assert read == {"pause": 4, "decide": 2, "go on": 7}
    assert_invariants()


def test_what_a_worker_tells_of_its_turn_is_what_the_rows_say(paused, reviewers):
    def told(result):
        return replace(result, duration=None)

    waiting = paused(("send", {"n": 1}), ("pay", {"n": 2}), ("wire", {"n": 3}))()
    assert [item.tool for item in waiting.pending_approvals] == ["send", "wire"]
    assert told(waiting) == told(runtime.result(waiting.execution_id))
    runtime.reject(waiting.pending_approvals[0].id, reviewers[0], reason="no")
    for person in reviewers:
        runtime.approve(waiting.pending_approvals[1].id, person)
    ended = runtime.resume(waiting.execution_id)
    assert [call.status for call in ended.steps[0].tool_calls] == ["rejected", "completed", "completed"]
    assert ended == runtime.result(waiting.execution_id)


@pytest.mark.django_db(transaction=True)
def test_what_is_decided_while_a_turn_pauses_is_in_what_its_worker_tells(paused, reviewers):
    def decide(event):
        runtime.reject(event.data["approval_id"], reviewers[0], reason="no")

    start = paused(("send", {"n": 1}), ("wire", {"n": 2}))
    runtime.on(EventType.TOOL_APPROVAL_REQUESTED, decide)
    try:
        result = start()
    finally:
        runtime.off(EventType.TOOL_APPROVAL_REQUESTED, decide)
    assert [call.status for call in result.steps[0].tool_calls] == ["rejected", "rejected"]
    assert replace(result, duration=None) == replace(runtime.result(result.execution_id), duration=None)


def test_asking_about_another_call_takes_no_more_statements(paused):
    one, more = paused(("send", {"n": 1})), [("send", {"n": number}) for number in range(5)]
    one()
    first, _ = sent_by(one)
    assert sent_by(paused(*more))[0] == first


def test_a_vote_among_several_costs_one_read_more_whatever_was_voted_before(paused, reviewers):
    asked = paused(("wire", {"n": 1}))().pending_approvals[0].id
    assert [selects(lambda by=person: runtime.approve(asked, by)) for person in reviewers] == [3, 3]
    assert_invariants()


def test_the_same_decision_again_reads_and_changes_nothing(paused, reviewers):
    asked = paused(("send", {"n": 1}))().pending_approvals[0].id
    runtime.approve(asked, reviewers[0])
    sent, inserted = sent_by(lambda: runtime.approve(asked, reviewers[0]))
    assert (sent, inserted) == (4, 0)  # whose session it is, the lock, the request, its votes


def test_what_a_turn_writes_does_not_grow_with_the_session(scripted, counted):
    scripted(lambda request: "Done.")
    session = make_session(counted)
    _, first = sent_by(lambda: runtime.execute(counted, "go", session_id=session.session_id))
    for _ in range(5):
        runtime.execute(counted, "go", session_id=session.session_id)
    _, later = sent_by(lambda: runtime.execute(counted, "go", session_id=session.session_id))
    assert first == later


# Connections


@pytest.mark.django_db(transaction=True)
def test_a_connection_is_not_held_while_something_else_works_and_is_there_again_afterwards():
    mine = connections["default"]
    mine.ensure_connection()
    with database.given_back():
        assert mine.connection is None
    assert AgentSession.objects.count() == 0
    with database.given_back():
        assert AgentSession.objects.count() == 0  # whoever asks in between gets another one
    assert AgentSession.objects.count() == 0
    mine.close()
    with database.given_back():
        assert mine.connection is None
    assert mine.connection is None
