"""The hash chain over a session's events: whatever is changed behind the log's back shows."""

import hashlib
import json
from datetime import timedelta

import pytest
from django.db.models import F

from agentcore import runtime
from agentcore.events import chain, log
from agentcore.models import AgentSession, SessionEvent
from agentcore.testing import TESTING_AGENT, calls

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(scripted):
    """A session with a turn behind it, and text in its events that databases may write in several ways."""
    scripted([calls(("lookup", {"q": "é漢😀 \\ / <b>"})), "Done."])
    found = runtime.execute(TESTING_AGENT, "hi", metadata={"n": 1.5})
    return AgentSession.objects.get(session_id=found.session_id)


def problems(session):
    return list(chain.problems(AgentSession.objects.get(pk=session.pk)))


def event(session, number):
    return SessionEvent.objects.filter(session=session, sequence=number)


def test_an_untouched_log_has_no_problems(session):
    assert SessionEvent.objects.filter(session=session).count() == session.last_sequence > 10
    assert problems(session) == []


def test_each_hash_is_the_one_the_contract_says(session):
    previous = ""
    for row in SessionEvent.objects.filter(session=session).order_by("sequence"):
        text = json.dumps(row.data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert row.data_digest == hashlib.sha256(text.encode()).hexdigest()
        created_at = row.created_at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        execution_id = str(row.turn_id) if row.turn_id else None
        entry = json.dumps(
            [row.sequence, row.type, execution_id, created_at, row.data_digest],
            separators=(",", ":"),
        )
        assert row.hash == hashlib.sha256((previous + entry).encode()).hexdigest()
        previous = row.hash
    assert session.last_hash == previous


@pytest.mark.parametrize(
    "change",
    [
        {"type": "turn.cancelled"},
        {"created_at": F("created_at") + timedelta(microseconds=1)},
        {"turn": None},
        {"data_digest": "0" * 64},
        {"hash": "0" * 64},
        {"data": {"message": "something else"}},
        {"data": {}},
        {"data": []},
    ],
    ids=lambda change: next(iter(change)),
)
@pytest.mark.parametrize("number", [2, 5, "last"])
def test_an_altered_row_is_found(session, change, number):
    number = session.last_sequence if number == "last" else number
    assert event(session, number).update(**change) == 1
    found = problems(session)
    assert found
    assert f"vent {number} " in found[0] or "last event's hash" in found[0]


def test_data_replaced_together_with_its_digest_is_found(session):
    data = {"message": "something else"}
    digest = hashlib.sha256(b'{"message":"something else"}').hexdigest()
    event(session, 2).update(data=data, data_digest=digest)
    assert problems(session) == ["Event 2 (turn.input) does not continue the chain."]


def test_a_whole_new_link_is_found_by_the_next_one(session):
    row = event(session, 3).get()
    fields = {"sequence": 3, "type": "turn.failed", "execution_id": row.turn_id, "created_at": row.created_at}
    forged = chain.link(event(session, 2).get().hash, **fields, data_digest=row.data_digest)
    event(session, 3).update(type="turn.failed", hash=forged)
    [problem] = problems(session)
    assert problem.startswith("Event 4 ")


@pytest.mark.parametrize("number", [1, 2, 6])
def test_a_removed_row_is_found(session, number):
    event(session, number).delete()
    assert f"Event {number} is missing." in problems(session)


def test_several_removed_rows_are_each_named(session):
    SessionEvent.objects.filter(session=session, sequence__in=[3, 4, 7]).delete()
    found = problems(session)
    assert [line for line in found if "missing" in line] == [f"Event {number} is missing." for number in (3, 4, 7)]


@pytest.mark.parametrize("removed", [1, 3])
def test_a_removed_tail_shows_against_the_sessions_last_sequence(session, removed):
    last = session.last_sequence
    SessionEvent.objects.filter(session=session, sequence__gt=last - removed).delete()
    assert problems(session) == [f"The log ends at {last - removed}, the session says {last}."]


def test_a_removed_tail_shows_when_the_last_sequence_is_lowered_too(session):
    event(session, session.last_sequence).delete()
    AgentSession.objects.filter(pk=session.pk).update(last_sequence=F("last_sequence") - 1)
    assert problems(session) == ["The last event's hash is not the one the session holds."]


def test_a_log_that_was_emptied_is_found(session):
    SessionEvent.objects.filter(session=session).delete()
    assert problems(session) == [f"The log ends at 0, the session says {session.last_sequence}."]


def added(session, number, **fields):
    copied = (
        event(session, 2).values("session_id", "turn_id", "type", "data", "data_digest", "created_at", "hash").get()
    )
    return SessionEvent.objects.create(**(copied | {"sequence": number} | fields))


def test_an_added_row_is_found_at_the_end(session):
    added(session, session.last_sequence + 1)
    found = problems(session)
    assert f"Event {session.last_sequence + 1} (turn.input) does not continue the chain." in found
    assert f"The log ends at {session.last_sequence + 1}, the session says {session.last_sequence}." in found


def test_an_added_row_with_a_right_hash_is_found(session):
    number = session.last_sequence + 1
    row = event(session, 2).get()
    forged = chain.link(
        session.last_hash,
        sequence=number,
        type=row.type,
        execution_id=row.turn_id,
        created_at=row.created_at,
        data_digest=row.data_digest,
    )
    added(session, number, hash=forged)
    assert problems(session) == [f"The log ends at {number}, the session says {number - 1}."]
    AgentSession.objects.filter(pk=session.pk).update(last_sequence=number)
    assert problems(session) == ["The last event's hash is not the one the session holds."]


def test_an_added_row_is_found_before_the_first(session):
    added(session, 0)
    assert problems(session)


def test_two_rows_that_changed_places_are_found(session):
    event(session, 3).update(sequence=1000)
    event(session, 4).update(sequence=3)
    event(session, 1000).update(sequence=4)
    assert problems(session)


def test_erased_data_leaves_the_chain_valid(session):
    SessionEvent.objects.filter(session=session).update(data=None)
    assert problems(session) == []
    event(session, 4).update(data={})
    assert problems(session) == [f"The data of event 4 ({event(session, 4).get().type}) is not what was written."]


def test_the_log_goes_on_after_data_was_erased(session):
    SessionEvent.objects.filter(session=session).update(data=None)
    with log.writing(session.pk) as journal:
        journal.append("agent.memory.updated", kept=True)
    assert problems(session) == []


def test_data_that_json_cannot_hash_is_a_problem_and_no_crash(session, monkeypatch):
    def fail(value):
        raise ValueError("nothing to hash")

    monkeypatch.setattr(chain.canonical, "digest", fail)
    assert len(problems(session)) == session.last_sequence


def test_a_session_without_events_is_whole():
    assert list(chain.problems(AgentSession(pk=1))) == []


def test_logs_of_sessions_do_not_touch_each_other(session, make_session):
    other = make_session()
    event(session, 2).delete()
    assert problems(other) == []
