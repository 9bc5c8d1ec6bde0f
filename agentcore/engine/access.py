"""What a user may reach: agents they have the permission for, and sessions that are theirs."""

from __future__ import annotations

from typing import Any

from agentcore.agents.definition import AgentDefinition
from agentcore.agents.registry import registry
from agentcore.exceptions import Conflict, NotFound
from agentcore.models import AgentSession
from agentcore.turns import sessions


def can_use(user: Any, definition: AgentDefinition) -> bool:
    """Say whether the agent exists for `user`; for no user at all (the system) each does."""
    return user is None or not definition.permission or bool(user.has_perm(definition.permission))


def agent_for(user: Any, name: str) -> AgentDefinition:
    """Return the agent, or raise NotFound as for one that does not exist."""
    definition = registry.get(name)
    if not can_use(user, definition):
        raise NotFound(f"There is no agent named {name!r}.", agent=name)
    return definition


def session_for(user: Any, session_id: str, *, agent: str | None = None) -> AgentSession:
    """Return a session for a new turn: another user's is NotFound, another agent's a Conflict."""
    session = sessions.get(session_id)
    if user is not None and session.user_key and session.user_key != str(user.pk):
        raise NotFound(f"There is no session {session_id!r}.", session_id=session_id)
    agent_for(user, session.agent.name)
    if agent is not None and session.agent.name != agent:
        raise Conflict(
            f"Session {session_id!r} belongs to the agent {session.agent.name!r}, not {agent!r}.",
            session_id=session_id,
            agent=session.agent.name,
        )
    return session
