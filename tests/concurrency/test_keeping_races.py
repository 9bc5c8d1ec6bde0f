"""Archive, trim, erase, delete and restore against a turn that begins at the same moment."""

import threading
from datetime import timedelta
from functools import partial

import pytest
from django.db import transaction

from agentcore import AgentError, runtime
from agentcore.engine import loop
from agentcore.keeping import archiving, erasure
from agentcore.models import AgentContext, AgentSession, SessionEvent
from agentcore.testing import ScriptedProvider, assert_invariants, clock, make_session, make_user
from tests.concurrency.test_races import SAMPLE, _impatient, race, refusals  # noqa: F401 - a fixture by its name

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]


@pytest.fixture
def later():
    """Make what is there by now 40 days old."""
    yield lambda: clock.advance(timedelta(days=40))
    clock.reset()


def post_and_work(session, user=None):
    turn = runtime.enqueue(session.session_id, "hello", user=user).turn
    loop.run(turn.execution_id)
    return turn


@pytest.mark.parametrize("rounds", SAMPLE)
def test_a_session_is_archived_or_gets_its_turn_and_never_both(rounds, later):
    for _ in range(rounds):
        session = make_session()
        later()
        archived, posted = race(
            partial(archiving.archive_idle, 30), partial(runtime.enqueue, session.session_id, "hello")
        )
        refused = refusals([archived, posted])
        session.refresh_from_db()
        assert session.status == ("archived" if refused else "active")
        assert AgentContext.objects.filter(session=session).exists() is not bool(refused)
    assert_invariants()


@pytest.mark.parametrize("rounds", SAMPLE)
def test_two_that_archive_at_once_archive_each_session_once(rounds, later):
    for _ in range(rounds):
        session = make_session()
        later()
        counts = race(*[partial(archiving.archive_idle, 30)] * 2)
        assert refusals(counts) == []
        assert sum(counts) == 1
        assert SessionEvent.objects.filter(session=session, type="session.archived").count() == 1
    assert_invariants()


@pytest.mark.parametrize("rounds", SAMPLE)
def test_old_turns_go_while_a_new_one_is_worked_on(rounds, later):
    with ScriptedProvider(lambda request: "Answer.").installed():
        for number in range(rounds):
            session = make_session()
            for _ in range(3):
                post_and_work(session)
            later()
            outcomes = race(partial(runtime.trim, 30), partial(runtime.trim, 30), partial(post_and_work, session))
            assert refusals(outcomes) == []
            # The new turn of the round before is old by now.
            assert outcomes[0]["turns"] + outcomes[1]["turns"] == 3 + bool(number)
            [turn] = AgentContext.objects.filter(session=session)
            assert turn.response == "Answer."
            session.refresh_from_db()
            first = SessionEvent.objects.filter(session=session).order_by("sequence").first()
            assert first.sequence == session.removed_through + 1
    assert_invariants()


@pytest.mark.parametrize("rounds", SAMPLE)
def test_a_turn_that_begins_while_its_user_is_erased_is_erased_or_refused(rounds):
    with ScriptedProvider(lambda request: "Rumpelstiltskin.").installed():
        for _ in range(rounds):
            user = make_user()
            session = make_session(user=user, title="Rumpelstiltskin")
            post_and_work(session, user)
            report, posted = race(partial(runtime.erase, user), partial(_post, session, user))
            assert refusals([report, posted]) == ([posted] if isinstance(posted, AgentError) else [])
            assert report.is_complete
            session.refresh_from_db()
            assert (session.title, session.user_key) == ("", report.pseudonym)
            for turn in AgentContext.objects.filter(session=session):
                assert (turn.response, turn.user_key, turn.state in ("completed", "cancelled")) == (
                    None,
                    report.pseudonym,
                    True,
                )
    assert_invariants()


@pytest.mark.parametrize("rounds", SAMPLE)
def test_two_that_erase_a_user_at_once_leave_one_pseudonym_and_an_exact_record(rounds):
    with ScriptedProvider(lambda request: "Rumpelstiltskin.").installed():
        for _ in range(rounds):
            user = make_user()
            sessions = [make_session(user=user) for _ in range(4)]
            for session in sessions:
                post_and_work(session, user)
            reports = race(*[partial(runtime.erase, user)] * 2)
            assert refusals(reports) == []
            assert all(report.is_complete for report in reports)
            records = erasure.was_erased(user)
            assert sum(record.counts.get("turns", 0) for record in records) == 4
            assert sum(record.counts.get("sessions", 0) for record in records) == 4
            keys = {AgentSession.objects.get(pk=session.pk).user_key for session in sessions}
            turns = AgentContext.objects.filter(session__in=[session.pk for session in sessions])
            assert keys == set(turns.values_list("user_key", flat=True))
            [pseudonym] = keys
            assert pseudonym in {report.pseudonym for report in reports}
            assert all(record.completed_at for record in records)
    assert_invariants()


def _post(session, user):
    turn = runtime.enqueue(session.session_id, "hello", user=user).turn
    loop.run(turn.execution_id)
    return turn


@pytest.mark.parametrize("rounds", SAMPLE)
@pytest.mark.parametrize("soft", [True, False])
def test_a_session_is_deleted_or_gets_its_turn_and_never_both(rounds, soft, settings):
    settings.AGENTCORE = {**settings.AGENTCORE, "SOFT_DELETE": soft}
    for _ in range(rounds):
        session = make_session()
        outcomes = race(partial(runtime.delete, session.session_id), partial(runtime.enqueue, session.session_id, "hi"))
        assert len(refusals(outcomes)) == 1
        left = AgentSession.objects.filter(pk=session.pk).first()
        is_deleted = left is None or left.deleted_at is not None
        assert AgentContext.objects.filter(session_id=session.pk).exists() is not is_deleted
    assert_invariants()


@pytest.mark.parametrize("rounds", SAMPLE)
def test_who_restores_a_session_meets_its_removal_and_one_of_them_comes_first(rounds, later):
    for _ in range(rounds):
        session = make_session()
        runtime.delete(session.session_id)
        later()
        restored, removed = race(partial(runtime.restore, session.session_id), partial(runtime.trim, 30))
        refused = refusals([restored, removed])
        assert len(refused) == removed["sessions"]
        assert AgentSession.objects.filter(pk=session.pk, deleted_at=None).exists() is not bool(refused)
    assert_invariants()


def test_a_worker_that_is_in_a_model_call_ends_and_then_its_turn_is_erased():
    user, asked, told = make_user(), threading.Event(), threading.Event()

    def answer(request):
        asked.set()
        assert told.wait(30)
        return "Rumpelstiltskin."

    def erase():
        assert asked.wait(30)
        first = runtime.erase(user, wait=0)
        told.set()
        return first, runtime.erase(user, wait=30)

    with ScriptedProvider(answer).installed():
        session = make_session(user=user)
        turn = runtime.enqueue(session.session_id, "hello", user=user).turn
        _, (first, second) = race(partial(loop.run, turn.execution_id), erase)
    assert first.running == (str(turn.execution_id),)
    assert second.is_complete
    turn.refresh_from_db()
    assert (turn.state, turn.response) == ("cancelled", None)
    assert_invariants()


def test_erasing_inside_an_open_transaction_is_refused():
    user = make_user()
    with transaction.atomic(), pytest.raises(RuntimeError, match="open transaction"):
        runtime.erase(user)
