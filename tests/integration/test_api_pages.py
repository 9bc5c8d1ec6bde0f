"""Pages that neither repeat nor skip a row."""

import base64

import pytest

from agentcore.models import AgentSession
from agentcore.testing import make_approval, make_session, make_user
from tests.integration.api import DECIDE, client_of

pytestmark = pytest.mark.django_db


def walk(client, path):
    while path:
        page = client.get(path).json()
        yield page
        path = page["next"]


def test_ten_05_each_unchanged_request_is_seen_exactly_once_while_others_come_and_go():
    owner = make_user()
    client = client_of(make_user(permissions=(DECIDE,)))
    asked = [make_approval(user=owner) for _ in range(95)]
    type(asked[0]).objects.update(requested_at=asked[0].requested_at, updated_at=asked[0].requested_at)
    decided = [asked[90].pk, asked[70].pk, asked[50].pk, asked[30].pk, asked[10].pk]
    seen = []
    for number, page in enumerate(walk(client, "/api/approvals/?status=pending&page_size=10")):
        seen += [item["id"] for item in page["results"]]
        if number < 5:
            make_approval(user=owner)
            client.post(f"/api/approvals/{decided[number]}/reject/", {})
    unchanged = [approval.pk for approval in asked if approval.pk not in decided]
    assert len(unchanged) == 90
    assert [number for number in seen if number in unchanged] == sorted(unchanged, reverse=True)
    assert len(seen) == len(set(seen))


def test_pages_are_walked_back_as_they_were_walked():
    owner = make_user()
    client = client_of(owner)
    every = [make_session(user=owner).session_id for _ in range(7)][::-1]
    pages = list(walk(client, "/api/sessions/?page_size=3"))
    assert [[item["session_id"] for item in page["results"]] for page in pages] == [every[:3], every[3:6], every[6:]]
    assert pages[0]["previous"] is None
    assert pages[2]["next"] is None
    back = client.get(pages[2]["previous"]).json()
    assert [item["session_id"] for item in back["results"]] == every[3:6]
    assert [item["session_id"] for item in client.get(back["previous"]).json()["results"]] == every[:3]


def test_a_page_has_fifty_rows_unless_asked_and_never_more_than_two_hundred():
    owner = make_user()
    client = client_of(owner)
    template = make_session(user=owner)
    AgentSession.objects.bulk_create(
        AgentSession(
            session_id=f"s-{number}",
            agent=template.agent,
            revision=template.revision,
            user=owner,
            created_at=template.created_at,
            updated_at=template.updated_at,
        )
        for number in range(210)
    )
    sizes = [
        len(client.get(f"/api/sessions/{query}").json()["results"])
        for query in ("", "?page_size=7", "?page_size=200", "?page_size=5000")
    ]
    assert sizes == [50, 7, 200, 200]


@pytest.mark.parametrize(
    "token", ["p=abc", "p=-1", "p=1.5", "p=9" + "9" * 30, "p=%00", "o=-1&p=1", "o=x", "p=١", "p=2000-01-01"]
)
def test_a_cursor_that_no_page_gave_out_is_invalid_input(token):
    cursor = base64.b64encode(token.encode()).decode()
    answer = client_of(make_user()).get("/api/sessions/", {"cursor": cursor})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")
    assert answer.json()["details"]["field"] == "cursor"
