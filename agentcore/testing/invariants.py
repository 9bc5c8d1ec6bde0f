"""Assert what must hold after every test."""

from __future__ import annotations

from agentcore.approvals import invariants
from agentcore.models import AgentSession


def assert_invariants() -> None:
    """Raise AssertionError that lists everything that is wrong with any session."""
    found = [
        f"session {session.session_id}: {problem}"
        for session in AgentSession.objects.order_by("pk")
        for problem in invariants.problems(session)
    ]
    if found:
        raise AssertionError("\n".join(found))
