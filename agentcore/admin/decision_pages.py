"""The pages and actions of the admin that decide: each shows what would happen, and decides on its button only."""

from __future__ import annotations

from functools import wraps
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.core.exceptions import BadRequest, PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.decorators import method_decorator
from django.utils.translation import gettext_lazy as _
from django.views import defaults
from django.views.decorators.clickjacking import xframe_options_deny
from django.views.decorators.http import require_http_methods

from agentcore.admin import deciding, display, extent, votes, ways
from agentcore.admin.base import ReadOnlyAdmin
from agentcore.admin.deciding import Report
from agentcore.admin.ways import ACTIONS, APPROVE, EDIT, REJECT, RESPOND, WAYS, Way
from agentcore.approvals import permissions
from agentcore.exceptions import AgentError
from agentcore.models import DECIDE_PERMISSION, ToolApproval
from agentcore.states import ApprovalKind

MAX_DIGITS = 18
# How many requests the page showed: each of them at that much length.
LISTED = "listed"
CONFIRMED = ("agent", "version", "votes_needed", "arguments_digest", "permission", "four_eyes", "allow_edit")
# What the page of one request reads besides.
KNOWN = (
    "arguments",
    "approved_arguments",
    "call__arguments",
    "call__proposed_arguments",
    "call__attempts",
    "call__error",
    "call__late_result",
)


