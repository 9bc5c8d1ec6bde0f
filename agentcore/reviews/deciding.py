"""The decisions on one request: each view parses, makes one call to the core, and shows what came of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _

from agentcore.approvals import decisions
from agentcore.exceptions import AgentError, InvalidInput
from agentcore.models import ToolApproval
from agentcore.reviews import filters, forms, seen, stale, views, waiting, ways
from agentcore.reviews.forms import ApproveForm, DecisionForm, EditForm, JsonForm, RejectForm, RespondForm
from agentcore.reviews.guards import guarded, posted
from agentcore.states import ApprovalStatus, Channel
from agentcore.tools.schema import InvalidArguments

# A decision with it is refused, and an attempt without the right is on record as that.
NO_VERSION = 2**31 - 1

Act = Callable[[dict[str, Any]], ToolApproval]


@guarded
@posted
def approve(request: HttpRequest, approval_id: int) -> HttpResponse:
    """Approve as shown, or with the arguments given in their place: as JSON, or field by field."""

    def act(given: dict[str, Any]) -> ToolApproval:
        return decisions.approve(approval_id, request.user, channel=Channel.PAGE, **given)

    if forms.is_typed(request.POST):
        return _decide_typed(request, approval_id, act)
    form = JsonForm if "arguments" in request.POST else ApproveForm
    return _decide(request, approval_id, form(request.POST), act)


@guarded
@posted
def reject(request: HttpRequest, approval_id: int) -> HttpResponse:
    """Reject, with a reason that the agent is told."""

    def act(given: dict[str, Any]) -> ToolApproval:
        return decisions.reject(approval_id, request.user, channel=Channel.PAGE, **given)

    return _decide(request, approval_id, RejectForm(request.POST), act)


@guarded
@posted
def respond(request: HttpRequest, approval_id: int) -> HttpResponse:
    """Give the agent a result in the tool's place."""

    def act(given: dict[str, Any]) -> ToolApproval:
        result = given.pop("result")
        return decisions.respond(approval_id, request.user, result, channel=Channel.PAGE, **given)

    return _decide(request, approval_id, RespondForm(request.POST), act)


@guarded
@posted
def renew(request: HttpRequest, approval_id: int) -> HttpResponse:
    """Show the request as it is now, with what changed and what the person had written so far. Decides nothing."""
    approval = waiting.find_visible(request.user, approval_id)
    if approval is None:
        return views.missing_page(request)
    changed, edit_form = stale.since(request.POST, approval), None
    if forms.is_typed(request.POST) and approval.status == ApprovalStatus.PENDING:
        edit_form = _edited_again(EditForm(approval, forms.of_edit(request.POST)), approval, None, changed)
    return views.detail_page(request, approval, stale=changed, edit_form=edit_form)


def queue_address(request: HttpRequest) -> str:
    """Return the address of the part of the queue that a form came from; of its beginning, when it does not say."""
    query = filters.carried(request).here()
    return reverse("agentcore-reviews:list") + (f"?{query}" if query else "")


def _decide_typed(request: HttpRequest, approval_id: int, act: Act) -> HttpResponse:
    approval = waiting.find_visible(request.user, approval_id)
    if approval is None:
        # Tried all the same: the attempt is on record, and refused as if there were no such request.
        return _decide(request, approval_id, _no_form(), act)
    return _decide(request, approval_id, EditForm(approval, request.POST, auto_id="edit-%s", label_suffix=""), act)


def _decide(request: HttpRequest, approval_id: int, form: DecisionForm, act: Act) -> HttpResponse:
    try:
        approval = act(_given(form))
    except AgentError as error:
        # Returned, not raised: under ATOMIC_REQUESTS the record of a refused attempt would be rolled back.
        return _refused(request, approval_id, form, error)
    messages.success(request, ways.told(approval), fail_silently=True)
    if request.POST.get("from", "").partition("?")[0] == "list":
        return redirect(queue_address(request))
    return redirect(reverse("agentcore-reviews:detail", args=[approval.pk]) + filters.carried(request).carry())


def _given(form: DecisionForm) -> dict[str, Any]:
    if not form.is_valid():
        raise InvalidInput(_problems(form))
    return form.decision()


def _problems(form: DecisionForm) -> str:
    if isinstance(form, EditForm) and not (form.non_field_errors() or form.errors.keys() & {"version", "seen", "note"}):
        return _("Some of the arguments cannot be taken. See beside the fields.")
    return " ".join(str(problem) for found in form.errors.values() for problem in found)


def _no_form() -> DecisionForm:
    return ApproveForm({"version": NO_VERSION})


def _refused(request: HttpRequest, approval_id: int, form: DecisionForm, error: AgentError) -> HttpResponse:
    approval = waiting.find_visible(request.user, approval_id)
    if approval is None:
        return views.missing_page(request)
    changed = stale.since(request.POST, approval)
    edit_form = _edited_again(form, approval, error, changed) if isinstance(form, EditForm) else None
    # An edit has its focus already.
    wrong = None if edit_form else (type(form), _wrong_field(form, error))
    return views.detail_page(request, approval, error=error, stale=changed, edit_form=edit_form, wrong=wrong)


def _wrong_field(form: DecisionForm, error: AgentError) -> str:
    """Return the name of the first field that something is wrong with, "" when it is none of them."""
    wrong = {*form.errors, str((error.details or {}).get("field", ""))}
    return next((name for name in form.fields if name in wrong and name not in ("version", "seen")), "")


def _edited_again(
    form: EditForm, approval: ToolApproval, error: AgentError | None, changed: stale.Stale | None
) -> EditForm | None:
    """Return the edit as it goes on: for the request as it is now, with what was typed and what is wrong with it."""
    data = {**dict(form.data.items()), "version": str(approval.version), "seen": seen.pack(approval)}
    again = EditForm(approval, data, auto_id="edit-%s", label_suffix="")
    if changed is not None:
        forms.keep_typed(again, seen.unpack(form.data.get("seen", ""), approval))
    again.full_clean()
    if isinstance(error, InvalidArguments) and not again.errors:
        again.add_problems(error.errors)
    if error is not None and again.errors:
        first = next((name for name in again.fields if name in again.errors), "")
        views.focus_on(again, first)
    return again
