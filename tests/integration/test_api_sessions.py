"""Sessions over HTTP: begin, list, read, change, archive, delete, cancel."""

import json

import pytest

from agentcore.models import AgentContext, AgentSession
from agentcore.states import TurnState
from agentcore.testing import TESTING_AGENT, make_approval, make_session, make_turn, make_user
from agentcore.turns import sessions
from tests.integration.api import DESK, GUARDED, VIEW_ALL, browser_of, client_of, queries_of, with_csrf

pytestmark = pytest.mark.django_db

FIELDS = [
    "session_id",
    "agent",
    "revision",
    "status",
    "title",
    "user",
    "metadata",
    "active_turn",
    "created_at",
    "updated_at",
    "archived_at",
]


@pytest.fixture
def owner():
    return make_user("owner")


@pytest.fixture
def client(owner):
    return client_of(owner)


def test_a_session_is_begun_with_all_it_was_given(client, owner):
    body = {"agent": TESTING_AGENT, "session_id": "a.b_c:d-1", "title": "Help", "metadata": {"a": [1]}}
    answer = client.post("/api/sessions/", body)
    assert answer.status_code == 201
    assert list(answer.data) == FIELDS
    row = AgentSession.objects.get(session_id="a.b_c:d-1")
    assert answer.json() == {
        "session_id": "a.b_c:d-1",
        "agent": TESTING_AGENT,
        "revision": {"number": 1, "hash": row.revision.hash},
        "status": "active",
        "title": "Help",
        "user": "owner",
        "metadata": {"a": [1]},
        "active_turn": None,
        "created_at": answer.json()["created_at"],
        "updated_at": answer.json()["updated_at"],
        "archived_at": None,
    }
    assert row.user == owner
    assert client.get("/api/sessions/a.b_c:d-1/").json()["title"] == "Help"


def test_a_session_without_an_id_is_given_one(client):
    answer = client.post("/api/sessions/", {"agent": TESTING_AGENT})
    assert answer.status_code == 201
    assert sessions.SESSION_ID.fullmatch(answer.json()["session_id"])


def test_a_browser_begins_a_session_with_its_csrf_token_only(owner):
    browser = browser_of(owner)
    assert browser.post("/api/sessions/", {"agent": TESTING_AGENT}).status_code == 403
    assert not AgentSession.objects.exists()
    assert browser.post("/api/sessions/", {"agent": TESTING_AGENT}, **with_csrf(browser)).status_code == 201


def test_a_taken_id_conflicts_whoever_has_it(client):
    make_session(session_id="taken", user=make_user())
    answer = client.post("/api/sessions/", {"agent": TESTING_AGENT, "session_id": "taken"})
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert AgentSession.objects.count() == 1


@pytest.mark.parametrize("agent", ["nobody", GUARDED])
def test_an_agent_that_is_not_there_for_the_user_is_not_found(client, agent):
    answer = client.post("/api/sessions/", {"agent": agent})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert answer.json()["message"] == f"There is no agent named {agent!r}."
    assert not AgentSession.objects.exists()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "agent"),
        ({"agent": None}, "agent"),
        ({"agent": 5}, "agent"),
        ({"agent": ""}, "agent"),
        ({"agent": "x" * 65}, "agent"),
        ({"agent": [TESTING_AGENT]}, "agent"),
        ({"agent": TESTING_AGENT, "session_id": "A"}, "session_id"),
        ({"agent": TESTING_AGENT, "session_id": ""}, "session_id"),
        ({"agent": TESTING_AGENT, "session_id": "a/b"}, "session_id"),
        ({"agent": TESTING_AGENT, "session_id": "x" * 65}, "session_id"),
        ({"agent": TESTING_AGENT, "session_id": 7}, "session_id"),
        ({"agent": TESTING_AGENT, "title": 7}, "title"),
        ({"agent": TESTING_AGENT, "title": "x" * 256}, "title"),
        ({"agent": TESTING_AGENT, "metadata": []}, "metadata"),
        ({"agent": TESTING_AGENT, "metadata": "{}"}, "metadata"),
        ({"agent": TESTING_AGENT, "metadata": None}, "metadata"),
        ({"agent": TESTING_AGENT, "user": 1}, "user"),
        ({"agent": TESTING_AGENT, "status": "archived"}, "status"),
    ],
)
def test_a_bad_field_is_refused_by_name_and_nothing_is_stored(client, body, field):
    answer = client.post("/api/sessions/", body)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")
    assert answer.json()["details"]["errors"][0]["field"] == field
    assert field in answer.json()["message"]
    assert not AgentSession.objects.exists()


def test_an_unknown_field_is_refused_and_the_allowed_ones_are_listed(client):
    answer = client.post("/api/sessions/", {"agent": TESTING_AGENT, "colour": "red"})
    assert answer.status_code == 400
    assert answer.json()["message"] == "colour: Unknown field. Allowed: agent, session_id, title, metadata."


