"""Approvals: the queue of what waits for a person, and the record of each request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext_lazy as _
from django.views.decorators.clickjacking import xframe_options_deny

from agentcore.admin import backgrounds, deciding, display, extent, record_fields, seen, votes
from agentcore.admin.base import Link
from agentcore.admin.decision_pages import MAX_DIGITS, DecisionPages
from agentcore.admin.decisions import DecisionInline
from agentcore.admin.filters import AgeFilter, RoutableFilter, StatusFilter, ToolFilter, VotesFilter
from agentcore.admin.ways import DOUBT
from agentcore.models import AgentContext, AgentSession, ApprovalDecision, SessionEvent, ToolApproval, ToolCall
from agentcore.states import ApprovalKind, ApprovalStatus

LISTED_ARGUMENTS = 2_000


@admin.register(ToolApproval)
@method_decorator(xframe_options_deny, name="changelist_view")
@method_decorator(xframe_options_deny, name="changeform_view")
@method_decorator(xframe_options_deny, name="history_view")
class ToolApprovalAdmin(record_fields.RecordFields, DecisionPages):
    """Staff who may view approvals see all; staff who may only decide see what they may decide."""

    list_display = (
        "tool_and_number",
        "state",
        "short_arguments",
        "age",
        "requested_by",
        "agent",
    )
    list_filter = (
        StatusFilter,
        AgeFilter,
        "kind",
        VotesFilter,
        RoutableFilter,
        "agent",
        ("tool", ToolFilter),
        "requested_at",
    )
    list_select_related = ("agent", "call")
    list_loads = (
        "tool",
        "kind",
        "status",
        "version",
        "votes_needed",
        "agent__name",
        "session",
        "turn",
        "call",
        "call__sensitive",
        "requester",
        "requester_key",
        "requester_name",
        "requested_at",
        "expires_at",
    )
    search_fields = ("tool", "requester_name", "=session__session_id", "=call__call_id")
    search_help_text = _("Tool, requester, or a whole session id, call id or execution id.")
    execution_id_path = "turn__execution_id"
    inlines = (DecisionInline,)
    fieldsets = record_fields.FIELDSETS

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        if super().has_view_permission(request, obj):
            return True
        return self.has_decide_permission(request, obj)

    def get_queryset(self, request: HttpRequest) -> QuerySet[ToolApproval]:
        found: Any = super().get_queryset(request)
        sees_all = super().has_view_permission(request)
        return found if sees_all else found.for_reviewer(request.user)  # type: ignore[no-any-return]  # our queryset

    # The list

    def for_list(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        found = extent.with_small_arguments(super().for_list(request, queryset), limit=LISTED_ARGUMENTS)
        return votes.with_votes(found, request.user)

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        """Have the agent's column lead to session, turn and call, for who may see them."""
        shown = super().get_list_display(request)
        if not all(self._can_view(request, model) for model, *_rest in ORIGINS):
            return shown
        return ["agent_and_origin" if name == "agent" else shown[at] for at, name in enumerate(self.list_display)]

    def get_ordering(self, request: HttpRequest) -> list[Any]:
        """Put what waits longest first; of what is decided, the latest."""
        shown = request.GET.get(StatusFilter.parameter_name, ApprovalStatus.PENDING)
        return ["id"] if shown == ApprovalStatus.PENDING else ["-id"]

    @admin.display(description=_("request"), ordering="id")
    def tool_and_number(self, obj: ToolApproval) -> str:
        name = format_html("{} #{}", display.shortened(obj.tool, 64), obj.pk)
        if obj.kind != ApprovalKind.OUTCOME:
            return name
        return format_html('{} <span class="agentcore-outcome">{}</span>', name, _("how did it end?"))

    @admin.display(description=_("requester"), ordering="requester_name")
    def requested_by(self, obj: ToolApproval) -> str:
        return display.person(obj.requester_name, obj.requester_key, obj.requester_id)

    @admin.display(description=_("arguments"))
    def short_arguments(self, obj: Any) -> str:
        if obj.small_arguments is None:
            return display.characters(obj.arguments_length)
        return display.brief(obj.small_arguments, obj.call.sensitive)

    @admin.display(description=_("age"), ordering="requested_at")
    def age(self, obj: ToolApproval) -> str:
        age = display.age(obj.requested_at)
        if obj.status != ApprovalStatus.PENDING:
            return age
        return format_html('{}<br><span class="quiet">{}: {}</span>', age, _("left"), display.time_left(obj.expires_at))

    @admin.display(description=_("status"), ordering="status")
    def state(self, obj: ToolApproval) -> str:
        lines = format_html_join("", '<br><span class="quiet">{}</span>', ((said,) for said in votes.of_row(obj)))
        return format_html("{}{}", obj.get_status_display(), lines)

    @admin.display(description=_("agent"), ordering="agent")
    def agent_and_origin(self, obj: ToolApproval) -> str:
        links = ((self.url(model, "change", getattr(obj, column)), word) for model, column, word in ORIGINS)
        origin = format_html_join(" ", '<a href="{}">{}</a>', links)
        return format_html('{}<br><span class="agentcore-origin">{}</span>', display.marked(obj.agent), origin)

    # The page of one approval

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> ToolApproval | None:
        """Return a request with what its pages read, in one query."""
        if not object_id.isdecimal() or len(object_id) > MAX_DIGITS:
            return None
        wanted = self.get_queryset(request).select_related("session", "turn", "call__step", "agent")
        wanted = extent.with_small_arguments(wanted, limit=seen.MAX_SENT)
        return wanted.filter(pk=int(object_id)).first()

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        found = super().get_fieldsets(request, obj)
        return found if obj is None else record_fields.fieldsets_of(obj, found)

    def related(self, request: HttpRequest, obj: ToolApproval) -> Iterator[Link | None]:
        execution_id = obj.turn.execution_id
        yield self.listing(request, _("Whole record"), ApprovalDecision, approval__id__exact=obj.pk)
        yield self.listing(request, _("Calls of the turn"), ToolCall, turn__id__exact=obj.turn_id)
        yield self.listing(request, _("Events of the turn"), SessionEvent, turn__execution_id__exact=execution_id)

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        obj = kwargs.get("obj")
        if obj is not None:
            context.update(
                self._decision(request, obj),
                background=backgrounds.of(obj, request.user, lambda model, key: self._page_of(request, model, key)),
            )
        return super().render_change_form(request, context, *args, **kwargs)

    def _decision(self, request: HttpRequest, obj: ToolApproval) -> dict[str, Any]:
        """Return what the row of buttons needs: the ways that are open, or why none is."""
        ways = deciding.offered(request.user, obj)
        return {
            "obstacle": deciding.why_not(request.user, obj),
            "version_field": deciding.version_field(obj.pk),
            "version": str(obj.version),
            "seen_field": seen.field(obj.pk),
            "seen": seen.pack(obj) if ways else "",
            "decide_pages": [(way.button_for(obj), self.url(ToolApproval, way.page, obj.pk)) for way in ways],
            "doubt": DOUBT if ways and obj.kind == ApprovalKind.OUTCOME else "",
            "meanings": [(way.button_for(obj), meaning) for way in ways if (meaning := way.meaning_for(obj))],
        }

    def _page_of(self, request: HttpRequest, model: type[Model], key: Any) -> str:
        """Return the address of a record's page, "" for who may not see it."""
        return self.url(model, "change", key) if self._can_view(request, model) else ""

    def _can_view(self, request: HttpRequest, model: type[Model]) -> bool:
        if not self.admin_site.is_registered(model):
            return False
        return bool(self.admin_site.get_model_admin(model).has_view_permission(request))


ORIGINS = (
    (AgentSession, "session_id", _("session")),
    (AgentContext, "turn_id", _("turn")),
    (ToolCall, "call_id", _("call")),
)
