"""What the tests of the reviewers' pages share: an agent with tools of each kind, clients, and a reader of pages."""

import re
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from html.parser import HTMLParser
from typing import Annotated, Any, Literal

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pydantic import BaseModel, Field

from agentcore import ApprovalPolicy, ToolContext, agent, tool
from agentcore.models import ToolApproval
from agentcore.testing import make_approval, make_session
from agentcore.testing.agents import ledger

DECIDE = "agentcore.decide_toolapproval"
LIST = "/reviews/"
VERDICTS = ("approve", "reject", "respond")


@agent(name="reviews-agent", description="For the tests of the reviewers' pages", model="scripted:any")
class ReviewsAgent:
    __test__ = False

    @tool(description="Send something", requires_approval=True, sensitive=("pin",))
    def send(
        self, to: str, ctx: ToolContext, body: str = "", options: dict[str, Any] | None = None, pin: str = ""
    ) -> str:
        ledger.write("send", to, body, options, pin)
        return "sent"

    @tool(description="Needs two", requires_approval=True, approval=ApprovalPolicy(votes=2))
    def launch(self, place: str) -> str:
        ledger.write("launch", place)
        return "launched"

    @tool(description="Needs two as well", requires_approval=True, approval=ApprovalPolicy(votes=2))
    def deliver(self, place: str, count: int = 1, key: dict[str, Any] | None = None) -> str:
        ledger.write("deliver", place, count)
        return "delivered"

    @tool(description="Of one team", requires_approval=True, approval=ApprovalPolicy(permission="auth.change_group"))
    def audit(self, team: str) -> str:
        return team

    @tool(description="One may decide alone", requires_approval=True, approval=ApprovalPolicy(four_eyes=False))
    def small(self, n: int) -> int:
        return n

    @tool(description="As it is", requires_approval=True, approval=ApprovalPolicy(allow_edit=False))
    def fixed(self, n: int) -> int:
        return n


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Line(BaseModel):
    item: str
    count: int = 1


@agent(name="typed-agent", description="Arguments of every type", model="scripted:any")
class TypedAgent:
    __test__ = False

    @tool(description="Takes all there is", requires_approval=True, sensitive=("pin",))
    def order(
        self,
        to: Annotated[str, Field(description="Who gets it", max_length=5_000)],
        count: Annotated[int, Field(gt=0)],
        price: Decimal,
        urgent: bool,
        size: Literal["small", "large"],
        day: date,
        at: datetime,
        colour: Colour = Colour.RED,
        lines: list[Line] | None = None,
        options: dict[str, Any] | None = None,
        note: str | None = None,
        rate: float = 1.5,
        either: int | str = 3,
        pin: str = "",
    ) -> str:
        ledger.write("order", to, count, price, pin)
        return "ordered"


ORDER = {
    "to": "acme\r\nBerlin ",
    "count": 3,
    "price": "49.90",
    "urgent": True,
    "size": "small",
    "day": "2026-12-24",
    "at": "2026-12-24T10:00:00+01:00",
    "lines": [{"item": "lamp", "count": 2}],
    "options": {"api_key": "k-9", "wrap": 1.25, "nested": {"password": "p-1"}},
    "pin": "p-4711",
}


def ask_order(user=None, **changes):
    session = make_session("typed-agent", user=user)
    return make_approval("order", {**ORDER, **changes}, session=session, user=user)


def logged_in(user, **options):
    client = Client(**options)
    client.force_login(user)
    return client


def ask(name, arguments, user=None, **fields):
    session = make_session("reviews-agent", user=user, **fields)
    return make_approval(name, arguments, session=session, user=user)


def address(approval, verdict=""):
    return f"/reviews/{approval.pk}/{verdict}{'/' if verdict else ''}"


def status_of(approval):
    return ToolApproval.objects.get(pk=approval.pk).status


def decide(client, approval, verdict="approve", **data):
    data = {"version": approval.version, **({"result": "done"} if verdict == "respond" else {}), **data}
    return client.post(address(approval, verdict), data)


class Reader(HTMLParser):
    """What a browser would make of a page: elements with their attributes, and the text."""

    def __init__(self, response):
        super().__init__(convert_charrefs=True)
        self.elements, self.text, self.sent = [], "", {}
        self._form, self._open = None, None
        self.feed(response.content.decode())

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.elements.append((tag, attrs))
        if tag == "form":
            self._form = self.sent.setdefault(attrs.get("data-decision", ""), {})
        elif self._form is not None and tag == "input" and attrs.get("type") not in ("checkbox", "submit"):
            self._form[attrs["name"]] = attrs.get("value", "")
        elif self._form is not None and tag in ("textarea", "select"):
            self._open = attrs["name"]
            self._form[self._open] = "" if tag == "textarea" else None
        elif self._open and tag == "option" and ("selected" in attrs or self._form[self._open] is None):
            self._form[self._open] = attrs["value"]

    def handle_endtag(self, tag):
        if tag == "form":
            self._form = None
        elif tag == "textarea" and self._open:
            # A browser drops the first line end, and sends the others as CRLF.
            text = re.sub("\r\n|\r|\n", "\n", self._form[self._open]).removeprefix("\n")
            self._form[self._open] = text.replace("\n", "\r\n")
        if tag in ("textarea", "select"):
            self._open = None

    def handle_data(self, data):
        self.text += data.replace("\xa0", " ")
        if self._open and self._form is not None and self._form[self._open] is not None and self.lasttag == "textarea":
            self._form[self._open] += data

    def all(self, tag):
        return [attrs for name, attrs in self.elements if name == tag]

    def fields(self, name="edit"):
        """Return what a browser would send of the form that has a button for it, by the forms' decision."""
        return self.sent.get(name, {})

    def forms(self):
        return [attrs["action"] for attrs in self.all("form") if re.search(r"/[0-9]+/", attrs["action"])]


def ids_on(response):
    """Return the ids of the requests that a list shows."""
    found = [attrs["data-request"] for attrs in Reader(response).all("li") if "data-request" in attrs]
    return [int(number) for number in found if number != "0"]


def count_queries(client, path):
    with CaptureQueriesContext(connection) as captured:
        assert client.get(path).status_code == 200
    return len(captured)
