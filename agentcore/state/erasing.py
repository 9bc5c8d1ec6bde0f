"""Erase a user's data from the hot copies of their turns."""

from __future__ import annotations

from agentcore import erasers
from agentcore.erasers import Owner
from agentcore.models import AgentContext
from agentcore.state.registry import current

AT_ONCE = 500


def erase(owner: Owner) -> int:
    """Drop the copies of the owner's turns; return how many there were. Raises when their server is away."""
    backend = current()
    if not backend.is_hot:
        return 0
    dropped = 0
    for start in range(0, len(owner.turns), AT_ONCE):
        turns = AgentContext.objects.filter(pk__in=owner.turns[start : start + AT_ONCE])
        dropped += sum(
            backend.forget(str(execution_id)) for execution_id in turns.values_list("execution_id", flat=True)
        )
    return dropped


erasers.register("hot copies", erase)
