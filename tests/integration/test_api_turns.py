"""Turns over HTTP: send, send again, list, read."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agentcore.models import AgentContext, SessionEvent
from agentcore.states import TurnState
from agentcore.testing import calls, make_approval, make_session, make_turn, make_user, run_turns, text
from tests.integration.api import (
    DECIDE,
    GUARDED,
    VIEW_ALL,
    browser_of,
    client_of,
    desk_session,
    queries_of,
    with_csrf,
)

pytestmark = pytest.mark.django_db

FIELDS = [
    "execution_id",
    "session_id",
    "agent",
    "revision",
    "state",
    "input",
    "response",
    "error",
    "question",
    "usage",
    "step_count",
    "pending_approvals",
    "idempotency_key",
    "metadata",
    "created_at",
    "started_at",
    "completed_at",
]
STEP_FIELDS = ["number", "state", "action", "message", "tool_calls", "usage", "duration", "error", "finish_reason"]
CALL_FIELDS = ["call_id", "tool", "arguments", "status", "result", "error", "attempts", "late_result"]


@pytest.fixture
def owner():
    return make_user("owner")


@pytest.fixture
def client(owner):
    return client_of(owner)


@pytest.fixture
def session(owner):
    return make_session(user=owner, session_id="s:1")


def test_a_message_is_stored_and_answered_with_the_queued_turn(client, session, owner):
    answer = client.post(
        "/api/sessions/s:1/turns/", {"message": "hi", "metadata": {"a": 1}}, headers={"Idempotency-Key": "k1"}
    )
    assert answer.status_code == 202
    assert list(answer.json()) == FIELDS
    row = AgentContext.objects.get()
    assert row.user == owner
    assert answer.json() == {
        "execution_id": str(row.execution_id),
        "session_id": "s:1",
        "agent": session.agent.name,
        "revision": {"number": 1, "hash": session.revision.hash},
        "state": "queued",
        "input": {"role": "user", "content": "hi"},
        "response": None,
        "error": None,
        "question": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
        "step_count": 0,
        "pending_approvals": [],
        "idempotency_key": "k1",
        "metadata": {"a": 1},
        "created_at": answer.json()["created_at"],
        "started_at": None,
        "completed_at": None,
    }


def test_a_message_may_be_an_object_but_only_a_user_s(client, session):
    assert client.post("/api/sessions/s:1/turns/", {"message": {"role": "system", "content": "x"}}).status_code == 400
    answer = client.post("/api/sessions/s:1/turns/", {"message": {"role": "user", "content": "hi"}})
    assert (answer.status_code, answer.json()["input"]) == (202, {"role": "user", "content": "hi"})


def test_a_browser_sends_a_message_with_its_csrf_token_only(owner, session):
    browser = browser_of(owner)
    assert browser.post("/api/sessions/s:1/turns/", {"message": "hi"}).status_code == 403
    assert not AgentContext.objects.exists()
    assert browser.post("/api/sessions/s:1/turns/", {"message": "hi"}, **with_csrf(browser)).status_code == 202


def test_dur_12_the_same_key_and_body_give_the_same_turn(client, session):
    first = client.post("/api/sessions/s:1/turns/", {"message": "hi"}, headers={"Idempotency-Key": "k1"})
    by_field = {"message": "hi", "idempotency_key": "k1"}
    second = client.post("/api/sessions/s:1/turns/", by_field)
    both = client.post("/api/sessions/s:1/turns/", by_field, headers={"Idempotency-Key": "k1"})
    assert [first.status_code, second.status_code, both.status_code] == [202, 200, 200]
    assert first.json() == second.json() == both.json()
    assert AgentContext.objects.count() == SessionEvent.objects.filter(type="turn.input").count() == 1


def test_a_key_is_the_same_in_the_header_and_in_the_field_whatever_its_letters(client, session):
    as_a_server_hands_it_on = "clé-☃".encode().decode("latin-1")
    first = client.post("/api/sessions/s:1/turns/", {"message": "hi"}, HTTP_IDEMPOTENCY_KEY=as_a_server_hands_it_on)
    second = client.post("/api/sessions/s:1/turns/", {"message": "hi", "idempotency_key": "clé-☃"})
    assert (first.status_code, second.status_code) == (202, 200)
    assert first.json()["idempotency_key"] == "clé-☃"


def test_a_known_key_is_answered_even_by_an_archived_session(client, session, scripted):
    first = client.post("/api/sessions/s:1/turns/", {"message": "hi"}, headers={"Idempotency-Key": "k1"})
    scripted(["Hello."])
    run_turns()
    client.post("/api/sessions/s:1/archive/")
    again = client.post("/api/sessions/s:1/turns/", {"message": "hi"}, headers={"Idempotency-Key": "k1"})
    assert (again.status_code, again.json()["response"]) == (200, "Hello.")
    assert again.json()["execution_id"] == first.json()["execution_id"]
    other = client.post("/api/sessions/s:1/turns/", {"message": "hi"}, headers={"Idempotency-Key": "k2"})
    assert (other.status_code, other.json()["code"]) == (409, "conflict")


def test_the_same_key_with_another_body_conflicts(client, session):
    client.post("/api/sessions/s:1/turns/", {"message": "hi"}, headers={"Idempotency-Key": "k1"})
    for body in ({"message": "ho"}, {"message": "hi", "metadata": {"a": 1}}):
        answer = client.post("/api/sessions/s:1/turns/", body, headers={"Idempotency-Key": "k1"})
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert AgentContext.objects.count() == 1


def test_a_header_and_a_field_that_differ_are_invalid(client, session):
    body = {"message": "hi", "idempotency_key": "k1"}
    answer = client.post("/api/sessions/s:1/turns/", body, headers={"Idempotency-Key": "k2"})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")
    assert not AgentContext.objects.exists()


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_a_bad_key_is_invalid(client, session, key):
    for options in ({"headers": {"Idempotency-Key": key}}, {"field": key}):
        body = {"message": "hi"} | ({"idempotency_key": options.pop("field")} if "field" in options else {})
        answer = client.post("/api/sessions/s:1/turns/", body, **options)
        assert (answer.status_code, answer.json()["details"]["errors"][0]["field"]) == (400, "idempotency_key")
    assert not AgentContext.objects.exists()


def test_a_second_turn_conflicts_while_one_is_active(client, session):
    first = client.post("/api/sessions/s:1/turns/", {"message": "hi"})
    second = client.post("/api/sessions/s:1/turns/", {"message": "ho"})
    assert (second.status_code, second.json()["code"]) == (409, "conflict")
    assert second.json()["details"]["execution_id"] == first.json()["execution_id"]
    assert AgentContext.objects.count() == 1


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "message"),
        ({"message": None}, "message"),
        ({"message": ""}, "message"),
        ({"message": " "}, "message"),
        ({"message": 5}, "message"),
        ({"message": ["hi"]}, "message"),
        ({"message": {}}, "message"),
        ({"message": {"content": 5}}, "message"),
        ({"message": {"content": "hi", "name": "x"}}, "message"),
        ({"message": "a\x00b"}, "message"),
        ({"message": {"content": "a\ud83d"}}, "message"),
        ({"message": "hi", "metadata": "x"}, "metadata"),
        ({"message": "hi", "metadata": {"\x00": 1}}, "metadata"),
        ({"message": "hi", "idempotency_key": 5}, "idempotency_key"),
        ({"message": "hi", "idempotency_key": "a\x00"}, "idempotency_key"),
        ({"message": "hi", "state": "completed"}, "state"),
        ({"message": "hi", "role": "system"}, "role"),
        ({"message": "hi", "session": 2}, "session"),
        ({"message": "hi", "user": 2}, "user"),
    ],
)
def test_a_bad_message_is_refused_by_name_and_nothing_is_stored(client, session, body, field):
    answer = client.post("/api/sessions/s:1/turns/", json.dumps(body), content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")
    assert answer.json()["details"]["errors"][0]["field"] == field
    assert not AgentContext.objects.exists()


def test_a_message_too_large_is_413(client, session, settings):
    settings.AGENTCORE = {**settings.AGENTCORE, "MAX_INPUT_BYTES": 100}
    answer = client.post("/api/sessions/s:1/turns/", {"message": "x" * 101})
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert not AgentContext.objects.exists()


def test_who_lost_the_agent_s_permission_sends_nothing_more(owner):
    session = make_session(GUARDED, session_id="g")
    session.user = owner
    session.user_key = str(owner.pk)
    session.save()
    answer = client_of(owner).post("/api/sessions/g/turns/", {"message": "hi"})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert not AgentContext.objects.exists()


def test_nobody_writes_to_a_session_that_is_nobody_s(client):
    make_session(session_id="free")
    assert client.post("/api/sessions/free/turns/", {"message": "hi"}).status_code == 404
    assert not AgentContext.objects.exists()


def test_a_turn_is_read_with_its_steps_and_calls(client, session, owner, scripted):
    scripted([calls(("lookup", {"q": "a"})), text("Found.")])
    turn = make_turn(session, user=owner)
    run_turns()
    answer = client.get(f"/api/turns/{turn.execution_id}/")
    assert answer.status_code == 200
    assert list(answer.json()) == [*FIELDS, "steps", "citations"]
    assert answer.json()["state"] == "completed"
    assert answer.json()["response"] == "Found."
    assert answer.json()["usage"] == {"input_tokens": 14, "output_tokens": 6}
    first, second = answer.json()["steps"]
    assert list(first) == STEP_FIELDS
    assert (first["number"], first["action"], first["state"]) == (1, "use_tool", "completed")
    assert first["usage"] == {"input_tokens": 7, "output_tokens": 3}
    [call] = first["tool_calls"]
    assert list(call) == CALL_FIELDS
    assert (call["tool"], call["arguments"], call["status"]) == ("lookup", {"q": "a"}, "completed")
    assert call["result"] == {"q": "a", "found": "yes"}
    assert second["message"] == {"role": "assistant", "content": "Found."}


def test_apr_34_secrets_are_masked_in_a_turn_s_calls_and_results(client, owner, scripted):
    arguments = {
        "url": "https://h",
        "headers": {"Authorization": "Bearer sk-123"},
        "api_key": "k-9",
        "note": "hi",
        "pin": "pin-4711",
    }
    scripted([calls(("fetch", arguments)), "Done."])
    turn = make_turn(desk_session(owner), user=owner)
    run_turns()
    [pending] = client.get(f"/api/turns/{turn.execution_id}/").json()["pending_approvals"]
    reviewer = client_of(make_user(permissions=(DECIDE,)))
    decided = reviewer.post(f"/api/approvals/{pending['id']}/approve/")
    run_turns()
    shown = client.get(f"/api/turns/{turn.execution_id}/")
    assert shown.json()["state"] == "completed"
    everything = decided.content + shown.content
    everything += reviewer.get(f"/api/approvals/{pending['id']}/").content
    everything += client.get(f"/api/sessions/{turn.session.session_id}/events/").content
    for secret in (b"sk-123", b"k-9", b"pin-4711"):
        assert secret not in everything
    call = shown.json()["steps"][0]["tool_calls"][0]
    assert call["arguments"]["note"] == "hi"
    assert call["arguments"]["headers"] == {"Authorization": "********"}
    assert call["result"] == {"token": "********", "body": "ok"}


def test_a_waiting_turn_names_what_it_waits_for(client, owner):
    approval = make_approval(user=owner)
    answer = client.get(f"/api/turns/{approval.turn.execution_id}/").json()
    assert answer["state"] == "waiting_for_approval"
    [pending] = answer["pending_approvals"]
    assert list(pending) == ["id", "tool", "expires_at"]
    assert (pending["id"], pending["tool"]) == (approval.pk, "pay")
    assert pending["expires_at"] is not None


def test_a_session_s_turns_are_listed_newest_first_and_filtered_by_state(client, session, owner, scripted):
    scripted(["one"])
    first = make_turn(session, user=owner)
    run_turns()
    second = make_turn(session, user=owner)
    make_turn(user=owner)

    def found(query=""):
        return [item["execution_id"] for item in client.get(f"/api/sessions/s:1/turns/{query}").json()["results"]]

    assert found() == [str(second.execution_id), str(first.execution_id)]
    assert found("?state=completed") == [str(first.execution_id)]
    bad = client.get("/api/sessions/s:1/turns/?state=idle")
    assert (bad.status_code, bad.json()["code"]) == (400, "invalid_input")


def test_the_list_costs_as_many_queries_for_twenty_as_for_one(client, session, owner, scripted):
    scripted(lambda request: "ok")

    def one_more():
        turn = make_turn(session, user=owner)
        run_turns()
        return turn

    one_more()
    one = queries_of(lambda: client.get("/api/sessions/s:1/turns/"), rows=1)
    for _ in range(19):
        one_more()
    assert queries_of(lambda: client.get("/api/sessions/s:1/turns/"), rows=20) == one


def test_a_turn_costs_as_many_queries_with_ten_calls_as_with_one(client, owner, scripted):
    def cost(number):
        scripted([calls(*[("lookup", {"q": str(n)}) for n in range(number)]), "Done."])
        turn = make_turn(user=owner)
        run_turns()
        with CaptureQueriesContext(connection) as queries:
            answer = client.get(f"/api/turns/{turn.execution_id}/").json()
        assert len(answer["steps"][0]["tool_calls"]) == number
        return len(queries)

    assert cost(10) == cost(1)


def test_an_answer_to_a_turn_that_does_not_wait_for_input_conflicts(client, owner):
    turn = make_turn(user=owner)
    path = f"/api/turns/{turn.execution_id}/resume/"
    answer = client.post(path, {"message": "blue"}, headers={"Idempotency-Key": "k"})
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert answer.json()["details"]["state"] == "queued"
    assert client.post(path, {}).status_code == 400
    assert client.post(path, {"message": ""}).status_code == 400
    assert client.post(path, {"message": "a", "by": 1}).status_code == 400
    assert client.post(path, {"message": "a", "idempotency_key": ""}).status_code == 400
    assert AgentContext.objects.get().state == TurnState.QUEUED


NOBODYS = "00000000-0000-4000-8000-000000000000"


@pytest.mark.parametrize("execution_id", ["1", "nonsense", "a%00b", "9" * 400, NOBODYS, "-1"])
def test_an_absurd_id_is_not_found(client, execution_id):
    for answer in (
        client.get(f"/api/turns/{execution_id}/"),
        client.post(f"/api/turns/{execution_id}/resume/", {"message": "x"}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_who_may_view_sessions_reads_anothers_turn(owner):
    turn = make_turn(user=owner)
    viewer = client_of(make_user(permissions=(VIEW_ALL,)))
    assert viewer.get(f"/api/turns/{turn.execution_id}/").status_code == 200
    assert client_of(make_user()).get(f"/api/turns/{turn.execution_id}/").status_code == 404


@pytest.mark.django_db(transaction=True)
def test_dur_12_ten_copies_at_once_make_one_turn(owner, session):
    def send(_):
        try:
            client = client_of(owner)
            return client.post("/api/sessions/s:1/turns/", {"message": "hi"}, headers={"Idempotency-Key": "k1"})
        finally:
            connection.close()

    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(send, range(10)))
    assert sorted(answer.status_code for answer in answers) == [200] * 9 + [202]
    assert len({answer.json()["execution_id"] for answer in answers}) == 1
    assert AgentContext.objects.count() == SessionEvent.objects.filter(type="turn.input").count() == 1
