"""Drop hot copies: of a user whose data is erased, and of turns whose rows go."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from agentcore import database, erasers
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
    dropped = 0
    for start in range(0, len(owner.turns), AT_ONCE):
        turns = AgentContext.objects.filter(pk__in=owner.turns[start : start + AT_ONCE])
        dropped += _drop(turns.values_list("execution_id", flat=True))
    return dropped


def forget_with(turns: Iterable[UUID]) -> None:
    """Drop, after the commit, the copies of turns whose rows go in this transaction.

    Where their server is away the log says so, and they go by their time to live.
    """
    if ids := list(turns):
        database.on_commit(lambda: _drop(ids))


def _drop(turns: Iterable[UUID]) -> int:
    backends = [current(), *([RedisState()] if settings.REDIS_URL else [])]
    # Each is asked, whatever another had.
    return sum(max(backend.forget(str(execution_id)) for backend in backends) for execution_id in turns)


erasers.register("hot copies", erase)
