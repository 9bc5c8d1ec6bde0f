"""Memories, for staff: read-only, secrets masked. Their owners correct and erase them on a page of their own."""

from __future__ import annotations

from collections.abc import Iterator

from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from agentcore.admin import display
from agentcore.admin.base import Link, ReadOnlyAdmin
from agentcore.models import AgentContext, Memory
from agentcore.tools import masking


@admin.register(Memory)
class MemoryAdmin(ReadOnlyAdmin):
    """A memory of which any part speaks of a secret is masked whole: nobody can say where the secret is."""

    list_display = ("__str__", "shown_brief", "owner", "session_link", "count", "seen_at", "expires_at")
    list_filter = ("kind", "agent", "seen_at", ("corrected_at", admin.EmptyFieldListFilter))
    list_select_related = ("session",)
    list_loads = ("kind", "text", "data", "user", "user_key", "user_name", "session__session_id")
    search_fields = ("user_name", "session__session_id", "told_in")
    search_help_text = _("User name, session id, or a whole execution id. What memories say is not searched.")
    execution_id_path = "execution_id"
    ordering = ("-id",)
    fieldsets = (
        (None, {"fields": ("kind", "owner", "session", "shown_text", "pretty_data")}),
        (_("Told"), {"fields": ("agent", "told_in", "execution_id", "count", "created_at", "seen_at")}),
        (_("Dates"), {"fields": ("updated_at", "corrected_at", "expires_at")}),
    )

    @admin.display(description=_("session"), ordering="session_id")
    def session_link(self, obj: Memory) -> str:
        return display.EMPTY if obj.session is None else self.link(obj.session, obj.session.session_id)

    @admin.display(description=_("text"))
    def shown_brief(self, obj: Memory) -> str:
        return _masked(obj, display.shortened(obj.text, 60))

    @admin.display(description=_("text"))
    def shown_text(self, obj: Memory) -> str:
        return _masked(obj, display.block(obj.text))

    @admin.display(description=_("data"))
    def pretty_data(self, obj: Memory) -> str:
        return _masked(obj, display.pretty(obj.data))

    def related(self, request: HttpRequest, obj: Memory) -> Iterator[Link | None]:
        if obj.execution_id is not None:
            yield self.listing(request, _("Turn"), AgentContext, execution_id__exact=obj.execution_id)


def _masked(memory: Memory, shown: str) -> str:
    """Return what is shown of a memory, or the mask if anything that it says may be a secret."""
    return masking.MASK if masking.mentions_secret([memory.text, memory.data]) else shown
