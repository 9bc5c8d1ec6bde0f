"""Redis while a worker has the turn, the database when it pauses or ends: the copy is dropped there."""

from __future__ import annotations

from collections.abc import Mapping

from agentcore.state.base import Phase
from agentcore.state.redis import RedisState


class HybridState(RedisState):
    """Copies of turns at work only: Redis holds no more of them than there are workers and queued turns."""

    def write(self, execution_id: str, fields: Mapping[str, str], *, phase: Phase) -> bool:
        if phase is Phase.ACTIVE:
            return super().write(execution_id, fields, phase=phase)
        self._ask(lambda: self.forget(execution_id), False)
        return True