@pytest.mark.parametrize("text", ["a\x00b", "a\ud83db"])
@pytest.mark.parametrize("place", ["title", "metadata", "key", "session_id", "agent", "unknown"])
def test_prv_22_nul_and_lone_surrogates_are_refused_wherever_they_stand(client, text, place):
    body = {"agent": TESTING_AGENT}
    body |= {"metadata": {"k": [text]}} if place == "metadata" else {}
    body |= {"metadata": {text: 1}} if place == "key" else {}
    body |= {place: text} if place in ("title", "session_id", "agent") else {}
    body |= {text: 1} if place == "unknown" else {}
    # Written with escapes, as a client's encoder writes them.
    answer = client.post("/api/sessions/", json.dumps(body), content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")
    assert not AgentSession.objects.exists()


def test_metadata_too_large_is_413(client, settings):
    settings.AGENTCORE = {**settings.AGENTCORE, "MAX_INPUT_BYTES": 100}
    answer = client.post("/api/sessions/", {"agent": TESTING_AGENT, "metadata": {"a": "x" * 100}})
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert not AgentSession.objects.exists()


def test_the_list_shows_one_s_own_sessions_newest_first(client, owner):
    first, second = make_session(user=owner), make_session(user=owner)
    make_session(user=make_user())
    make_session()
    answer = client.get("/api/sessions/")
    assert list(answer.json()) == ["next", "previous", "results"]
    assert [item["session_id"] for item in answer.json()["results"]] == [second.session_id, first.session_id]
    assert list(answer.json()["results"][0]) == FIELDS


def test_who_may_view_sessions_sees_all(owner):
    theirs, nobodys = make_session(user=owner), make_session()
    viewer = client_of(make_user(permissions=(VIEW_ALL,)))
    found = {item["session_id"] for item in viewer.get("/api/sessions/").json()["results"]}
    assert found == {theirs.session_id, nobodys.session_id}
    assert viewer.get(f"/api/sessions/{theirs.session_id}/").status_code == 200


def test_archived_sessions_are_hidden_unless_asked_for(client, owner):
    active, archived, deleted = (make_session(user=owner) for _ in range(3))
    sessions.archive(archived)
    sessions.delete(deleted)

    def found(query):
        return [item["session_id"] for item in client.get(f"/api/sessions/{query}").json()["results"]]

    assert found("") == found("?status=active") == found("?status=") == [active.session_id]
    assert found("?status=archived") == [archived.session_id]
    assert found("?status=all") == [archived.session_id, active.session_id]
    assert client.get(f"/api/sessions/{archived.session_id}/").json()["status"] == "archived"
    assert client.get(f"/api/sessions/{deleted.session_id}/").status_code == 404


def test_the_list_is_filtered_by_agent(client, owner):
    make_session(user=owner)
    wanted = make_session(DESK, user=owner)
    found = client.get(f"/api/sessions/?agent={DESK}").json()["results"]
    assert [item["session_id"] for item in found] == [wanted.session_id]
    assert client.get("/api/sessions/?agent=nobody").json()["results"] == []


@pytest.mark.parametrize("query", ["status=gone", "agent=a%00b", "cursor=nonsense", "page_size=0", "page_size=many"])
def test_a_bad_filter_is_invalid_input(client, query):
    answer = client.get(f"/api/sessions/?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")


def test_the_list_costs_as_many_queries_for_twenty_as_for_one(client, owner):
    make_turn(user=owner)
    one = queries_of(lambda: client.get("/api/sessions/"), rows=1)
    for _ in range(19):
        make_turn(user=owner)
    assert queries_of(lambda: client.get("/api/sessions/"), rows=20) == one


def test_a_patch_changes_what_it_names_and_nothing_else(client, owner):
    session = make_session(user=owner, title="a", metadata={"x": 1})
    before = AgentSession.objects.filter(pk=session.pk).values().get()
    answer = client.patch(f"/api/sessions/{session.session_id}/", {"title": "b"})
    assert answer.status_code == 200
    assert (answer.json()["title"], answer.json()["metadata"]) == ("b", {"x": 1})
    client.patch(f"/api/sessions/{session.session_id}/", {"metadata": {"y": 2}})
    after = AgentSession.objects.filter(pk=session.pk).values().get()
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"title", "metadata", "updated_at"}
    assert (after["title"], after["metadata"]) == ("b", {"y": 2})


@pytest.mark.parametrize("body", [{"title": 1}, {"metadata": []}, {"title": None}, {"titel": "x"}, [], "x"])
def test_a_bad_patch_changes_nothing(client, owner, body):
    session = make_session(user=owner, title="a")
    answer = client.patch(f"/api/sessions/{session.session_id}/", body)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")
    session.refresh_from_db()
    assert session.title == "a"


