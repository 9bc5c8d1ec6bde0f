"""Work the queue in this process, as a worker would."""

from __future__ import annotations

from agentcore.engine import loop
from agentcore.models import AgentContext
from agentcore.states import TurnState

MAX_ROUNDS = 1_000


def run_turns() -> int:
    """Run queued turns until none is left; return how many runs that took.

    A turn that pauses is left waiting; one that is decided meanwhile goes on. One that was given back to go on
    later is left queued: advance the clock for it.
    """
    runs = 0
    while runs < MAX_ROUNDS:
        queued = list(
            AgentContext.objects.due()
            .filter(state=TurnState.QUEUED)
            .order_by("pk")
            .values_list("execution_id", flat=True)
        )
        if not queued:
            return runs
        runs += sum(loop.run(execution_id) for execution_id in queued)
    raise AssertionError(f"There are still queued turns after {MAX_ROUNDS} runs.")
