"""Sessions."""

from __future__ import annotations

from collections.abc import Iterator

from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from agentcore.admin import display
from agentcore.admin.base import Link
from agentcore.admin.session_actions import SessionActions
from agentcore.models import AgentContext, AgentSession, SessionEvent, ToolApproval


@admin.register(AgentSession)
class AgentSessionAdmin(SessionActions):
    """Deleted sessions stay in the list until they are purged; the filter leaves them out."""

    list_display = (
        "session_id",
        "short_title",
        "agent",
        "owner",
        "status",
        "last_sequence",
        "created_at",
        "updated_at",
    )
    list_filter = ("status", "agent", "created_at", ("deleted_at", admin.EmptyFieldListFilter))
    list_select_related = ("agent",)
    list_loads = ("title", "agent__name", "user", "user_key", "user_name")
    search_fields = ("session_id", "title", "user_name")
    fieldsets = (
        (None, {"fields": ("session_id", "title", "agent", "revision", "owner", "status", "pretty_metadata")}),
        (
            _("Dates"),
            {"fields": ("created_at", "updated_at", "completed_at", "archived_at", "deleted_at", "erased_at")},
        ),
        (_("Log"), {"fields": ("last_sequence", "last_hash", "removed_through", "removed_hash", "driver_session_id")}),
    )

    @admin.display(description=_("title"), ordering="title")
    def short_title(self, obj: AgentSession) -> str:
        return display.shortened(obj.title, 60)

    @admin.display(description=_("metadata"))
    def pretty_metadata(self, obj: AgentSession) -> str:
        return display.pretty(obj.metadata)

    def related(self, request: HttpRequest, obj: AgentSession) -> Iterator[Link | None]:
        yield self.listing(request, _("Turns"), AgentContext, session__id__exact=obj.pk)
        yield self.listing(request, _("Events"), SessionEvent, session__id__exact=obj.pk)
        yield self.listing(request, _("Approvals"), ToolApproval, session__id__exact=obj.pk, status="all")
