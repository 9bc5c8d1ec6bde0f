"""Agents and their revisions."""

from __future__ import annotations

from collections.abc import Iterator

from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from agentcore.admin import display
from agentcore.admin.base import Link, ReadOnlyAdmin
from agentcore.models import Agent, AgentContext, AgentRevision, AgentSession


@admin.register(Agent)
class AgentAdmin(ReadOnlyAdmin):
    list_display = ("name", "revision_link", "created_at", "updated_at", "deleted_at")
    list_filter = (("deleted_at", admin.EmptyFieldListFilter),)
    list_select_related = ("current_revision",)
    list_loads = ("current_revision", "current_revision__number")
    search_fields = ("name",)
    fieldsets = ((None, {"fields": ("name", "revision_link", "created_at", "updated_at", "deleted_at")}),)

    @admin.display(description=_("current revision"))
    def revision_link(self, obj: Agent) -> str:
        revision = obj.current_revision
        return self.link(revision, f"r{revision.number}" if revision else "")

    def related(self, request: HttpRequest, obj: Agent) -> Iterator[Link | None]:
        yield self.listing(request, _("Revisions"), AgentRevision, agent__id__exact=obj.pk)
        yield self.listing(request, _("Sessions"), AgentSession, agent__id__exact=obj.pk)
        yield self.listing(request, _("Turns"), AgentContext, agent__id__exact=obj.pk)


@admin.register(AgentRevision)
class AgentRevisionAdmin(ReadOnlyAdmin):
    list_display = ("agent_and_number", "short_hash", "created_at")
    list_filter = ("agent", "created_at")
    list_select_related = ("agent",)
    list_loads = ("agent", "agent__name", "number", "hash")
    search_fields = ("agent__name", "^hash")
    ordering = ("-id",)
    fieldsets = ((None, {"fields": ("agent", "number", "hash", "created_at", "pretty_definition")}),)

    @admin.display(description=_("revision"), ordering="number")
    def agent_and_number(self, obj: AgentRevision) -> str:
        return display.marked(obj)

    @admin.display(description=_("hash"))
    def short_hash(self, obj: AgentRevision) -> str:
        return obj.hash[:12]

    @admin.display(description=_("definition"))
    def pretty_definition(self, obj: AgentRevision) -> str:
        return display.pretty(obj.definition)

    def related(self, request: HttpRequest, obj: AgentRevision) -> Iterator[Link | None]:
        yield self.listing(request, _("Sessions"), AgentSession, revision__id__exact=obj.pk)
