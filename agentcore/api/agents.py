"""Agents, as the code that is deployed defines them, and the revisions that were used."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

import agentcore
from agentcore.agents.definition import AgentDefinition
from agentcore.api.base import ApiView, ListView
from agentcore.api.errors import absent
from agentcore.api.operations import described
from agentcore.api.pagination import ByName
from agentcore.api.serializers.agents import AgentSerializer, RevisionDetailSerializer
from agentcore.models import Agent, AgentRevision


class AgentList(ListView):
    """The agents you may use, by name."""

    serializer_class = AgentSerializer
    pagination_class = ByName
    filter_backends = ()

    def get_queryset(self) -> Any:
        return agentcore.runtime.agents(self.request.user)

    def get_serializer_context(self) -> dict[str, Any]:
        return {**super().get_serializer_context(), "revisions": _current_revisions()}

    @described("agents_list")
    def get(self, request: Request) -> Response:
        """List the agents you may use."""
        return self.list(request)


class AgentDetail(ApiView):
    """One agent."""

    @described("agents_retrieve", responses=AgentSerializer)
    def get(self, request: Request, name: str) -> Response:
        """Return an agent you may use."""
        definition = _agent_for(request.user, name)
        return Response(AgentSerializer(definition, context={"revisions": _current_revisions()}).data)


class AgentRevisions(ListView):
    """The revisions of one agent."""

    serializer_class = RevisionDetailSerializer
    filter_backends = ()

    def get_queryset(self) -> QuerySet[AgentRevision]:
        wanted: QuerySet[AgentRevision] = AgentRevision.objects.filter(agent__name=self.kwargs.get("name", ""))
        return wanted.select_related("agent")

    @described("agents_revisions_list")
    def get(self, request: Request, name: str) -> Response:
        """List an agent's revisions, newest first."""
        _agent_for(request.user, name)
        return self.list(request)


def _agent_for(user: Any, name: str) -> AgentDefinition:
    for definition in agentcore.runtime.agents(user):
        if definition.name == name:
            return definition
    raise absent()


def _current_revisions() -> dict[str, AgentRevision]:
    used = Agent.objects.exclude(current_revision=None).select_related("current_revision")
    return {agent.name: agent.current_revision for agent in used}
