"""Races we claim to survive: real threads, real commits, each thread with a connection of its own.

Each race is run over and over, on the database that is configured: a few rounds as a sample, more with `-m slow`.
"""

import sys
import threading
from collections import Counter
from functools import partial

import pytest
from django.db import connections

from agentcore import AgentError, TurnState, runtime
from agentcore.agents.definition import AgentDefinition
from agentcore.engine import loop
from agentcore.events import log
from agentcore.exceptions import Conflict
from agentcore.models import AgentContext, AgentRevision, AgentSession, ApprovalDecision, SessionEvent, ToolApproval
from agentcore.testing import (
    TESTING_AGENT,
    ScriptedProvider,
    assert_invariants,
    calls,
    make_approval,
    make_session,
    make_turn,
    make_user,
    run_turns,
)
from agentcore.testing.agents import ledger
from agentcore.turns import lifecycle, recovery, revisions

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]

LONG = 60
MANY = (pytest.mark.slow, pytest.mark.timeout(1800))
SAMPLE = [pytest.param(6, id="6 rounds"), pytest.param(150, id="150 rounds", marks=MANY)]
BIG_SAMPLE = [pytest.param(15, id="15 rounds"), pytest.param(300, id="300 rounds", marks=MANY)]


@pytest.fixture(autouse=True)
def _impatient():
    """Let threads change places as often as can be: a race that is there is met sooner."""
    ledger.clear()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def reviewers():
    return [make_user(f"reviewer-{n}", permissions=("agentcore.decide_toolapproval",)) for n in range(2)]


def race(*functions):
    """Run the functions at once, each in a thread, and return what each returned or raised."""
    barrier, outcomes = threading.Barrier(len(functions)), [None] * len(functions)

    def run(index, function):
        try:
            # The connection first: opening it takes longer than the race.
            connections["default"].ensure_connection()
            barrier.wait(LONG)
            outcomes[index] = function()
        except Exception as error:
            outcomes[index] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=item) for item in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert not any(thread.is_alive() for thread in threads)
    return outcomes


def refusals(outcomes):
    """Return the refusals among the outcomes; anything else that was raised fails the test."""
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, AgentError):
            raise AssertionError(f"{type(outcome).__name__}: {outcome}") from outcome
    return [outcome for outcome in outcomes if isinstance(outcome, AgentError)]


def kinds(turn):
    return Counter(SessionEvent.objects.filter(turn_id=turn.execution_id).values_list("type", flat=True))


# Turns


@pytest.mark.parametrize("rounds", SAMPLE)
def test_dur_10_of_two_messages_at_once_one_is_taken_and_one_refused(rounds):
    for _ in range(rounds):
        session = make_session()
        outcomes = race(*(partial(runtime.enqueue, session.session_id, text) for text in "AB"))
        [refused] = refusals(outcomes)
        assert isinstance(refused, Conflict)
        assert AgentContext.objects.filter(session=session).count() == 1
        assert AgentContext.objects.filter(active_session=session).count() == 1
    assert_invariants()


def test_dur_10_of_many_workers_and_messages_never_two_turns_of_a_session_work_at_once():
    """Measured inside the model: how many turns of the session are there at the same time."""
    session, lock, inside, most = make_session(), threading.Lock(), [0], [0]

    def answer(request):
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        with lock:
            inside[0] -= 1
        return "ok"

    def post_and_work():
        worked = 0
        while worked < 3:
            try:
                turn = runtime.enqueue(session.session_id, "hi").turn
            except Conflict:
                continue
            worked += loop.run(turn.execution_id)

    with ScriptedProvider(answer).installed() as provider:
        assert refusals(race(*[post_and_work] * 3)) == []
    assert most == [1]
    assert provider.call_count == AgentContext.objects.count() == 9
    provider.assert_valid()
    assert_invariants()


