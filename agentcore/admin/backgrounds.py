"""What helps a person to decide, as the page of one approval shows it to its reader."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db.models import Model

from agentcore.admin import display
from agentcore.approvals import background
from agentcore.approvals.background import Subject
from agentcore.models import ToolApproval
from agentcore.states import ApprovalStatus

UrlOf = Callable[[type[Model], Any], str]


@dataclass(frozen=True, kw_only=True)
class ShownSubject:
    """A row the call is about. `label` is "" when it is withheld, `url` "" when there is no page to lead to."""

    kind: str
    label: str
    url: str


@dataclass(frozen=True, kw_only=True)
class ShownEarlier:
    """An earlier decision on the same call."""

    number: str
    url: str
    status: str
    by: str
    note: str
    at: Any


@dataclass(frozen=True, kw_only=True)
class Background:
    """Everything, ready for the template."""

    asked: str
    said: str
    subjects: list[ShownSubject]
    earlier: list[ShownEarlier]
    tally: dict[str, str]
    tool: str


def of(approval: ToolApproval, user: Any, url_of: UrlOf) -> Background:
    """Return the background of a request as `user` may see it; `url_of` gives the address of a record's page, or ""."""
    said = background.said_with(approval)
    return Background(
        asked=display.message(approval.turn.input),
        said=display.block(said) if said else "",
        subjects=[_subject(subject, url_of) for subject in background.subjects(approval, user)],
        earlier=[_earlier(item, url_of) for item in background.earlier(approval, user)],
        tally={status: str(count) for status, count in background.tally(approval).items()},
        tool=display.marked(approval.tool),
    )


def _subject(subject: Subject, url_of: UrlOf) -> ShownSubject:
    url = url_of(subject.model, subject.object_key) if subject.model and subject.label else ""
    return ShownSubject(kind=display.marked(subject.kind), label=display.marked(subject.label), url=url)


def _earlier(item: background.Earlier, url_of: UrlOf) -> ShownEarlier:
    return ShownEarlier(
        number=str(item.approval_id),
        url=url_of(ToolApproval, item.approval_id),
        status=str(ApprovalStatus(item.status).label),
        by=display.marked(item.by),
        note=display.marked(item.note),
        at=item.at,
    )