def test_ten_03_what_is_not_the_clients_to_set_is_refused_by_name(client, owner):
    session = make_session(user=owner)
    before = AgentSession.objects.filter(pk=session.pk).values().get()
    for name, value in {
        "status": "archived",
        "owner": 2,
        "user": 2,
        "approved_by": 1,
        "agent": DESK,
        "revision": 1,
        "session_id": "x",
        "state": {},
        "created_at": "2000-01-01",
        "last_sequence": 9,
    }.items():
        answer = client.patch(f"/api/sessions/{session.session_id}/", {"title": "b", name: value})
        assert answer.status_code == 400
        assert name in answer.json()["message"]
    assert client.put(f"/api/sessions/{session.session_id}/", {"title": "b"}).status_code == 405
    assert AgentSession.objects.filter(pk=session.pk).values().get() == before


def test_archiving_closes_a_session_and_again_changes_nothing(client, owner):
    session = make_session(user=owner)
    path = f"/api/sessions/{session.session_id}/archive/"
    first = client.post(path)
    assert (first.status_code, first.json()["status"]) == (200, "archived")
    assert first.json()["archived_at"] is not None
    assert client.post(path).json()["archived_at"] == first.json()["archived_at"]
    assert client.post(path, {"force": True}).status_code == 400


def test_an_active_turn_keeps_a_session_from_being_archived_or_deleted(client, owner):
    turn = make_turn(user=owner)
    path = f"/api/sessions/{turn.session.session_id}/"
    assert client.get(path).json()["active_turn"] == str(turn.execution_id)
    for answer in (client.post(f"{path}archive/"), client.delete(path)):
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert client.get(path).json()["status"] == "active"


def test_a_deleted_session_is_gone_for_good_but_not_its_rows(client, owner):
    session = make_session(user=owner)
    path = f"/api/sessions/{session.session_id}/"
    assert client.delete(path).status_code == 204
    for answer in (client.get(path), client.delete(path), client.get(f"{path}events/"), client.get(f"{path}turns/")):
        assert answer.status_code == 404
    assert AgentSession.objects.get(pk=session.pk).deleted_at is not None


def test_without_soft_delete_the_rows_go_too(client, owner, settings):
    settings.AGENTCORE = {**settings.AGENTCORE, "SOFT_DELETE": False}
    approval = make_approval(user=owner)
    path = f"/api/sessions/{approval.session.session_id}/"
    client.post(f"{path}cancel/")
    assert client.delete(path).status_code == 204
    assert not AgentSession.objects.exists()
    assert not AgentContext.objects.exists()


def test_cancelling_ends_a_waiting_turn_at_once(client, owner):
    approval = make_approval(user=owner)
    path = f"/api/sessions/{approval.session.session_id}/cancel/"
    answer = client.post(path)
    assert (answer.status_code, answer.json()["state"]) == (202, "cancelled")
    assert answer.json()["execution_id"] == str(approval.turn.execution_id)
    assert answer.json()["pending_approvals"] == []
    approval.refresh_from_db()
    assert approval.status == "cancelled"
    again = client.post(path)
    assert (again.status_code, again.json()["code"]) == (409, "conflict")


def test_who_may_change_sessions_cancels_anothers_turn(owner):
    turn = make_turn(user=owner)
    changer = client_of(make_user(permissions=("agentcore.change_agentsession",)))
    assert changer.post(f"/api/sessions/{turn.session.session_id}/cancel/").status_code == 202
    assert AgentContext.objects.get(pk=turn.pk).state == TurnState.CANCELLED


def test_who_may_only_view_changes_nothing(owner):
    turn = make_turn(user=owner)
    viewer = client_of(make_user(permissions=(VIEW_ALL,)))
    path = f"/api/sessions/{turn.session.session_id}/"
    answers = [
        viewer.patch(path, {"title": "b"}),
        viewer.delete(path),
        viewer.post(f"{path}archive/"),
        viewer.post(f"{path}cancel/"),
        viewer.post(f"/api/turns/{turn.execution_id}/resume/", {"message": "x"}),
    ]
    assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(403, "permission_denied")}
    assert viewer.post(f"{path}turns/", {"message": "x"}).status_code == 404
    assert AgentContext.objects.get().state == TurnState.QUEUED
    assert AgentSession.objects.get().title == ""


@pytest.mark.parametrize("session_id", ["a%00b", "A", "x" * 500, "..", "%F0%9F%98%80", "s%20", "S-1"])
def test_an_absurd_id_is_not_found(client, owner, session_id):
    make_session(user=owner, session_id="s-1")
    make_session(user=owner, session_id="a")
    for end in ("", "events/", "turns/"):
        answer = client.get(f"/api/sessions/{session_id}/{end}")
        assert answer.status_code == 404
