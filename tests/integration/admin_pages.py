"""What the tests of the admin share: an agent, staff of all kinds, and pages read as a browser would."""

import uuid
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any

from django.db.models import Model
from django.test import Client
from django.urls import reverse

from agentcore import ApprovalPolicy, agent, canonical, tool
from agentcore.models import (
    Agent,
    AgentContext,
    AgentRevision,
    AgentSession,
    AgentStep,
    ApprovalDecision,
    ContextEntry,
    Memory,
    SessionEvent,
    ToolApproval,
    ToolCall,
    UserQuestion,
)
from agentcore.testing import make_user
from agentcore.testing.agents import ledger

MODELS = (
    Agent,
    AgentRevision,
    AgentSession,
    AgentContext,
    ContextEntry,
    AgentStep,
    ToolCall,
    ToolApproval,
    ApprovalDecision,
    UserQuestion,
    SessionEvent,
    Memory,
)
DECIDE = "agentcore.decide_toolapproval"
VIEW = "agentcore.view_toolapproval"
VIEW_ALL = tuple(f"agentcore.view_{model._meta.model_name}" for model in MODELS)
# A permission that the tool of another team asks for.
TEAM = "agentcore.view_metrics"
ADMIN_AGENT = "admin-agent"


@agent(name=ADMIN_AGENT, model="scripted:any")
class AdminAgent:
    @tool(requires_approval=True, sensitive=("pin",))
    def fetch(self, url: str, headers: dict[str, str], api_key: str, pin: str, note: str) -> dict[str, str]:
        """Fetch a page with secrets"""
        ledger.write("fetch", headers["Authorization"], api_key, pin)
        return {"fetched": url, "token": "t-77", "pin": pin}

    @tool(requires_approval=True, approval=ApprovalPolicy(permission=TEAM))
    def team_pay(self, amount: int) -> str:
        """Pay for a team"""
        ledger.write("team_pay", amount)
        return "paid"

    @tool(requires_approval=True, approval=ApprovalPolicy(votes=2))
    def launch(self, name: str) -> str:
        """Needs two people"""
        ledger.write("launch", name)
        return "launched"

    @tool(requires_approval=True, approval=ApprovalPolicy(four_eyes=False))
    def tidy(self, name: str) -> str:
        """May be allowed by who asked"""
        ledger.write("tidy", name)
        return "tidied"

    @tool(requires_approval=True, approval=ApprovalPolicy(expires_in=timedelta(hours=1)))
    def hurry(self, name: str) -> str:
        """Expires soon"""
        ledger.write("hurry", name)
        return "hurried"

    @tool(requires_approval=True)
    def say(self, body: Any) -> str:
        """Say something of any shape"""
        ledger.write("say", canonical.byte_size(body))
        return "said"


class Page(HTMLParser):
    """A page as a browser sees it: its elements, its text, its text areas, and what its main form would send."""

    def __init__(self, response: Any) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.pieces: list[str] = []
        self.messages: list[str] = []
        self._in_messages = False
        self._form: str | None = None
        self._area: str | None = None
        self.areas: dict[str, str] = {}
        self.forms: dict[str, list[tuple[str, str]]] = {}
        self.feed(response.content.decode())

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def links(self) -> list[str]:
        return [attributes["href"] or "" for tag, attributes in self.elements if tag == "a" and "href" in attributes]

    @property
    def pages(self) -> list[str]:
        """Return the links without what says from where one came."""
        return [link.partition("?")[0] for link in self.links]

    def sent_by(self, marker: str) -> dict[str, list[str]]:
        """Return what the form that holds a field named `marker` would send."""
        [fields] = [fields for fields in self.forms.values() if marker in dict(fields)]
        data: dict[str, list[str]] = {}
        for name, value in fields:
            data.setdefault(name, []).append(value)
        return data

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        if tag == "ul":
            self._in_messages = attributes.get("class") == "messagelist"
        elif tag == "li" and self._in_messages:
            self.messages.append("")
        if tag == "textarea":
            self._area = attributes["name"] or ""
            self.areas[self._area] = ""
        if tag == "form":
            self._form = f"form {len(self.forms)}"
            self.forms[self._form] = []
        elif self._form and tag in ("input", "textarea", "select") and attributes.get("name"):
            if attributes.get("type") not in ("checkbox", "submit"):
                self.forms[self._form].append((attributes["name"] or "", attributes.get("value") or ""))

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea" and self._area is not None:
            # The line feed after the tag is not part of the text.
            self.areas[self._area] = self.areas[self._area].removeprefix("\n")
            self._area = None
        if tag == "form":
            self._form = None
        elif tag == "ul":
            self._in_messages = False

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)
        if self._area is not None:
            self.areas[self._area] += data
        if self._in_messages and self.messages:
            self.messages[-1] += data.strip()


