"""Remember what was told last: one query to recall, words to look for, and rows to keep."""

from __future__ import annotations

from collections.abc import Sequence

from agentcore import vectors
from agentcore.memory import store, words
from agentcore.memory.base import COLLECTION, Item, Kept, Recalled, Source
from agentcore.models import Memory, Owner, Shown


class BufferMemory:
    """Recalls the newest, whatever is asked; a person who searches finds what has the words."""

    def recall(self, owner: Owner, query: str, *, limit: int, shown: Shown | None = None) -> list[Recalled]:
        """Return the newest memories."""
        if owner.is_nobody:
            return []
        rows = Memory.objects.of(owner).not_shown(shown).newest_first()
        return [Recalled.of(row) for row in rows[:limit]]

    def look_up(self, owner: Owner, query: str, *, limit: int, kind: str | None = None) -> list[Recalled]:
        """Return the newest memories that hold all the words of the query."""
        return [Recalled.of(row) for row in words.find(Memory.objects.of(owner).of_kind(kind), query, limit=limit)]

    def remember(self, owner: Owner, items: Sequence[Item], *, source: Source) -> list[Kept]:
        """Keep items as rows."""
        return store.keep(owner, items, source=source)

    def renew(self, memory: Memory) -> None:
        """Drop a vector that a former backend may have left: it says what the memory said before."""
        self.forget([memory.pk])

    def forget(self, ids: Sequence[int]) -> None:
        """Drop the vectors that a backend which the project had before may have left."""
        vectors.index().remove(COLLECTION, list(ids))