@pytest.mark.parametrize("rounds", SAMPLE)
def test_dur_12_ten_copies_of_a_message_are_one_turn(rounds):
    for number in range(rounds):
        session = make_session()
        post = partial(runtime.enqueue, session.session_id, "hi", idempotency_key=f"k{number}")
        outcomes = race(*[post] * 10)
        assert refusals(outcomes) == []
        assert len({outcome.turn.pk for outcome in outcomes}) == 1
        assert sorted(outcome.duplicate for outcome in outcomes) == [False] + [True] * 9
        assert kinds(outcomes[0].turn)["turn.input"] == 1
    assert_invariants()


@pytest.mark.parametrize("rounds", SAMPLE)
def test_dur_12_a_key_with_two_bodies_at_once_is_one_turn_and_one_conflict(rounds):
    for _ in range(rounds):
        session = make_session()
        outcomes = race(
            partial(runtime.enqueue, session.session_id, "one", idempotency_key="k"),
            partial(runtime.enqueue, session.session_id, "two", idempotency_key="k"),
        )
        [refused] = refusals(outcomes)
        assert "idempotency key" in refused.message
        assert AgentContext.objects.filter(session=session).count() == 1
    assert_invariants()


@pytest.mark.parametrize("rounds", SAMPLE)
def test_dur_01_a_task_delivered_twice_is_worked_on_once(rounds):
    with ScriptedProvider(charge_once).installed() as provider:
        for number in range(1, rounds + 1):
            turn = make_turn()
            outcomes = race(*[partial(loop.run, turn.execution_id)] * 3)
            assert refusals(outcomes) == []
            assert sorted(outcomes) == [False, False, True]
            assert loop.run(turn.execution_id) is False
            assert provider.call_count == 2 * number
            assert kinds(turn)["turn.completed"] == 1
    assert ledger.entries == [("charge", 5)] * rounds
    assert_invariants()


def charge_once(request):
    return "Done." if request.messages[-1].role == "tool" else calls(("charge", {"n": 5}))


@pytest.mark.parametrize("rounds", SAMPLE)
def test_a_claim_against_a_cancel(rounds):
    ended = Counter()
    with ScriptedProvider(charge_once).installed():
        for _ in range(rounds):
            turn = make_turn()
            refusals(race(partial(loop.run, turn.execution_id), partial(runtime.cancel, turn.session.session_id)))
            turn.refresh_from_db()
            ended[turn.state] += 1
    assert set(ended) <= {"cancelled", "completed"}
    assert_invariants()


@pytest.mark.parametrize("rounds", SAMPLE)
def test_a_sweep_of_two_processes_takes_a_turn_over_once(rounds, clock):
    for _ in range(rounds):
        turn = make_turn()
        with log.writing(turn.session_id) as journal:
            lifecycle.claim(journal, turn)
        AgentContext.objects.filter(pk=turn.pk).update(lease_expires_at=turn.created_at)
        outcomes = race(*[recovery.settle_abandoned] * 2)
        assert refusals(outcomes) == []
        assert sum(outcomes) == 1
        assert kinds(turn)["turn.resumed"] == 1
        runtime.cancel(turn.session.session_id)
    assert_invariants()


@pytest.mark.parametrize("rounds", SAMPLE)
def test_a_sweep_against_the_slow_worker_it_takes_for_dead(rounds):
    """Whoever is first, the turn is ended once, and the other changes nothing."""
    for _ in range(rounds):
        turn, go_on = make_turn(), threading.Barrier(2)
        with ScriptedProvider(partial(answer_late, turn, go_on)).installed():
            outcomes = race(partial(loop.run, turn.execution_id), partial(sweep_when, go_on))
        assert refusals(outcomes) == []
        with ScriptedProvider(["Done."]).installed():
            run_turns()
        assert kinds(turn)["turn.completed"] == 1
    assert_invariants()


def answer_late(turn, go_on, request):
    AgentContext.objects.filter(pk=turn.pk).update(lease_expires_at=turn.created_at)
    go_on.wait(LONG)
    return "Done."


def sweep_when(go_on):
    go_on.wait(LONG)
    return recovery.settle_abandoned()


# Decisions


