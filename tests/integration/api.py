"""What the API's tests share: clients, and an agent whose tools ask for approval in every way."""

from datetime import timedelta
from typing import Any

from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.authtoken.models import Token
from rest_framework.test import APIClient

from agentcore import ApprovalPolicy, agent, tool
from agentcore.testing import make_session
from agentcore.testing.agents import ledger

DECIDE = "agentcore.decide_toolapproval"
VIEW_ALL = "agentcore.view_agentsession"
DESK = "desk-agent"
GUARDED = "guarded-agent"


def client_of(user: Any) -> APIClient:
    """A program's client: it shows its token."""
    client = APIClient()
    token, _ = Token.objects.get_or_create(user=user)
    client.credentials(HTTP_AUTHORIZATION=f"Token {token.key}")
    return client


def browser_of(user: Any) -> APIClient:
    """A browser: a session cookie, and Django's check of cross-site requests."""
    client = APIClient(enforce_csrf_checks=True)
    client.force_login(user)
    return client


def with_csrf(client: APIClient) -> dict[str, str]:
    """The header that a page of our own sends along."""
    client.cookies["csrftoken"] = "a" * 32
    return {"HTTP_X_CSRFTOKEN": "a" * 32}


def queries_of(ask: Any, *, rows: int) -> int:
    """How many queries a list of so many rows took."""
    with CaptureQueriesContext(connection) as queries:
        answer = ask()
    assert len(answer.json()["results"]) == rows
    return len(queries)


def desk_session(user: Any = None) -> Any:
    return make_session(DESK, user=user)


@agent(name=DESK, description="Asks in every way", system_prompt="The secret prompt.", model="scripted:any")
class DeskAgent:
    __test__ = False

    @tool(description="Two must agree", requires_approval=True, approval=ApprovalPolicy(votes=2))
    def wire(self, amount: int) -> str:
        ledger.write("wire", amount)
        return "wired"

    @tool(description="Only for one team", requires_approval=True, approval=ApprovalPolicy(permission="auth.add_group"))
    def grant(self, group: str) -> str:
        ledger.write("grant", group)
        return "granted"

    @tool(description="One's own is fine", requires_approval=True, approval=ApprovalPolicy(four_eyes=False))
    def note(self, text: str) -> str:
        ledger.write("note", text)
        return "noted"

    @tool(description="As it is or not at all", requires_approval=True, approval=ApprovalPolicy(allow_edit=False))
    def stamp(self, page: int) -> str:
        ledger.write("stamp", page)
        return "stamped"

    @tool(
        description="Soon over",
        requires_approval=True,
        approval=ApprovalPolicy(expires_in=timedelta(minutes=5)),
    )
    def hurry(self, n: int) -> str:
        ledger.write("hurry", n)
        return "done"

    @tool(description="Fetch with secrets", requires_approval=True, sensitive=("pin",))
    def fetch(self, url: str, headers: dict[str, str], api_key: str, note: str, pin: str = "") -> dict[str, Any]:
        ledger.write("fetch", url, headers, api_key, note, pin)
        return {"token": api_key, "body": "ok"}


@agent(name=GUARDED, description="Not for everybody", model="scripted:any", permission="auth.add_group")
class GuardedAgent:
    __test__ = False
