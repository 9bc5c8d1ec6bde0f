"""A session's log over HTTP, from any number on."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agentcore.models import SessionEvent
from agentcore.testing import make_approval, make_session, make_turn, make_user, run_turns
from tests.integration.api import VIEW_ALL, client_of

pytestmark = pytest.mark.django_db

FIELDS = ["sequence", "type", "execution_id", "data", "data_digest", "created_at", "hash"]


@pytest.fixture
def owner():
    return make_user("owner")


@pytest.fixture
def client(owner):
    return client_of(owner)


@pytest.fixture
def session(owner, scripted):
    session = make_session(user=owner, session_id="s")
    scripted(["Hello."])
    make_turn(session, user=owner)
    run_turns()
    session.refresh_from_db()
    return session


def test_the_log_is_shown_from_its_beginning(client, session):
    answer = client.get("/api/sessions/s/events/")
    assert answer.status_code == 200
    assert list(answer.json()) == ["results", "last_sequence"]
    assert answer.json()["last_sequence"] == session.last_sequence
    events = answer.json()["results"]
    assert [event["sequence"] for event in events] == list(range(1, session.last_sequence + 1))
    assert (events[0]["type"], events[0]["execution_id"]) == ("session.started", None)
    assert [event["type"] for event in events[-2:]] == ["turn.completed", "agent.memory.updated"]
    row = SessionEvent.objects.get(sequence=2)
    assert list(events[1]) == FIELDS
    assert events[1]["execution_id"] == str(row.turn_id)
    assert (events[1]["data"], events[1]["hash"], events[1]["data_digest"]) == (row.data, row.hash, row.data_digest)


def test_the_log_is_read_on_from_a_number(client, session):
    last = session.last_sequence
    found = client.get(f"/api/sessions/s/events/?after={last - 2}").json()
    assert [event["sequence"] for event in found["results"]] == [last - 1, last]
    assert client.get(f"/api/sessions/s/events/?after={last}").json() == {"results": [], "last_sequence": last}
    page = client.get("/api/sessions/s/events/?after=1&limit=2").json()
    assert [event["sequence"] for event in page["results"]] == [2, 3]
    assert page["last_sequence"] == last


@pytest.mark.parametrize(
    "query",
    [
        "after=-1",
        "after=x",
        "after=",
        "after=1.0",
        "after=99",
        "after=9999999999999999999999",
        "after=%00",
        "after=١",
        "limit=0",
        "limit=-1",
        "limit=1001",
        "limit=x",
        "limit=",
    ],
)
def test_a_bad_number_is_invalid_input_and_named(client, session, query):
    answer = client.get(f"/api/sessions/s/events/?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")
    assert answer.json()["details"]["field"] == query.partition("=")[0]


def test_an_erased_event_is_shown_without_its_data(client, session):
    SessionEvent.objects.filter(sequence=2).update(data=None)
    assert client.get("/api/sessions/s/events/?after=1&limit=1").json()["results"][0]["data"] is None


def test_only_who_sees_the_session_reads_its_log(session):
    assert client_of(make_user()).get("/api/sessions/s/events/").status_code == 404
    assert client_of(make_user(permissions=(VIEW_ALL,))).get("/api/sessions/s/events/").status_code == 200


def test_reading_costs_as_many_queries_for_many_events_as_for_one(client, session):
    def cost(limit):
        with CaptureQueriesContext(connection) as queries:
            assert len(client.get(f"/api/sessions/s/events/?limit={limit}").json()["results"]) == limit
        return len(queries)

    assert cost(6) == cost(1)


def test_a_decision_stands_in_the_log_without_secrets(client, owner):
    approval = make_approval(user=owner)
    [asked] = [
        event
        for event in client.get(f"/api/sessions/{approval.session.session_id}/events/").json()["results"]
        if event["type"] == "tool.approval.requested"
    ]
    assert asked["data"]["approval_id"] == approval.pk
    assert asked["data"]["arguments"] == {"amount": 10, "to": "acme"}