def again(turn, rounds):
    """Yield as many times, each time with the rows of the turn's session as they are now."""
    session = AgentSession.objects.get(pk=turn.session_id)
    rows = [
        session,
        AgentContext.objects.get(pk=turn.pk),
        *turn.steps.all(),
        *turn.tool_calls.all(),
        *turn.approvals.all(),
    ]
    steps = [row.pk for row in turn.steps.all()]
    for _ in range(rounds):
        ledger.clear()
        yield
        assert_invariants()
        ApprovalDecision.objects.filter(approval__turn=turn).delete()
        SessionEvent.objects.filter(session=session, sequence__gt=session.last_sequence).delete()
        turn.steps.exclude(pk__in=steps).delete()
        for row in rows:
            row.save()


def state_of(turn):
    return AgentContext.objects.values_list("state", flat=True).get(pk=turn.pk)


def status_of(approval):
    return ToolApproval.objects.values_list("status", flat=True).get(pk=approval.pk)


@pytest.mark.parametrize("rounds", SAMPLE)
def test_apr_05_two_reviewers_approve_at_once(rounds, reviewers):
    approval = make_approval()
    with ScriptedProvider(lambda request: "Paid.").installed():
        for _ in again(approval.turn, rounds):
            outcomes = race(*(partial(runtime.approve, approval.pk, reviewer) for reviewer in reviewers))
            [refused] = refusals(outcomes)
            assert isinstance(refused, Conflict)
            [winner] = ApprovalDecision.objects.exclude(counted_key=None)
            assert winner.actor_name in refused.message
            assert refused.details["status"] == "approved"
            told = kinds(approval.turn)
            assert (told["tool.approval.granted"], told["turn.resumed"]) == (1, 1)
            run_turns()
            assert ledger.entries == [("pay", 10, "acme")]


@pytest.mark.parametrize("rounds", SAMPLE)
def test_apr_05_a_double_click_is_one_decision_and_twice_the_same_answer(rounds, reviewers):
    approval = make_approval()
    for _ in again(approval.turn, rounds):
        outcomes = race(*[partial(runtime.approve, approval.pk, reviewers[0])] * 2)
        assert refusals(outcomes) == []
        assert {outcome.status for outcome in outcomes} == {"approved"}
        assert ApprovalDecision.objects.count() == 1
        assert kinds(approval.turn)["turn.resumed"] == 1


@pytest.mark.parametrize("rounds", BIG_SAMPLE)
def test_apr_05_two_calls_of_one_turn_decided_at_once_always_wake_it_once(rounds, reviewers):
    """Each must see whether the other is decided: if both see "one still waits", nobody wakes the turn."""
    turn = make_turn()
    both = calls(("pay", {"amount": 1, "to": "x"}), ("pay", {"amount": 2, "to": "y"}))
    with ScriptedProvider([both]).installed():
        loop.run(turn.execution_id)
    one, other = ToolApproval.objects.order_by("pk")
    for _ in again(turn, rounds):
        outcomes = race(partial(runtime.approve, one.pk, reviewers[0]), partial(runtime.reject, other.pk, reviewers[1]))
        assert refusals(outcomes) == []
        assert state_of(turn) == TurnState.QUEUED
        assert kinds(turn)["turn.resumed"] == 1


@pytest.mark.parametrize("rounds", SAMPLE)
def test_two_votes_of_a_request_that_needs_two_settle_it_once(rounds, reviewers):
    approval = make_approval()
    ToolApproval.objects.update(votes_needed=2)
    for _ in again(approval.turn, rounds):
        outcomes = race(*(partial(runtime.approve, approval.pk, reviewer) for reviewer in reviewers))
        assert refusals(outcomes) == []
        assert status_of(approval) == "approved"
        assert kinds(approval.turn)["turn.resumed"] == 1


@pytest.mark.parametrize("rounds", SAMPLE)
def test_approve_against_reject(rounds, reviewers):
    approval = make_approval()
    with ScriptedProvider(lambda request: "Done.").installed():
        for _ in again(approval.turn, rounds):
            outcomes = race(
                partial(runtime.approve, approval.pk, reviewers[0]),
                partial(runtime.reject, approval.pk, reviewers[1]),
            )
            assert len(refusals(outcomes)) == 1
            told = kinds(approval.turn)
            assert told["tool.approval.granted"] + told["tool.approval.denied"] == told["turn.resumed"] == 1
            run_turns()
            assert len(ledger.entries) == (status_of(approval) == "approved")


