"""Decide approvals from the admin: what a confirmation page shows, the decisions, and a report of what came of them.

Every decision is made by `approvals.decisions`, each in a transaction of its own: the same permission, lock
and record as on every other way. Nothing is decided by opening a page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.contrib import messages
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from agentcore import clock
from agentcore.admin import differences, display, extent, seen, votes
from agentcore.admin.differences import Change
from agentcore.admin.seen import Since
from agentcore.admin.ways import DOUBT, EDIT, WAYS, Text, Way
from agentcore.approvals import permissions, several
from agentcore.approvals.visible import made_visible
from agentcore.exceptions import AgentError, Conflict, NotFound, PermissionDenied
from agentcore.models import ToolApproval
from agentcore.states import ApprovalKind, ApprovalStatus

# A confirmed page sends two fields for each request, and Django takes 1,000 fields by default.
MAX_AT_ONCE = 400
MAX_REASONS = 10
MAX_NUMBERS = 20
MAX_DIGITS = 9
# No request gets this far: a decision with it is refused, and an attempt without the right is still on record as that.
NO_VERSION = 2**31 - 1

# What is wrong with what was typed is said beside it.
OF_THE_FORM = ("invalid_input", "too_large")
STATUS_OF_ERROR = {"conflict": 409, "too_large": 413, "rate_limited": 429}


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of a call nobody knows the end of; "" for what is not."""

    attempts: str
    error: str
    late_result: str


@dataclass(frozen=True, kw_only=True)
class Item:
    """One request as the confirmation page shows it. `obstacle` says why it would be refused, if it would.

    `elsewhere` says why it cannot be decided from this page: then the form does not send it along. `seen` is what
    the form sends along of what it shows, `since` what changed since the page before; `edited` is what another
    reviewer changed.
    """

    approval: ToolApproval
    key: str
    version: str
    url: str
    requester: str
    arguments: str
    preview: str
    warning: Text
    obstacle: Text
    elsewhere: Text
    has_changed: bool
    since: Since | None
    seen: str
    votes: Text
    edited: list[Change]
    known: Known | None


@dataclass(kw_only=True)
class Report:
    """What came of the decisions: ids by outcome, the reasons of the refusals, and the errors of what exists."""

    decided: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    refused: dict[str, list[int]] = field(default_factory=dict)
    errors: dict[int, AgentError] = field(default_factory=dict)

    @property
    def refused_count(self) -> int:
        return sum(len(numbers) for numbers in self.refused.values())


_VERSION_IS_MISSING = _("The version you saw is missing, please look again.")


def is_confirmed(request: HttpRequest) -> bool:
    """Say whether the request comes from the confirmation page, whose button decides."""
    return request.method == "POST" and "post" in request.POST


def offered(user: Any, approval: ToolApproval) -> list[Way]:
    """Return the ways to decide that are open to `user` as things stand; none to who has voted."""
    voted = votes.voted_on(user, [approval.pk])
    return [] if voted else [way for way in WAYS if not obstacle(user, approval, way, voted=voted)]


def why_not(user: Any, approval: ToolApproval) -> Text:
    """Return why `user` cannot decide the request in any way."""
    voted = votes.voted_on(user, [approval.pk])
    reasons = [obstacle(user, approval, way, voted=voted) for way in WAYS if way is not EDIT]
    return next((reason for reason in reasons if reason), "")


def obstacle(user: Any, approval: ToolApproval, way: Way, *, voted: Iterable[int]) -> Text:
    """Return why a decision would be refused as things stand, "" when nothing is known against it."""
    if approval.status != ApprovalStatus.PENDING:
        return _("Already %(status)s.") % {"status": approval.get_status_display().lower()}
    if not permissions.is_permitted(user, approval):
        return _("You do not have the permission to decide this request.")
    if permissions.is_own(user, approval):
        return _("Nobody decides on their own request: this one is yours, or its requester is not known any more.")
    if approval.expires_at is not None and approval.expires_at <= clock.now():
        return _("It expired.")
    if way is EDIT:
        return "" if approval.allow_edit else _("The arguments of this request may not be changed.")
    return votes.YOU_HAVE if approval.pk in voted else ""


def items(
    request: HttpRequest, way: Way, approvals: list[Any], url_of: Callable[[ToolApproval], str], *, is_alone: bool
) -> Iterator[Item]:
    """Yield the requests as the confirmation page shows them: that of one request, or that of many."""
    voted = {approval.pk for approval in approvals if approval.has_mine}
    for approval in approvals:
        version = request.POST.get(version_field(approval.pk))
        has_changed = version is not None and version != str(approval.version)
        yield Item(
            approval=approval,
            key=str(approval.pk),
            version=str(approval.version),
            url=url_of(approval),
            requester=display.person(approval.requester_name, approval.requester_key, approval.requester_id),
            arguments=extent.shown_arguments(approval),
            preview=extent.shown_preview(approval),
            warning=f"{DOUBT} {meaning}" if (meaning := way.meaning_for(approval)) else "",
            obstacle=obstacle(request.user, approval, way, voted=voted),
            elsewhere="" if is_alone else extent.why_not_here(way, approval),
            has_changed=has_changed,
            since=seen.since(request.POST, approval) if has_changed else None,
            seen=seen.pack(approval) if len(approvals) <= extent.FEW else "",
            votes="" if approval.votes_needed == 1 else votes.told(approval.given, approval.votes_needed),
            edited=differences.of_approval(approval) if is_alone else [],
            known=known(approval) if is_alone and approval.kind == ApprovalKind.OUTCOME else None,
        )


