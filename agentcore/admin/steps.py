"""Steps and tool calls."""

from __future__ import annotations

from collections.abc import Iterator

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from agentcore.admin import display
from agentcore.admin.base import Link, ReadOnlyAdmin, ReadOnlyInline
from agentcore.models import AgentStep, ToolApproval, ToolCall
from agentcore.tools import masking

LARGE = ("raw_arguments", "arguments", "proposed_arguments", "result", "error", "late_result")


class CallInline(ReadOnlyInline):
    model = ToolCall
    fields = ("position", "shown_tool", "status", "needs_approval", "attempts", "took", "started_at", "completed_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[ToolCall]:
        return super().get_queryset(request).defer(*LARGE)

    @admin.display(description=_("tool"))
    def shown_tool(self, obj: ToolCall) -> str:
        return display.marked(obj.tool)


@admin.register(AgentStep)
class AgentStepAdmin(ReadOnlyAdmin):
    list_display = (
        "__str__",
        "turn_link",
        "state",
        "action",
        "model",
        "input_tokens",
        "output_tokens",
        "took",
        "started_at",
    )
    list_filter = ("state", "action", "started_at")
    list_select_related = ("turn",)
    list_loads = ("number", "duration", "turn", "turn__execution_id")
    search_fields = ("model",)
    search_help_text = _("Model, or a whole execution id.")
    execution_id_path = "turn__execution_id"
    ordering = ("-id",)
    inlines = (CallInline,)
    fieldsets = (
        (None, {"fields": ("turn", "number", "state", "action", "shown_message", "pretty_error")}),
        (
            _("Model"),
            {"fields": ("model", "finish_reason", "input_tokens", "output_tokens", "took")},
        ),
        (_("Dates"), {"fields": ("started_at", "completed_at")}),
    )

    @admin.display(description=_("message"))
    def shown_message(self, obj: AgentStep) -> str:
        return display.message(obj.message)

    @admin.display(description=_("error"))
    def pretty_error(self, obj: AgentStep) -> str:
        return display.pretty(obj.error)


@admin.register(ToolCall)
class ToolCallAdmin(ReadOnlyAdmin):
    list_display = (
        "tool",
        "call_id",
        "turn_link",
        "status",
        "needs_approval",
        "attempts",
        "took",
        "started_at",
        "completed_at",
    )
    list_filter = ("status", "needs_approval", "started_at")
    list_select_related = ("turn",)
    list_loads = ("duration", "turn", "turn__execution_id")
    search_fields = ("tool", "=call_id", "=provider_call_id")
    search_help_text = _("Tool, a whole call id, or a whole execution id.")
    execution_id_path = "turn__execution_id"
    ordering = ("-id",)
    fieldsets = (
        (None, {"fields": ("turn", "step", "position", "tool", "status", "needs_approval", "idempotent")}),
        (_("Arguments"), {"fields": ("pretty_arguments", "pretty_proposed", "shown_raw")}),
        (_("Outcome"), {"fields": ("pretty_result", "pretty_error", "pretty_late_result", "attempts", "took")}),
        (_("Dates"), {"fields": ("started_at", "completed_at")}),
        (
            _("Identity"),
            {"classes": ("collapse",), "fields": ("call_id", "provider_call_id", "arguments_digest", "fingerprint")},
        ),
    )

    @admin.display(description=_("arguments"))
    def pretty_arguments(self, obj: ToolCall) -> str:
        return display.pretty(obj.arguments, obj.sensitive)

    @admin.display(description=_("proposed arguments"))
    def pretty_proposed(self, obj: ToolCall) -> str:
        return display.pretty(obj.proposed_arguments, obj.sensitive)

    @admin.display(description=_("refused arguments"))
    def shown_raw(self, obj: ToolCall) -> str:
        """The model's own text, when it could not be taken for arguments."""
        if obj.arguments is not None:
            return display.EMPTY
        if obj.sensitive or masking.mentions_secret(obj.raw_arguments):
            return masking.MASK
        return display.block(obj.raw_arguments)

    @admin.display(description=_("result"))
    def pretty_result(self, obj: ToolCall) -> str:
        return display.pretty(obj.result, obj.sensitive)

    @admin.display(description=_("error"))
    def pretty_error(self, obj: ToolCall) -> str:
        return display.pretty(obj.error, obj.sensitive)

    @admin.display(description=_("late result"))
    def pretty_late_result(self, obj: ToolCall) -> str:
        return display.pretty(obj.late_result, obj.sensitive)

    def related(self, request: HttpRequest, obj: ToolCall) -> Iterator[Link | None]:
        yield self.listing(request, _("Approvals"), ToolApproval, call__id__exact=obj.pk, status="all")