@pytest.mark.parametrize("rounds", SAMPLE)
def test_approve_against_cancel(rounds, reviewers):
    approval = make_approval()
    for _ in again(approval.turn, rounds):
        approved, cancelled = race(
            partial(runtime.approve, approval.pk, reviewers[0]),
            partial(runtime.cancel, approval.session.session_id),
        )
        refusals([approved, cancelled])
        assert not isinstance(cancelled, AgentError)
        # Either the request went with its turn, or the approved turn was cancelled in the queue.
        assert status_of(approval) == ("cancelled" if isinstance(approved, Conflict) else "approved")
        assert state_of(approval.turn) == TurnState.CANCELLED
        run_turns()
        assert ledger.entries == []


@pytest.mark.parametrize("rounds", SAMPLE)
def test_approve_against_expiry(rounds, reviewers):
    approval = make_approval()
    ToolApproval.objects.update(expires_at=approval.requested_at)
    for _ in again(approval.turn, rounds):
        approved, ticked = race(partial(runtime.approve, approval.pk, reviewers[0]), runtime.tick)
        refusals([ticked])
        assert isinstance(approved, Conflict)
        assert "expired" in approved.message
        assert (status_of(approval), state_of(approval.turn)) == ("expired", TurnState.QUEUED)
        told = kinds(approval.turn)
        assert (told["tool.approval.expired"], told["turn.resumed"]) == (1, 1)


@pytest.mark.parametrize("rounds", SAMPLE)
def test_two_sweeps_expire_a_request_once(rounds):
    approval = make_approval()
    ToolApproval.objects.update(expires_at=approval.requested_at)
    for _ in again(approval.turn, rounds):
        outcomes = race(runtime.tick, runtime.tick)
        assert refusals(outcomes) == []
        assert sum(outcome["expired"] for outcome in outcomes) == 1
        assert kinds(approval.turn)["tool.approval.expired"] == 1


@pytest.mark.parametrize("rounds", SAMPLE)
def test_two_cancels_at_once(rounds):
    approval = make_approval()
    for _ in again(approval.turn, rounds):
        outcomes = race(*[partial(runtime.cancel, approval.session.session_id)] * 2)
        assert len(refusals(outcomes)) == 1
        assert kinds(approval.turn)["turn.cancelled"] == 1


@pytest.mark.parametrize("rounds", SAMPLE)
def test_archiving_against_a_new_message(rounds):
    for _ in range(rounds):
        session = make_session()
        outcomes = race(
            partial(runtime.archive, session.session_id),
            partial(runtime.enqueue, session.session_id, "hi"),
        )
        [refused] = refusals(outcomes)
        assert isinstance(refused, Conflict)
        session.refresh_from_db()
        active = AgentContext.objects.filter(active_session=session).exists()
        assert active == (session.status == "active")
    assert_invariants()


# Numbers


@pytest.mark.parametrize(("writers", "each"), [(4, 50), pytest.param(4, 200, marks=pytest.mark.slow)])
def test_evt_04_numbers_have_no_gap_and_none_appears_behind_a_reader(writers, each):
    session = make_session()
    turn = make_turn(session)
    done, seen = threading.Event(), []

    def write():
        for number in range(each):
            with log.writing(session.pk) as journal:
                # Some changes write several events, as verbs do.
                for _ in range(1 + number % 3):
                    journal.append("agent.memory.updated", execution_id=turn.execution_id, number=number)

    def write_all():
        try:
            return race(*[write] * writers)
        finally:
            done.set()

    def read():
        cursor, last_look = 0, False
        while not last_look:
            last_look = done.is_set()
            while events := log.read(session, after=cursor, limit=100):
                seen.extend(event.sequence for event in events)
                cursor = events[-1].sequence

    [written, _] = race(write_all, read)
    refusals(written)
    expected = list(range(1, AgentSession.objects.get(pk=session.pk).last_sequence + 1))
    assert len(expected) >= writers * each
    assert list(session.events.order_by("sequence").values_list("sequence", flat=True)) == expected
    assert seen == expected
    assert_invariants()


