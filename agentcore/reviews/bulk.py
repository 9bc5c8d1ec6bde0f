"""Decide many requests at once: each for itself, by the one decision path, with the version that was seen."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from django import forms
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from agentcore.approvals import decisions, several
from agentcore.approvals.verdicts import MAX_NOTE
from agentcore.exceptions import AgentError
from agentcore.models import ToolApproval
from agentcore.pages import View
from agentcore.reviews import deciding, filters, showing, waiting, words
from agentcore.reviews.forms import StrictForm, TextField
from agentcore.reviews.guards import guarded, posted
from agentcore.states import ApprovalKind, ApprovalStatus, Channel

MAX_AT_ONCE = 200
APPROVE, REJECT = "approve", "reject"

_CHOSEN = re.compile(r"([0-9]{1,18}):([0-9]{1,9})", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one decision. `tool` is "" where there is no such request for this person."""

    id: int
    tool: str
    text: str
    is_decided: bool


class BulkForm(StrictForm):
    """`chosen` holds each request with the version that was seen, as "12:1"; `note` is the reason of a rejection."""

    verdict = forms.ChoiceField(choices=[(APPROVE, APPROVE), (REJECT, REJECT)])
    note = TextField(label=gettext_lazy("Note, or reason"), rows=2, max_length=MAX_NOTE)

    sent_besides = StrictForm.sent_besides | {"chosen"}

    def clean(self) -> dict[str, Any]:
        given = super().clean()
        found = [_CHOSEN.fullmatch(item) for item in self._chosen()]
        if not found:
            raise forms.ValidationError(_("Select the requests first."))
        if len(found) > MAX_AT_ONCE:
            raise forms.ValidationError(_("At most %(most)d requests at once.") % {"most": MAX_AT_ONCE})
        if not all(found):
            raise forms.ValidationError(_("The version you saw is missing, please look again."))
        # Twice the same is once.
        return {**given, "chosen": {int(item[1]): int(item[2]) for item in found if item}}

    def _chosen(self) -> list[str]:
        # Any mapping may be a form's data; one that came by a request holds lists.
        return self.data.getlist("chosen") if isinstance(self.data, QueryDict) else []


def _each_for_itself(view: View) -> View:
    """Keep a view out of ATOMIC_REQUESTS: each decision has a transaction of its own."""
    for alias in connections:
        view = transaction.non_atomic_requests(using=alias)(view)
    return view


@_each_for_itself
@guarded
@posted
def decide(request: HttpRequest) -> HttpResponse:
    """Approve or reject what was selected in the list, and report what came of each."""
    form = BulkForm(request.POST)
    if not form.is_valid():
        problems = " ".join(str(problem) for found in form.errors.values() for problem in found)
        return _report(request, [], problems=problems)
    given = form.cleaned_data
    listed = waiting.find_listed(request.user, list(given["chosen"]))
    outcomes = [
        _decide(request.user, approval_id, version, listed.get(approval_id), given["verdict"], given["note"])
        for approval_id, version in given["chosen"].items()
    ]
    return _report(request, outcomes, verdict=given["verdict"], note=given["note"])


def _decide(user: Any, approval_id: int, version: int, listed: Any, verdict: str, note: str) -> Outcome:
    tool = listed.tool if listed else ""
    if listed and listed.kind == ApprovalKind.OUTCOME:
        text = _("Not decided: nobody knows how this call ended. Decide it on its own page.")
        return Outcome(id=approval_id, tool=tool, text=text, is_decided=False)
    if listed and verdict == APPROVE and not showing.shows_all(listed):
        text = _("Not approved: the list does not show all of it. Open it first.")
        return Outcome(id=approval_id, tool=tool, text=text, is_decided=False)
    # One that is not listed was not shown: it is tried, so that the attempt is on record, with no version that fits.
    version = version if listed else deciding.NO_VERSION

    def decide() -> ToolApproval:
        if verdict == APPROVE:
            return decisions.approve(approval_id, user, note=note, version=version, channel=Channel.PAGE)
        return decisions.reject(approval_id, user, reason=note, version=version, channel=Channel.PAGE)

    try:
        approval = several.one(approval_id, decide)
    except AgentError as error:
        text = error.message if listed else _("There is no such request.")
        return Outcome(id=approval_id, tool=tool, text=text, is_decided=False)
    return Outcome(id=approval_id, tool=tool, text=_told(approval), is_decided=True)


def _told(approval: ToolApproval) -> str:
    if approval.status == ApprovalStatus.APPROVED:
        return _("Approved.")
    return _("Rejected.") if approval.status == ApprovalStatus.REJECTED else _("Your vote counts; it waits for others.")


def _report(request: HttpRequest, outcomes: list[Outcome], *, problems: str = "", **given: str) -> HttpResponse:
    context = {
        **given,
        "words": words.as_json(),
        "outcomes": outcomes,
        "decided": sum(outcome.is_decided for outcome in outcomes),
        "refused": sum(not outcome.is_decided for outcome in outcomes),
        "problems": problems,
        "queue": deciding.queue_address(request),
        "carry": filters.carried(request).carry(),
    }
    return render(request, "agentcore/reviews/decided.html", context, status=400 if problems else 200)