class DecisionPages(ReadOnlyAdmin):
    """The part of the approvals' admin that decides."""

    actions: Any = ("approve_selected", "reject_selected")

    def has_decide_permission(self, request: HttpRequest, obj: ToolApproval | None = None) -> bool:
        """Say whether the user may decide this request, or any; the decision itself checks again."""
        if obj is None:
            return request.user.is_active and request.user.has_perm(DECIDE_PERMISSION)
        return permissions.is_permitted(request.user, obj)

    @admin.action(permissions=["decide"], description=_("Approve the selected requests"))
    def approve_selected(self, request: HttpRequest, queryset: QuerySet[ToolApproval]) -> HttpResponse | None:
        return self._act(request, queryset, APPROVE)

    @admin.action(permissions=["decide"], description=_("Reject the selected requests"))
    def reject_selected(self, request: HttpRequest, queryset: QuerySet[ToolApproval]) -> HttpResponse | None:
        return self._act(request, queryset, REJECT)

    def get_urls(self) -> list[URLPattern]:
        pages = [
            path(
                f"<path:object_id>/{way.page}/",
                self.admin_site.admin_view(self.decide_view),
                {"way": way},
                name=f"{self.opts.app_label}_{self.opts.model_name}_{way.page}",
            )
            for way in WAYS
        ]
        return [self._telling(page) for page in pages + super().get_urls()]

    def _telling(self, page: URLPattern) -> URLPattern:
        view = page.callback

        @wraps(view)
        def telling(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            self._tell_if_over(request)
            return view(request, *args, **kwargs)

        page.callback = telling
        return page

    def _tell_if_over(self, request: HttpRequest) -> None:
        """Say to who is sent to the log-in with a decision in hand that it was not taken."""
        if deciding.is_confirmed(request) and not self.admin_site.has_permission(request):
            messages.warning(request, _("Your session was over: nothing was decided."), fail_silently=True)

    @method_decorator(xframe_options_deny)
    @method_decorator(require_http_methods(["GET", "HEAD", "POST"]))
    def decide_view(self, request: HttpRequest, object_id: str, way: Way) -> HttpResponse:
        """Show what one decision would do, and take it when that page's button is pressed."""
        pk = _as_number(unquote(object_id))
        if deciding.is_confirmed(request):
            return self._decide_one(request, pk, way)
        approval = self.get_object(request, str(pk))
        if approval is None:
            raise Http404
        if not self.has_decide_permission(request, approval):
            raise PermissionDenied
        return self._confirmation(request, way, [pk], back=self.url(ToolApproval, "change", pk), is_alone=True)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        if not self.has_decide_permission(request):
            for way in ACTIONS:
                if way.action in request.POST.getlist("action"):
                    return self._refuse(request, way)
        return super().changelist_view(request, extra_context)

    def response_action(
        self, request: HttpRequest, queryset: QuerySet[Any], *args: Any, **kwargs: Any
    ) -> HttpResponse | None:
        if not all(_is_number(value) for value in request.POST.getlist(ACTION_CHECKBOX_NAME)):
            raise BadRequest("A selected request is named by its number.")
        return super().response_action(request, queryset, *args, **kwargs)

    def _act(self, request: HttpRequest, queryset: QuerySet[ToolApproval], way: Way) -> HttpResponse | None:
        if deciding.is_confirmed(request):
            return self._decide_many(request, way)
        if request.POST.get("select_across") == "1":
            chosen = queryset
        else:
            # Without the list's filter: what was decided meanwhile is shown as that, and not left out.
            chosen = self.get_queryset(request).filter(pk__in=_selected(request))
        pks = list(chosen.order_by("pk").values_list("pk", flat=True)[: deciding.MAX_AT_ONCE + 1])
        if not pks:
            self.message_user(request, self._why_none(request, way), messages.WARNING)
            return None
        return self._confirmation(request, way, pks, back=request.get_full_path())

    def _decide_many(self, request: HttpRequest, way: Way) -> HttpResponse | None:
        """Decide what was confirmed; what changed since is shown again as it is now, with the words that were typed."""
        pks = _selected(request)
        report = self._decide(request, way, pks, held=self._held_back(request, way, pks))
        deciding.tell(request, way, report)
        again = deciding.open_again(request, way, report)
        return self._confirmation(request, way, again, back=request.get_full_path()) if again else None

    def _confirmation(
        self,
        request: HttpRequest,
        way: Way,
        pks: list[int],
        *,
        back: str,
        is_alone: bool = False,
        error: AgentError | None = None,
    ) -> HttpResponse:
        shown = pks[: deciding.MAX_AT_ONCE]
        approvals = self._small(request, shown, limit=extent.of_each(len(shown), is_alone=is_alone), is_alone=is_alone)
        items = list(deciding.items(request, way, approvals, self._page, is_alone=is_alone))
        context = {
            **self.admin_site.each_context(request),
            "title": way.title,
            "opts": self.opts,
            "media": self.media,
            "way": way,
            "items": items,
            "can_send": not all(item.elsewhere for item in items),
            "listed": LISTED,
            "limit": deciding.MAX_AT_ONCE if len(pks) > deciding.MAX_AT_ONCE else None,
            "back": back,
            "checkbox_name": ACTION_CHECKBOX_NAME,
            **_form(request, way, approvals, error),
        }
        request.current_app = self.admin_site.name
        status = deciding.STATUS_OF_ERROR.get(error.code, 400) if error else 200
        return TemplateResponse(request, "admin/agentcore/toolapproval/decide.html", context, status=status)

    def _page(self, approval: ToolApproval) -> str:
        return self.url(ToolApproval, "change", approval.pk)

    def _why_none(self, request: HttpRequest, way: Way) -> Any:
        """Say why nothing of what was selected can be shown: it is gone, or the user's own."""
        own = self._visible(request, _selected(request)).values()
        obstacle = next((deciding.obstacle(request.user, item, way, voted=()) for item in own), "")
        return obstacle or _("None of the selected requests is there any more.")

    def _small(self, request: HttpRequest, pks: list[int], *, limit: int, is_alone: bool = False) -> list[Any]:
        """Return requests with as much of them as a page shows."""
        rows = self.get_queryset(request).filter(pk__in=pks).select_related("agent", "call").order_by("pk")
        rows = rows.only(*self.list_loads, *CONFIRMED, *(KNOWN if is_alone else ()))
        return list(votes.with_votes(extent.with_small_parts(rows, limit=limit), request.user))

    def _held_back(self, request: HttpRequest, way: Way, pks: list[int]) -> dict[int, Any]:
        """Return those that the list's page did not show wholly, or does not decide, each with the reason."""
        listed = request.POST.get(LISTED, "")
        number = max(len(pks), int(listed) if _is_number(listed) else 0)
        return deciding.held_back(request.user, way, self._small(request, pks, limit=extent.of_each(number)))

    def _decide(self, request: HttpRequest, way: Way, pks: list[int], *, held: Any = None) -> Report:
        return deciding.decide(request, way, pks, visible=set(self._visible(request, pks)), held=held)

    def _visible(self, request: HttpRequest, pks: list[int]) -> dict[int, ToolApproval]:
        """Return what exists for the user: also their own requests, which the list of who only decides leaves out."""
        found = ToolApproval.objects.filter(pk__in=pks).defer("arguments").in_bulk()
        return {pk: approval for pk, approval in found.items() if permissions.can_view(request.user, approval)}

    def _decide_one(self, request: HttpRequest, pk: int, way: Way) -> HttpResponse:
        report = self._decide(request, way, [pk])
        approval = self.get_object(request, str(pk))
        # Returned, not raised: under ATOMIC_REQUESTS raising would take back the record of the attempt.
        if approval is None and self._visible(request, [pk]):
            deciding.tell_alone(request, way, report)
            return HttpResponseRedirect(self.url(ToolApproval, "changelist"))
        if approval is None:
            return defaults.page_not_found(request, Http404())
        if not self.has_decide_permission(request, approval):
            return defaults.permission_denied(request, PermissionDenied())
        here, error = self.url(ToolApproval, "change", pk), report.errors.get(pk)
        if error is None or not deciding.open_again(request, way, report):
            deciding.tell_alone(request, way, report)
            return HttpResponseRedirect(here)
        deciding.tell_alone(request, way, report, is_of_the_form=_is_of_the_form(error))
        return self._confirmation(request, way, [pk], back=here, is_alone=True, error=error)

    def _refuse(self, request: HttpRequest, way: Way) -> HttpResponse:
        """Answer a hand-made post of somebody to whom the action is not offered; a full one is on record."""
        if deciding.is_confirmed(request):
            self._decide(request, way, _selected(request))
        return defaults.permission_denied(request, PermissionDenied())


def _form(request: HttpRequest, way: Way, approvals: list[Any], error: AgentError | None) -> dict[str, Any]:
    """Return what the form of a confirmation page holds: what was typed before a refusal, and the error beside it."""
    typed = way.entry in request.POST
    field = error.details.get("field", way.entry) if error and _is_of_the_form(error) else None
    entry = ways.read_text(request.POST, way.entry)
    if way is EDIT and not typed and approvals:
        entry = display.editable(approvals[0].small_arguments, approvals[0].call.sensitive)
    if way is RESPOND and not typed and approvals and approvals[0].kind == ApprovalKind.OUTCOME:
        entry = display.editable_result(approvals[0].call.late_result, approvals[0].call.sensitive)
    return {
        "button": way.button_for(approvals[0]) if len(approvals) == 1 else way.button,
        "text": ways.read_text(request.POST, way.field),
        "entry": entry,
        "entry_error": error.message if error and field not in (None, way.field) else "",
        "as_text": ways.AS_TEXT,
        "offers_text": ways.AS_TEXT in request.POST or bool(error and error.details.get("may_be_text")),
        "is_text": ways.AS_TEXT in request.POST,
        "text_error": error.message if error and field == way.field else "",
    }


def _is_of_the_form(error: AgentError) -> bool:
    """Say whether something is wrong with what was typed; a version that is no number is nobody's typing."""
    return error.code in deciding.OF_THE_FORM and error.details.get("field") != "version"


def _selected(request: HttpRequest) -> list[int]:
    numbers = dict.fromkeys(int(value) for value in request.POST.getlist(ACTION_CHECKBOX_NAME) if _is_number(value))
    return list(numbers)[: deciding.MAX_AT_ONCE + 1]


def _as_number(text: str) -> int:
    if not _is_number(text):
        raise Http404
    return int(text)


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= MAX_DIGITS
