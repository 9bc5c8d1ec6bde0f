"""Agents and their revisions, as answers show them."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from agentcore.agents.definition import AgentDefinition
from agentcore.models import AgentRevision
from agentcore.tools.definition import ToolDefinition

VIEW_REVISION = "agentcore.view_agentrevision"


class RevisionSerializer(serializers.ModelSerializer[AgentRevision]):
    """Which revision something is pinned to."""

    class Meta:
        model = AgentRevision
        fields = ("number", "hash")
        read_only_fields = fields


class RevisionDetailSerializer(serializers.ModelSerializer[AgentRevision]):
    """A revision of an agent. It holds the prompt: `definition` is null without `view_agentrevision`."""

    is_current = serializers.SerializerMethodField()
    definition = serializers.SerializerMethodField()

    class Meta:
        model = AgentRevision
        fields = ("number", "hash", "is_current", "definition", "created_at")
        read_only_fields = fields

    def get_is_current(self, revision: AgentRevision) -> bool:
        return revision.agent.current_revision_id == revision.pk

    def get_definition(self, revision: AgentRevision) -> dict[str, Any] | None:
        allowed = self.context["request"].user.has_perm(VIEW_REVISION)
        return revision.definition if allowed else None


class ToolSerializer(serializers.Serializer[Any]):
    """A tool an agent has. `requires_approval` is true, false, or "rule" when it is decided for each call."""

    name = serializers.CharField(read_only=True)
    description = serializers.CharField(read_only=True)
    parameters = serializers.DictField(read_only=True, help_text="JSON Schema of the arguments.")
    requires_approval = serializers.SerializerMethodField()

    @extend_schema_field({"oneOf": [{"type": "boolean"}, {"type": "string", "enum": ["rule"]}]})
    def get_requires_approval(self, tool: ToolDefinition) -> bool | str:
        return tool.requires_approval_pinned


class AgentSerializer(serializers.Serializer[Any]):
    """An agent as it is deployed. `revision` is null until its first session."""

    name = serializers.CharField(read_only=True)
    description = serializers.CharField(read_only=True)
    revision = serializers.SerializerMethodField()
    tools = serializers.SerializerMethodField()

    @extend_schema_field(RevisionSerializer(allow_null=True))
    def get_revision(self, definition: AgentDefinition) -> Any:
        found = self.context["revisions"].get(definition.name)
        return RevisionSerializer(found).data if found is not None else None

    @extend_schema_field(ToolSerializer(many=True))
    def get_tools(self, definition: AgentDefinition) -> Any:
        return ToolSerializer(list(definition.tools.values()), many=True).data
