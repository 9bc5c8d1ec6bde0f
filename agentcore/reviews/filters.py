"""Which part of the queue a person looks at: from the address, and back into one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, QueryDict
from django.utils.translation import gettext as _

from agentcore import clock
from agentcore.models import DECIDE_PERMISSION, VIEW_PERMISSION
from agentcore.models.approvals import ApprovalQuerySet

AGES = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}
DECIDE, OWN, ALL = "decide", "own", "all"
# More names than this are typed, not chosen.
MAX_CHOICES = 50
MAX_NAME = 255
MAX_CARRIED = 2_000


@dataclass(frozen=True, kw_only=True)
class Filter:
    """What is asked for; "" leaves a question open. `whose`: decide, own or all."""

    tool: str = ""
    agent: str = ""
    age: str = ""
    whose: str = ""

    @property
    def is_empty(self) -> bool:
        return not any((self.tool, self.agent, self.age, self.whose))

    @property
    def age_seconds(self) -> int:
        return int(AGES[self.age].total_seconds()) if self.age in AGES else 0

    def pairs(self) -> dict[str, str]:
        """Return the parameters of an address that asks for the same."""
        found = {"tool": self.tool, "agent": self.agent, "age": self.age, "mine": self.whose}
        return {name: value for name, value in found.items() if value}

    def narrow(self, visible: ApprovalQuerySet, user: Any) -> ApprovalQuerySet:
        """Keep what the filter asks for."""
        if self.tool:
            visible = visible.filter(tool=self.tool)
        if self.agent:
            visible = visible.filter(agent__name=self.agent)
        if self.age and self.age not in AGES:
            # As of a tool that does not exist.
            return visible.none()
        if self.age:
            visible = visible.filter(requested_at__lte=clock.now() - AGES[self.age])
        return visible.filter(requester_key=str(user.pk)) if self.whose == OWN else visible


@dataclass(frozen=True, kw_only=True)
class Place:
    """A page of the queue: the filter, the order, and the id it begins after."""

    filter: Filter
    newest_first: bool = False
    edge: int | None = None

    def query(self, **changes: Any) -> str:
        """Return the query of the address of this place, or of one that differs by `changes`."""
        wanted = {"newest_first": self.newest_first, "edge": None, "filter": self.filter, **changes}
        pairs = wanted["filter"].pairs()
        if wanted["newest_first"]:
            pairs["order"] = "newest"
        if wanted["edge"] is not None:
            pairs["before" if wanted["newest_first"] else "after"] = str(wanted["edge"])
        return urlencode(pairs)

    def here(self) -> str:
        return self.query(edge=self.edge)

    def carry(self) -> str:
        """Return what is added to the address of a request, so that it leads back here; "" from the beginning."""
        return f"?{urlencode({'in': self.here()})}" if self.here() else ""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What the filter offers. Names that are too many to choose from are None: they are typed."""

    tools: list[str] | None
    agents: list[str] | None
    ages: list[tuple[str, str]]
    whose: list[tuple[str, str]]


def place_of(parameters: Mapping[str, str], user: Any) -> Place:
    """Read an address. What it does not understand, it takes for not asked."""
    newest_first = parameters.get("order") == "newest"
    return Place(
        filter=Filter(
            tool=_name(parameters.get("tool", "")),
            agent=_name(parameters.get("agent", "")),
            age=_name(parameters.get("age", "")),
            whose=_one_of(parameters.get("mine", ""), [value for value, _label in _whose(user)]),
        ),
        newest_first=newest_first,
        edge=_edge(parameters.get("before" if newest_first else "after", "")),
    )


def carried(request: HttpRequest) -> Place:
    """Return the part of the queue that a request's page or form was reached from: of its beginning when unknown.

    Only the list's own parameters are read from it, so that it leads nowhere else.
    """
    given = request.GET.get("in", "") if request.method in ("GET", "HEAD") else _sent(request)
    return place_of(QueryDict(given[:MAX_CARRIED]), request.user)


def _sent(request: HttpRequest) -> str:
    return request.POST.get("from", "").partition("?")[2]


def scope(pending: ApprovalQuerySet, user: Any, whose: str) -> ApprovalQuerySet:
    """Return the requests that the rest of the filter chooses from: what is there for `user`, four eyes aside."""
    if whose == DECIDE:
        return pending.for_reviewer(user)
    if whose == ALL or not user.has_perm(DECIDE_PERMISSION):
        return pending.visible_to(user)
    return pending.permitted_to(user)


def choices(visible: ApprovalQuerySet, user: Any, chosen: Filter) -> Choices:
    """Return what there is to choose from among `visible`; what is chosen stays among it."""
    return Choices(
        tools=_names(visible, "tool", chosen.tool),
        agents=_names(visible, "agent__name", chosen.agent),
        ages=[
            ("hour", _("waiting for over 1 hour")),
            ("day", _("waiting for over 1 day")),
            ("week", _("waiting for over 1 week")),
            *([(chosen.age, chosen.age)] if chosen.age and chosen.age not in AGES else []),
        ],
        whose=_whose(user),
    )


def _names(visible: ApprovalQuerySet, column: str, chosen: str) -> list[str] | None:
    names = visible.order_by(column).values_list(column, flat=True).distinct()
    found = set(names[: MAX_CHOICES + 1])
    if len(found) > MAX_CHOICES:
        return None
    return sorted(found | ({chosen} if chosen else set()))


def _whose(user: Any) -> list[tuple[str, str]]:
    offered = [(DECIDE, _("that I may decide")), (OWN, _("that I asked for"))]
    return [*offered, (ALL, _("all that I may see"))] if user.has_perm(VIEW_PERMISSION) else offered


def _one_of(given: str, allowed: Any) -> str:
    return given if given in allowed else ""


def _name(given: str) -> str:
    # PostgreSQL takes no NUL, not even to compare with.
    return "" if "\0" in given or len(given) > MAX_NAME else given.strip()


def _edge(given: str) -> int | None:
    return int(given) if given.isascii() and given.isdigit() and len(given) < 19 else None
