"""Hot copies without an end whose turns wait no more.

The end of a wait tells Redis so. It was not told when it was away at that moment, and has forgotten it when it came
back with an older snapshot.
"""

from __future__ import annotations

from uuid import UUID

from agentcore.conf import settings
from agentcore.models import AgentContext
from agentcore.state.base import Phase, phase_of
from agentcore.state.redis import RedisState

# So many are looked at each time, any of them: all are in time.
AT_ONCE = 500


def let_end() -> int:
    """Have copies end as long after this as their turns' state says, and at once without a row; return how many.

    Redis is asked wherever it is known: a project may have changed to another backend since.
    """
    if not settings.REDIS_URL:
        return 0
    backend = RedisState()
    named = backend.endless(AT_ONCE)
    ids = {name: found for name in named if (found := _id(name)) is not None}
    states = dict(AgentContext.objects.filter(execution_id__in=ids.values()).values_list("execution_id", "state"))
    phases = {name: phase_of(states[ids[name]]) if ids.get(name) in states else None for name in named}
    over = {name: phase for name, phase in phases.items() if phase is not Phase.WAITING}
    if over:
        backend.let_end(over)
    return len(over)


def _id(name: str) -> UUID | None:
    try:
        return UUID(name)
    except ValueError:
        return None
