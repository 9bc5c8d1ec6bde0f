"""Remember what was told last: one query to recall, and rows to keep."""

from __future__ import annotations

from collections.abc import Sequence

from agentcore import vectors
from agentcore.memory import store
from agentcore.memory.base import COLLECTION, Item, Kept, Recalled, Source
from agentcore.models import Memory, Owner, Shown


class BufferMemory:
    """Answers with the newest, whatever is asked."""

    def recall(self, owner: Owner, query: str, *, limit: int, shown: Shown | None = None) -> list[Recalled]:
        """Return the newest memories."""
        if owner.is_nobody:
            return []
        rows = Memory.objects.of(owner).not_shown(shown).newest_first()
        return [Recalled.of(row) for row in rows[:limit]]

    def remember(self, owner: Owner, items: Sequence[Item], *, source: Source) -> list[Kept]:
        """Keep items as rows."""
        return store.keep(owner, items, source=source)

    def renew(self, memory: Memory) -> None:
        """Drop a vector that a former backend may have left: it says what the memory said before."""
        self.forget([memory.pk])

    def forget(self, ids: Sequence[int]) -> None:
        """Drop the vectors that a backend which the project had before may have left."""
        vectors.index().remove(COLLECTION, list(ids))