def known(approval: ToolApproval) -> Known:
    """Return what is known of how the call ended, secrets masked."""
    call = approval.call
    return Known(
        attempts=str(call.attempts),
        error=display.pretty(call.error, call.sensitive) if call.error is not None else "",
        late_result=display.pretty_result(call.late_result, call.sensitive) if call.late_result is not None else "",
    )


def held_back(user: Any, way: Way, approvals: Iterable[Any]) -> dict[int, Text]:
    """Return why those that a list's page cannot decide are refused; the attempts without the right go on, to be kept.

    The approvals are read by `extent.with_small_parts`.
    """
    reasons = {item.pk: extent.why_not_here(way, item) for item in approvals if _may_decide(user, item)}
    return {pk: reason for pk, reason in reasons.items() if reason}


def _may_decide(user: Any, approval: ToolApproval) -> bool:
    return permissions.is_permitted(user, approval) and not permissions.is_own(user, approval)


def version_field(approval_id: int) -> str:
    """Return the name of the form's field that holds the version a person saw."""
    return f"version_{approval_id}"


def decide(
    request: HttpRequest,
    way: Way,
    approval_ids: Iterable[int],
    *,
    visible: set[int],
    held: Mapping[int, Text] | None = None,
) -> Report:
    """Take the decisions of a confirmed page, each for itself, and return what came of them.

    An id outside `visible` is tried too, so that the attempt is on record; its refusal says no more than
    that there is no such request. Those `held` are refused for the reason given, without trying.
    """
    report, held = Report(), held or {}
    for approval_id in approval_ids:
        if approval_id in held:
            report.refused.setdefault(str(held[approval_id]), []).append(approval_id)
            continue
        version = _version(request.POST, approval_id)
        try:
            approval = several.one(approval_id, partial(way.decide, approval_id, request.user, request.POST, version))
            if version == NO_VERSION:
                raise Conflict(str(_VERSION_IS_MISSING))
        except AgentError as error:
            _refuse(report, approval_id, error, version, is_visible=approval_id in visible)
        else:
            report.decided.append(approval_id)
            if approval.status == ApprovalStatus.PENDING:
                report.waiting.append(approval_id)
    return report


def open_again(request: HttpRequest, way: Way, report: Report) -> list[int]:
    """Return what was refused and can be decided all the same: after another look, or with better words."""
    refused = ToolApproval.objects.filter(pk__in=report.errors).defer("arguments", "preview", "response")
    voted = votes.voted_on(request.user, report.errors)
    found = [item for item in refused.order_by("pk") if not obstacle(request.user, item, way, voted=voted)]
    return [item.pk for item in found]


def tell_alone(request: HttpRequest, way: Way, report: Report, *, is_of_the_form: bool = False) -> None:
    """Leave what came of one decision as a message; what is wrong with the form is said there."""
    if not report.refused:
        tell(request, way, report)
    for reason in report.refused:
        told = _("Please look at what you wrote below.") if is_of_the_form else made_visible(reason)
        messages.error(request, f"{way.refused}: {told}")


def tell(request: HttpRequest, way: Way, report: Report) -> None:
    """Leave the report as messages: the counts, then each reason once with the requests it holds for."""
    counts = {"decided": len(report.decided), "refused": report.refused_count}
    level = messages.SUCCESS if not report.refused else messages.WARNING if report.decided else messages.ERROR
    messages.add_message(request, level, way.done % counts)
    if report.waiting:
        messages.info(request, _("More votes are needed for %(numbers)s.") % {"numbers": _numbers(report.waiting)})
    for reason, numbers in list(report.refused.items())[:MAX_REASONS]:
        messages.warning(request, f"{_numbers(numbers)}: {made_visible(reason)}")


def _refuse(report: Report, approval_id: int, error: AgentError, version: Any, *, is_visible: bool) -> None:
    reason = _reason(error, version) if is_visible else _("There is no such request.")
    report.refused.setdefault(str(reason), []).append(approval_id)
    if is_visible:
        report.errors[approval_id] = error


def _reason(error: AgentError, version: Any) -> Text:
    if isinstance(error, NotFound):
        return _("There is no such request.")
    if version == NO_VERSION and not isinstance(error, PermissionDenied):
        return _VERSION_IS_MISSING
    return error.message


def _version(data: Mapping[str, Any], approval_id: int) -> Any:
    """Return the version the page showed. What is no number goes on as it is: the decision refuses it."""
    given = data.get(version_field(approval_id), "").strip()
    if not given:
        return NO_VERSION
    if not given.isdecimal() or len(given) > MAX_DIGITS:
        return given
    return int(given)


def _numbers(approval_ids: list[int]) -> str:
    shown = ", ".join(f"#{number}" for number in approval_ids[:MAX_NUMBERS])
    return shown if len(approval_ids) <= MAX_NUMBERS else f"{shown}, …"
