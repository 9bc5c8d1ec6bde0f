"""Agents and their revisions over HTTP."""

import pytest

from agentcore import runtime
from agentcore.models import AgentRevision
from agentcore.testing import make_session, make_user
from tests.integration.api import DESK, GUARDED, client_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def client():
    return client_of(make_user())


def names_in(answer):
    return [item["name"] for item in answer.json()["results"]]


def test_the_agents_one_may_use_are_listed_by_name(client):
    answer = client.get("/api/agents/?page_size=200")
    assert list(answer.json()) == ["next", "previous", "results"]
    assert names_in(answer) == sorted(agent.name for agent in runtime.agents() if not agent.permission)
    assert GUARDED not in names_in(answer)
    permitted = client_of(make_user(permissions=("auth.add_group",)))
    assert GUARDED in names_in(permitted.get("/api/agents/?page_size=200"))


def test_the_list_has_pages_like_any_other(client):
    every, path = [], "/api/agents/?page_size=1"
    while path:
        page = client.get(path)
        assert len(page.json()["results"]) == 1
        every += names_in(page)
        path, last = page.json()["next"], page
    assert every == names_in(client.get("/api/agents/?page_size=200"))
    assert names_in(client.get(last.json()["previous"])) == every[-2:-1]
    for query in ("page_size=0", "page_size=x", "cursor=x", "cursor=-1"):
        assert client.get(f"/api/agents/?{query}").status_code == 400


def test_an_agent_shows_its_tools_and_not_its_prompt(client):
    answer = client.get(f"/api/agents/{DESK}/")
    assert answer.status_code == 200
    assert list(answer.json()) == ["name", "description", "revision", "tools"]
    assert answer.json()["description"] == "Asks in every way"
    tool = {item["name"]: item for item in answer.json()["tools"]}["wire"]
    assert list(tool) == ["name", "description", "parameters", "requires_approval"]
    assert tool["requires_approval"] is True
    assert tool["parameters"]["properties"]["amount"]["type"] == "integer"
    assert b"secret prompt" not in answer.content


def test_an_agent_s_revision_is_null_until_its_first_session(client):
    assert client.get(f"/api/agents/{DESK}/").json()["revision"] is None
    assert client.get(f"/api/agents/{DESK}/revisions/").json()["results"] == []
    revision = make_session(DESK).revision
    assert client.get(f"/api/agents/{DESK}/").json()["revision"] == {"number": 1, "hash": revision.hash}


def test_revisions_are_listed_newest_first_and_say_which_is_current(client):
    first = make_session(DESK).revision
    second = AgentRevision.objects.create(
        agent=first.agent, number=2, hash="b" * 64, definition={}, created_at=first.created_at
    )
    found = client.get(f"/api/agents/{DESK}/revisions/").json()
    assert list(found) == ["next", "previous", "results"]
    assert list(found["results"][0]) == ["number", "hash", "is_current", "definition", "created_at"]
    assert [(item["number"], item["hash"], item["is_current"]) for item in found["results"]] == [
        (2, second.hash, False),
        (1, first.hash, True),
    ]


def test_the_prompt_in_a_revision_is_for_who_may_view_revisions(client):
    make_session(DESK)
    hidden = client.get(f"/api/agents/{DESK}/revisions/")
    assert hidden.json()["results"][0]["definition"] is None
    permitted = client_of(make_user(permissions=("agentcore.view_agentrevision",)))
    shown = permitted.get(f"/api/agents/{DESK}/revisions/").json()["results"][0]["definition"]
    assert shown["system_prompt"] == "The secret prompt."


@pytest.mark.parametrize("name", ["nobody", GUARDED, "a%00b", "x" * 300])
def test_an_agent_that_is_not_there_for_the_user_is_not_found(client, name):
    for end in ("", "revisions/"):
        answer = client.get(f"/api/agents/{name}/{end}")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
        assert answer.content == client.get("/api/agents/none/").content