def test_evt_04_writers_of_different_sessions_do_not_disturb_each_other():
    sessions = [make_session() for _ in range(4)]

    def write(session):
        for _ in range(25):
            with log.writing(session.pk) as journal:
                journal.append("agent.memory.updated")

    refusals(race(*(partial(write, session) for session in sessions)))
    for session in sessions:
        session.refresh_from_db()
        assert session.last_sequence == 26
    assert_invariants()


# Things made once


def definition(number):
    return AgentDefinition(name="raced-agent", agent_class=object, system_prompt=str(number), model="scripted:any")


@pytest.mark.parametrize("threads", [2, 4])
@pytest.mark.parametrize("rounds", SAMPLE)
def test_a_revision_is_made_once(rounds, threads):
    for number in range(1, rounds + 1):
        outcomes = race(*[partial(revisions.current, definition(number))] * threads)
        assert refusals(outcomes) == []
        assert {revision.number for revision in outcomes} == {number}
        assert AgentRevision.objects.filter(agent__name="raced-agent").count() == number


@pytest.mark.parametrize("threads", [2, 4])
def test_an_agent_that_was_never_used_is_stored_once(threads):
    outcomes = race(*[partial(revisions.current, definition(1))] * threads)
    assert refusals(outcomes) == []
    assert len({revision.pk for revision in outcomes}) == 1


@pytest.mark.parametrize("rounds", SAMPLE)
def test_two_new_definitions_at_once_are_two_revisions(rounds):
    for number in range(rounds):
        outcomes = race(
            partial(revisions.current, definition(2 * number)),
            partial(revisions.current, definition(2 * number + 1)),
        )
        assert refusals(outcomes) == []
        assert len({revision.number for revision in outcomes}) == 2
    numbers = AgentRevision.objects.filter(agent__name="raced-agent").order_by("number")
    assert list(numbers.values_list("number", flat=True)) == list(range(1, 2 * rounds + 1))


@pytest.mark.parametrize("rounds", SAMPLE)
def test_a_session_id_is_taken_once(rounds):
    for number in range(rounds):
        outcomes = race(*[partial(runtime.create_session, TESTING_AGENT, session_id=f"s-{number}")] * 3)
        refused = refusals(outcomes)
        assert [type(error) for error in refused] == [Conflict, Conflict]
        assert AgentSession.objects.filter(session_id=f"s-{number}").count() == 1
    assert_invariants()


def test_dur_22_many_turns_at_once_all_end_and_nothing_is_locked_out(reviewers):
    """Workers, reviewers and a reader on one database: SQLite's lock must be waited for, not met."""
    turns, done = [make_turn() for _ in range(8)], threading.Event()

    def work_all():
        try:
            return race(*(partial(work_and_decide, part, reviewers[0]) for part in (turns[:4], turns[4:])))
        finally:
            done.set()

    def read_on():
        while not done.is_set():
            for turn in turns:
                runtime.result(turn.execution_id)

    with ScriptedProvider(ask_three_times).installed() as provider:
        worked, read = race(work_all, read_on)
    assert refusals([*worked, read]) == []
    assert set(AgentContext.objects.values_list("state", flat=True)) == {"completed"}
    assert Counter(entry[0] for entry in ledger.entries) == {"lookup": 16, "pay": 8}
    provider.assert_valid()
    assert_invariants()


def work_and_decide(turns, reviewer):
    for turn in turns:
        loop.run(turn.execution_id)
    for turn in turns:
        runtime.approve(turn.approvals.get().pk, reviewer)
        loop.run(turn.execution_id)


def ask_three_times(request):
    results = sum(message.role == "tool" for message in request.messages)
    wanted = [("lookup", {"q": "a"}), ("pay", {"amount": 1, "to": "x"}), ("lookup", {"q": "b"})]
    return calls(wanted[results]) if results < len(wanted) else "Done."
