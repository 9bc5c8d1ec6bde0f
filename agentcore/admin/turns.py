"""Turns, their steps at a glance, and what they know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from agentcore.admin import display
from agentcore.admin.base import Link, ReadOnlyAdmin, ReadOnlyInline
from agentcore.models import (
    AgentContext,
    AgentStep,
    ContextEntry,
    EntryKind,
    SessionEvent,
    ToolApproval,
    ToolCall,
    UserQuestion,
)
from agentcore.tools import masking


class StepInline(ReadOnlyInline):
    model = AgentStep
    fields = ("number", "state", "action", "shown_model", "input_tokens", "output_tokens", "took", "started_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[AgentStep]:
        return super().get_queryset(request).defer("message", "error")

    @admin.display(description=_("model"))
    def shown_model(self, obj: AgentStep) -> str:
        return display.marked(obj.model)


@admin.register(AgentContext)
class AgentContextAdmin(ReadOnlyAdmin):
    list_display = (
        "execution_id",
        "agent",
        "session_link",
        "owner",
        "state",
        "step_count",
        "created_at",
        "completed_at",
    )
    list_filter = ("state", "agent", "created_at", ("deleted_at", admin.EmptyFieldListFilter))
    list_select_related = ("agent", "session")
    list_loads = ("agent__name", "session", "session__session_id", "user", "user_key", "user_name")
    search_fields = ("session__session_id", "user_name")
    search_help_text = _("Session id, user name, or a whole execution id.")
    execution_id_path = "execution_id"
    inlines = (StepInline,)
    fieldsets = (
        (None, {"fields": ("execution_id", "session", "agent", "revision", "owner", "state")}),
        (
            _("Conversation"),
            {"fields": ("shown_input", "shown_response", "shown_question", "pretty_error", "pretty_metadata")},
        ),
        (
            _("Work"),
            {"fields": ("step_count", "max_steps", "input_tokens", "output_tokens", "worked", "limit")},
        ),
        (
            _("Dates"),
            {
                "fields": (
                    "created_at",
                    "updated_at",
                    "started_at",
                    "completed_at",
                    "deleted_at",
                    "erased_at",
                    "trimmed_at",
                )
            },
        ),
        (
            _("Worker"),
            {
                "classes": ("collapse",),
                "fields": (
                    "lease_token",
                    "lease_owner",
                    "lease_expires_at",
                    "takeovers",
                    "dispatch_count",
                    "due_at",
                    "next_dispatch_at",
                    "idempotency_key",
                    "enable_memory",
                    "enable_rag",
                ),
            },
        ),
    )

    @admin.display(description=_("input"))
    def shown_input(self, obj: AgentContext) -> str:
        return display.message(obj.input)

    @admin.display(description=_("response"))
    def shown_response(self, obj: AgentContext) -> str:
        return display.block(obj.response)

    @admin.display(description=_("question"))
    def shown_question(self, obj: AgentContext) -> str:
        return display.block(obj.question)

    @admin.display(description=_("worked"))
    def worked(self, obj: AgentContext) -> str:
        return display.seconds(obj.worked_seconds)

    @admin.display(description=_("time limit"))
    def limit(self, obj: AgentContext) -> str:
        return display.seconds(obj.turn_timeout)

    @admin.display(description=_("error"))
    def pretty_error(self, obj: AgentContext) -> str:
        return display.pretty(obj.error)

    @admin.display(description=_("metadata"))
    def pretty_metadata(self, obj: AgentContext) -> str:
        return display.pretty(obj.metadata)

    def related(self, request: HttpRequest, obj: AgentContext) -> Iterator[Link | None]:
        yield self.listing(request, _("Tool calls"), ToolCall, turn__id__exact=obj.pk)
        yield self.listing(request, _("Approvals"), ToolApproval, turn__id__exact=obj.pk, status="all")
        yield self.listing(request, _("Questions"), UserQuestion, turn__id__exact=obj.pk)
        yield self.listing(request, _("Events"), SessionEvent, turn__execution_id__exact=obj.execution_id)
        yield self.listing(request, _("Context"), ContextEntry, turn__id__exact=obj.pk)


@admin.register(ContextEntry)
class ContextEntryAdmin(ReadOnlyAdmin):
    list_display = ("key", "kind", "turn_link", "created_at", "updated_at")
    list_filter = ("kind", "updated_at")
    list_select_related = ("turn",)
    list_loads = ("turn", "turn__execution_id")
    search_fields = ("key",)
    execution_id_path = "turn__execution_id"
    ordering = ("-id",)
    fieldsets = ((None, {"fields": ("turn", "kind", "key", "pretty_value", "created_at", "updated_at")}),)

    @admin.display(description=_("value"))
    def pretty_value(self, obj: ContextEntry) -> str:
        # What was recalled is masked as it is with the memories; of working memory the key says whether it is a secret.
        if obj.kind == EntryKind.WORKING_MEMORY:
            return masking.MASK if masking.mentions_secret(obj.key) else display.pretty({obj.key: obj.value})
        is_memory = obj.kind in (EntryKind.FACT, EntryKind.ENTITY, EntryKind.RECALLED)
        return display.pretty({obj.key: _memory(obj.value) if is_memory else obj.value})


# Any: JSON, as it was stored.
def _memory(value: Any) -> Any:
    """Return a memory as an entry holds it; of one that may hold a secret, its kind alone."""
    if isinstance(value, dict) and masking.mentions_secret(value):
        return {"kind": value.get("kind"), "text": masking.MASK}
    return masking.mask_prose(value)