def staff(*permissions: str, **fields: Any) -> Client:
    """Return a browser in which a new member of staff with these permissions is logged in."""
    return logged_in(make_user(permissions=permissions, is_staff=True, **fields))


def superuser() -> Client:
    return logged_in(make_user(is_staff=True, is_superuser=True))


def logged_in(user: Any, **options: Any) -> Client:
    client = Client(**options)
    client.force_login(user)
    client.user = user  # type: ignore[attr-defined]
    return client


def list_url(model: type[Model]) -> str:
    return reverse(f"admin:agentcore_{model._meta.model_name}_changelist")


def page_url(record: Model, page: str = "change") -> str:
    return reverse(f"admin:agentcore_{record._meta.model_name}_{page}", args=[record.pk])


def statuses() -> list[str]:
    return list(ToolApproval.objects.order_by("pk").values_list("status", flat=True))


def said(response: Any) -> list[str]:
    """Return the messages that the page after a post shows."""
    return Page(response).messages


def choose(client: Client, action: str, approvals: Any, query: str = "", **data: Any) -> Any:
    """Post an action from the list; the answer is the confirmation page."""
    chosen = {"action": action, "index": "0", "_selected_action": [item.pk for item in approvals], **data}
    return client.post(list_url(ToolApproval) + query, chosen)


def confirm(client: Client, page: Any, url: str, **text: str) -> Any:
    """Press the button of a confirmation page."""
    return client.post(url, {**Page(page).sent_by("post"), **text}, follow=True)


def act(client: Client, action: str, approvals: Any, **text: str) -> list[str]:
    """Choose an action, confirm it, and return the messages."""
    return said(confirm(client, choose(client, action, approvals), list_url(ToolApproval), **text))


def copy_story(approval: ToolApproval) -> ToolApproval:
    """Return a copy of an approval with a session, turn, step, call, entry, decision and event of its own."""
    user = make_user()
    owner = {"user_id": user.pk, "user_key": str(user.pk), "user_name": user.username}
    session = _copy(approval.session, session_id=f"s-{uuid.uuid4().hex}", **owner)
    turn = _copy(
        approval.turn,
        execution_id=uuid.uuid4(),
        session_id=session.pk,
        active_session_id=session.pk,
        idempotency_digest=uuid.uuid4().hex,
        **owner,
    )
    step = _copy(approval.call.step, turn_id=turn.pk)
    call = _copy(approval.call, turn_id=turn.pk, step_id=step.pk, call_id=f"call_{uuid.uuid4().hex}")
    requester = {"requester_id": user.pk, "requester_key": str(user.pk), "requester_name": user.username}
    copied = _copy(approval, session_id=session.pk, turn_id=turn.pk, call_id=call.pk, **requester)
    for model, fields in (
        (ContextEntry, {"turn_id": turn.pk}),
        (UserQuestion, {"turn_id": turn.pk, "call_id": call.pk}),
        (ApprovalDecision, {"approval_id": copied.pk, "actor_id": user.pk, "actor_key": str(user.pk)}),
        (SessionEvent, {"session_id": session.pk, "turn_id": turn.execution_id}),
        (Memory, {**owner, "digest": uuid.uuid4().hex * 2}),
    ):
        if (record := model.objects.order_by("pk").last()) is not None:
            _copy(record, **fields)
    revision = AgentRevision.objects.order_by("pk").last()
    _copy(revision, number=revision.number + 1, hash=uuid.uuid4().hex * 2)
    return copied


def _copy(record: Any, **changes: Any) -> Any:
    fields = {field.attname: getattr(record, field.attname) for field in record._meta.concrete_fields}
    del fields["id"]
    return type(record).objects.create(**{**fields, **changes})
