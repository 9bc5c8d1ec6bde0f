"""The events of sessions."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from agentcore.admin import display
from agentcore.admin.base import ReadOnlyAdmin
from agentcore.events.kinds import EventType
from agentcore.models import SessionEvent, ToolCall


class TypeFilter(admin.SimpleListFilter):
    """Offers the types agentcore itself has: to ask the log for all would read all of it. The search finds others."""

    title = _("type")
    parameter_name = "type"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(kind.value, kind.value) for kind in sorted(EventType)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() is None:
            return queryset
        return queryset.filter(type=self.value()) if self.value() in set(EventType) else queryset.none()


@admin.register(SessionEvent)
class SessionEventAdmin(ReadOnlyAdmin):
    list_display = ("__str__", "session_link", "turn_link", "created_at")
    list_filter = ("created_at", TypeFilter)
    list_select_related = ("session", "turn")
    list_loads = ("sequence", "type", "session", "session__session_id", "turn", "turn__execution_id")
    search_fields = ("=type", "=session__session_id")
    search_help_text = _("A whole type, session id or execution id.")
    execution_id_path = "turn__execution_id"
    fieldsets = (
        (None, {"fields": ("session", "turn", "sequence", "type", "created_at", "pretty_data")}),
        (_("Chain"), {"fields": ("data_digest", "hash")}),
    )

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """Return the newest first; within one session by number, for which there is an index."""
        return ("-sequence",) if "session__id__exact" in request.GET else ("-id",)

    @admin.display(description=_("data"))
    def pretty_data(self, obj: SessionEvent) -> str:
        return display.pretty(obj.data, _sensitive(obj.data))


def _sensitive(data: Any) -> list[str]:
    """Return the names that the tool of the call the event tells of keeps secret."""
    call_id = data.get("call_id") if isinstance(data, dict) else None
    if not isinstance(call_id, str):
        return []
    found = ToolCall.objects.filter(call_id=call_id).values_list("sensitive", flat=True).first()
    return found or []
