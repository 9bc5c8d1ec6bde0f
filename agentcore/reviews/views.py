"""What there is to look at: the queue, and one request in full. Deciding has views of its own."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from agentcore.exceptions import AgentError
from agentcore.models import DECIDE_PERMISSION, VIEW_PERMISSION, ToolApproval
from agentcore.reviews import filters, seen, showing, waiting, words
from agentcore.reviews.filters import Filter
from agentcore.reviews.forms import ApproveForm, DecisionForm, EditForm, JsonForm, RejectForm, RespondForm
from agentcore.reviews.guards import UNDECIDED, guarded
from agentcore.reviews.stale import Stale

WRITTEN = ("note", "reason", "result")
STATUS_OF_ERROR = {"permission_denied": 403, "conflict": 409, "too_large": 413, "rate_limited": 429}


@guarded
@require_safe
def queue(request: HttpRequest) -> HttpResponse:
    """List what waits, the longest waiting first; `?order=newest` turns it round, `tool`, `agent`… filter it."""
    if not any(request.user.has_perm(name) for name in (DECIDE_PERMISSION, VIEW_PERMISSION)):
        return _forbidden(request)
    place = filters.place_of(request.GET, request.user)
    page = waiting.read_page(request.user, place)
    context = {
        "rows": [showing.row(approval, request.user) for approval in page.approvals],
        "blank_row": showing.BLANK_ROW,
        "tally": waiting.tally(request.user),
        "place": place,
        "carry": place.carry(),
        "choices": page.choices,
        "unroutable": page.unroutable,
        "fitting": page.fitting,
        "may_decide": request.user.has_perm(DECIDE_PERMISSION),
        "next_edge": page.next_edge,
        "addresses": {
            "here": place.here(),
            "oldest": place.query(newest_first=False),
            "newest": place.query(newest_first=True),
            "first": place.query(),
            "next": place.query(edge=page.next_edge),
            "unfiltered": place.query(filter=Filter()),
        },
        "is_first_page": place.edge is None,
        "words": words.as_json(),
        "messages": messages.get_messages(request),
        "was_logged_out": UNDECIDED in request.GET,
    }
    return render(request, "agentcore/reviews/list.html", context)


@guarded
@require_safe
def detail(request: HttpRequest, approval_id: int) -> HttpResponse:
    """Show a request with all that a decision needs; what is not this person's to see does not exist."""
    approval = waiting.find_visible(request.user, approval_id)
    if approval is None:
        return missing_page(request)
    return detail_page(request, approval)


def detail_page(
    request: HttpRequest,
    approval: ToolApproval,
    *,
    error: AgentError | None = None,
    stale: Stale | None = None,
    edit_form: EditForm | None = None,
    wrong: tuple[type[DecisionForm], str] | None = None,
) -> HttpResponse:
    """Show a request; after a refusal with the reason, what changed meanwhile, and what the person had written."""
    shown, place = showing.detail(approval, request.user), filters.carried(request)
    context = {
        "detail": shown,
        "approval": approval,
        "error": error,
        "stale": stale,
        "neighbours": waiting.neighbours(request.user, approval.pk, place),
        "place": place,
        "carry": place.carry(),
        "words": words.as_json(),
        "messages": messages.get_messages(request),
        "was_logged_out": UNDECIDED in request.GET,
        "unsent": _unsent(request) if shown.obstacle else [],
        **_forms(request, shown, edit_form),
    }
    for form in context.values():
        if wrong is not None and type(form) is wrong[0]:
            focus_on(form, wrong[1])
    status = STATUS_OF_ERROR.get(error.code, 400) if error else 200
    return render(request, "agentcore/reviews/detail.html", context, status=status)


def focus_on(form: DecisionForm, name: str) -> None:
    """Have a field of the form take the focus when the page is there."""
    if name in form.fields:
        form.fields[name].widget.attrs |= {"autofocus": True, "aria-invalid": "true"}


def _unsent(request: HttpRequest) -> list[str]:
    """Return what the person had written in forms that are not there any more."""
    return [text for name in WRITTEN if (text := request.POST.get(name, "").strip())]


def missing_page(request: HttpRequest) -> HttpResponse:
    """Answer for what does not exist, and alike for what is not this person's to see."""
    text = _("There is no such request.")
    hint = _("It does not exist, or it is not for you to see.")
    return render(request, "agentcore/reviews/notice.html", {"text": text, "hint": hint}, status=404)


def _forms(request: HttpRequest, shown: showing.Detail, edit_form: EditForm | None) -> dict[str, Any]:
    """Return the forms for the request as it is now, with what the person had written before a refusal."""
    if shown.obstacle:
        return {}
    approval = shown.approval
    written = {name: request.POST[name] for name in WRITTEN if name in request.POST}
    initial = {**written, "version": approval.version, "seen": seen.pack(approval)}
    forms: dict[str, DecisionForm] = {
        "approve_form": ApproveForm(initial=initial, auto_id="approve-%s", label_suffix=""),
        "reject_form": RejectForm(initial=initial, auto_id="reject-%s", label_suffix=""),
        "respond_form": RespondForm(initial=initial, auto_id="respond-%s", label_suffix=""),
    }
    forms["reject_form"].fields["reason"].label = shown.ways.reason
    forms["respond_form"].initial.setdefault("result", shown.result)
    if shown.editable or "arguments" in request.POST:
        text = request.POST.get("arguments", "") or shown.editable
        forms["json_form"] = JsonForm(initial={**initial, "arguments": text}, auto_id="json-%s", label_suffix="")
    if approval.allow_edit:
        forms["edit_form"] = edit_form or EditForm(approval, initial=initial, auto_id="edit-%s", label_suffix="")
    return forms


def _forbidden(request: HttpRequest) -> HttpResponse:
    text = _("You may not decide on requests.")
    hint = _("Ask whoever gives out permissions here if you need it.")
    return render(request, "agentcore/reviews/notice.html", {"text": text, "hint": hint}, status=403)
