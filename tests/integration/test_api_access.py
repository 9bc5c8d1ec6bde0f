"""Nothing of another's is there: over every route there is, so that a new one is covered too."""

import uuid
from itertools import product

import pytest
from django.urls import get_resolver
from rest_framework.test import APIClient

from agentcore.api.base import ApiView
from agentcore.api.urls import urlpatterns
from agentcore.memory import Item, Owner, Source, current
from agentcore.models import AgentContext, AgentSession, ApprovalDecision, Memory, SessionEvent, ToolApproval
from agentcore.testing import make_approval, make_session, make_user
from tests.integration.api import DECIDE, GUARDED, browser_of, client_of

pytestmark = pytest.mark.django_db

METHODS = ["get", "post", "put", "patch", "delete", "options", "head"]
FORMATS = ["application/json", "text/html"]
BODIES = [
    {},
    {"message": "x"},
    {"result": 1},
    {"title": "taken over"},
    {"text": "taken over"},
    {"status": "approved", "owner": 2, "state": {}},
]


def routes(patterns=None, prefix="/"):
    """Yield the path of every API route of the project, with its converters' names in braces."""
    for entry in get_resolver().url_patterns if patterns is None else patterns:
        path = prefix + str(entry.pattern)
        if hasattr(entry, "url_patterns"):
            yield from routes(entry.url_patterns, path)
        elif issubclass(getattr(entry.callback, "cls", object), ApiView):
            yield path.replace("<str:", "{").replace(">", "}")


WITH_IDS = sorted(path for path in routes() if "{" in path)
WITHOUT_IDS = sorted(path for path in routes() if "{" not in path)


@pytest.fixture
def foreign():
    """What belongs to another, by the names that routes give it."""
    owner = make_user("victim")
    session = make_session(user=owner, title="top secret", session_id="theirs", metadata={"k": "top secret"})
    approval = make_approval("pay", {"amount": 77, "to": "top secret"}, session=session, user=owner)
    [kept] = current().remember(Owner.of_user(owner), [Item(kind="fact", text="top secret")], source=Source())
    return {
        "session_id": "theirs",
        "execution_id": str(approval.turn.execution_id),
        "id": str(approval.pk),
        "memory_id": str(kept.id),
        "name": GUARDED,
    }


@pytest.fixture
def absent():
    return {
        "session_id": "nowhere",
        "execution_id": str(uuid.uuid4()),
        "id": "99999999",
        "memory_id": "99999998",
        "name": "nobody",
    }


def fill(path, ids):
    return path.format(**ids)


def rows():
    return [
        list(model.objects.order_by("pk").values())
        for model in (AgentSession, AgentContext, Memory, ToolApproval, SessionEvent)
    ]


def test_ten_01_the_table_holds_every_route():
    assert len(WITH_IDS) + len(WITHOUT_IDS) == len(urlpatterns)
    assert "/api/approvals/{id}/approve/" in WITH_IDS


@pytest.mark.parametrize("path", WITH_IDS)
def test_ten_01_anothers_is_answered_like_what_does_not_exist(foreign, absent, path):
    stranger = client_of(make_user())
    before = rows()
    for method, accept in product(METHODS, FORMATS):
        for body in [{}] if method in ("get", "head", "options") else BODIES:
            send = getattr(stranger, method)
            theirs = send(fill(path, foreign), body, HTTP_ACCEPT=accept)
            nothing = send(fill(path, absent), body, HTTP_ACCEPT=accept)
            assert theirs.status_code == nothing.status_code, (method, accept, body)
            assert theirs.status_code in (400, 403, 404, 405)
            assert theirs.headers.get("Allow") == nothing.headers.get("Allow")
            assert b"top secret" not in theirs.content
            assert theirs.content == nothing.content or accept == "text/html"
    assert rows() == before
    # Attempts to decide are kept, and count for nothing.
    assert not ApprovalDecision.objects.exclude(refusal="permission_denied").exists()


@pytest.mark.parametrize("method", METHODS)
def test_ten_01_who_is_not_logged_in_gets_nowhere(foreign, absent, method):
    before = rows()
    for path in [fill(path, ids) for path in WITH_IDS for ids in (foreign, absent)] + WITHOUT_IDS:
        answer = getattr(APIClient(), method)(path, {})
        if path == "/api/health/":
            assert answer.status_code in (200, 405)
        else:
            assert answer.status_code == 401
            assert b"top secret" not in answer.content
    assert rows() == before


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
def test_ten_01_a_browser_without_the_csrf_token_changes_nothing(method):
    owner = make_user("owner", permissions=(DECIDE,))
    approval = make_approval(user=make_user())
    session = make_session(user=owner, session_id="mine")
    [kept] = current().remember(Owner.of_user(owner), [Item(kind="fact", text="mine")], source=Source())
    ids = {
        "memory_id": kept.id,
        "session_id": "mine",
        "execution_id": str(approval.turn.execution_id),
        "id": approval.pk,
        "name": "x",
    }
    before, browser = rows(), browser_of(owner)
    for path in [fill(path, ids) for path in WITH_IDS] + [path for path in WITHOUT_IDS if path != "/api/health/"]:
        answer = getattr(browser, method)(path, {"agent": session.agent.name})
        assert answer.status_code == 403
    assert rows() == before


@pytest.mark.parametrize(
    "path", ["/api/sessions/", "/api/approvals/", "/api/memory/", "/api/memory/search/?q=top+secret"]
)
def test_ten_01_no_list_shows_what_is_anothers(foreign, path):
    joint = "&" if "?" in path else "?"
    answer = client_of(make_user()).get(f"{path}{joint}session_id=theirs&agent=testing-agent&status=")
    assert answer.json()["results"] == []


def test_ten_03_a_decision_cannot_carry_anything_else(foreign):
    reviewer = client_of(make_user(permissions=(DECIDE,)))
    before = rows()
    for name, value in {
        "status": "approved",
        "owner": 2,
        "approved_by": 1,
        "by": 1,
        "role": "system",
        "state": {},
        "session": 1,
        "created_at": "2000-01-01",
        "votes_needed": 0,
        "four_eyes": False,
    }.items():
        answer = reviewer.post(f"/api/approvals/{foreign['id']}/approve/", {name: value})
        assert answer.status_code == 400
        assert name in answer.json()["message"]
    assert rows() == before
