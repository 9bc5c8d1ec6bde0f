"""Sessions, as answers show them and bodies describe them."""

from __future__ import annotations

from uuid import UUID

from rest_framework import serializers

from agentcore.api.parsing import Body, JsonObject, Text
from agentcore.api.serializers.agents import RevisionSerializer
from agentcore.models import AgentSession


class SessionSerializer(serializers.ModelSerializer[AgentSession]):
    """A conversation with one agent, pinned to the revision it began with."""

    agent = serializers.CharField(source="agent.name", read_only=True)
    revision = RevisionSerializer(read_only=True)
    user = serializers.SerializerMethodField(help_text="The owner's user name.")
    metadata = serializers.DictField(read_only=True)
    active_turn = serializers.SerializerMethodField(help_text="The `execution_id` of the turn under way.")

    class Meta:
        model = AgentSession
        fields = (
            "session_id",
            "agent",
            "revision",
            "status",
            "title",
            "user",
            "metadata",
            "active_turn",
            "created_at",
            "updated_at",
            "archived_at",
        )
        read_only_fields = fields

    def get_user(self, session: AgentSession) -> str | None:
        return session.user_name or None

    def get_active_turn(self, session: AgentSession) -> UUID | None:
        # A session without one has no such attribute at all.
        turn = getattr(session, "active_turn", None)
        return turn.execution_id if turn is not None else None


class NewSession(Body):
    """A session to begin. Without a `session_id` it is given one."""

    agent = Text(max_length=64, allow_blank=False)
    session_id = Text(required=False, help_text="1 to 64 of a-z 0-9 . _ : -")
    title = Text(required=False)
    metadata = JsonObject(required=False)


class SessionChange(Body):
    """What may be changed of a session; what is left out stays. `metadata` replaces the whole object."""

    title = Text(required=False)
    metadata = JsonObject(required=False)


class Nothing(Body):
    """A body without fields."""
