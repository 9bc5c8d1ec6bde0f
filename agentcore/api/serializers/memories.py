"""Memories, as answers show them and bodies describe them."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from agentcore.api.parsing import Body, JsonObject, Text
from agentcore.models import Memory, MemoryKind


class MemorySerializer(serializers.ModelSerializer[Memory]):
    """One thing that is remembered of you."""

    # Not the field of the model: approvals have a `kind` of other values, and one of the two would be renamed.
    kind = serializers.CharField(read_only=True, help_text=f"One of {', '.join(MemoryKind.values)}.")
    kept_to = serializers.SerializerMethodField(help_text="The `session_id` of the one session it is used in, if any.")
    agent = serializers.SerializerMethodField(help_text="The agent that it was told last.")
    data = serializers.DictField(read_only=True)  # type: ignore[assignment]  # DRF looks for it among the fields only
    told_in = serializers.CharField(read_only=True, help_text="The `session_id` of the session that told it last.")
    told_at = serializers.DateTimeField(source="seen_at", read_only=True)

    class Meta:
        model = Memory
        fields = (
            "id",
            "kind",
            "text",
            "data",
            "kept_to",
            "agent",
            "count",
            "execution_id",
            "told_in",
            "created_at",
            "updated_at",
            "told_at",
            "corrected_at",
            "expires_at",
        )
        read_only_fields = fields

    def get_kept_to(self, memory: Memory) -> str | None:
        return memory.session.session_id if memory.session is not None else None

    def get_agent(self, memory: Memory) -> str | None:
        return memory.agent.name if memory.agent is not None else None


class FoundSerializer(MemorySerializer):
    """A memory that a search found."""

    score = serializers.SerializerMethodField(help_text="It only ranks the results of one search.")

    class Meta:
        model = Memory
        fields = (*MemorySerializer.Meta.fields, "score")
        read_only_fields = fields

    def get_score(self, memory: Memory) -> float | None:
        scores: dict[int, float | None] = self.context.get("scores", {})
        return scores.get(memory.pk)


class SearchSerializer(serializers.Serializer[Any]):
    """What a search found, the best first."""

    results = FoundSerializer(many=True, read_only=True)


class ExportSerializer(serializers.Serializer[Any]):
    """All that is remembered of you."""

    user = serializers.CharField(read_only=True)
    exported_at = serializers.DateTimeField(read_only=True)
    memories = MemorySerializer(many=True, read_only=True)


class ErasedSerializer(serializers.Serializer[Any]):
    """How many memories were erased."""

    erased = serializers.IntegerField(read_only=True)


class MemoryChange(Body):
    """What may be corrected of a memory; what is left out stays. `data` replaces the whole object."""

    text = Text(required=False, allow_blank=False)
    data = JsonObject(required=False)  # type: ignore[assignment]  # the same
