"""Erase a user's data from the hot copies of their turns."""

from __future__ import annotations

from agentcore import erasers
from agentcore.conf import settings
from agentcore.erasers import Owner
from agentcore.models import AgentContext
from agentcore.state.redis import RedisState
from agentcore.state.registry import current

AT_ONCE = 500


def erase(owner: Owner) -> int:
    """Drop the copies of the owner's turns; return how many there were. Raises when their server is away.

    Redis is asked wherever it is known: a project may have changed to another backend since.
    """
    backends = [current(), *([RedisState()] if settings.REDIS_URL else [])]
    dropped = 0
    for start in range(0, len(owner.turns), AT_ONCE):
        turns = AgentContext.objects.filter(pk__in=owner.turns[start : start + AT_ONCE])
        for execution_id in turns.values_list("execution_id", flat=True):
            # Each is asked, whatever another had.
            dropped += max(backend.forget(str(execution_id)) for backend in backends)
    return dropped


erasers.register("hot copies", erase)
