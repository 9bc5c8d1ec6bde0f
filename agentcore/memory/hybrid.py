"""Remember by meaning and by time: both lists, merged by reciprocal rank."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from django.db import DatabaseError

from agentcore.memory.base import Recalled
from agentcore.memory.buffer import BufferMemory
from agentcore.memory.vector import VectorMemory
from agentcore.models import Owner, Shown

logger = logging.getLogger("agentcore.memory")

# From the paper that describes the method: a first place counts 1/61, a second 1/62.
RANK_CONSTANT = 60


class HybridMemory(VectorMemory):
    """Answers with what is near in meaning or new. Without its embedder it goes on with the newest."""

    def recall(self, owner: Owner, query: str, *, limit: int, shown: Shown | None = None) -> list[Recalled]:
        """Return what is best in both lists together."""
        newest = BufferMemory().recall(owner, query, limit=limit, shown=shown)
        try:
            nearest = super().recall(owner, query, limit=limit, shown=shown)
        except DatabaseError:
            raise
        except Exception:
            logger.warning("Nothing can be recalled by meaning just now; the newest must do", exc_info=True)
            nearest = []
        return merged([nearest, newest])[:limit]


def merged(lists: Sequence[Sequence[Recalled]]) -> list[Recalled]:
    """Return what the lists hold, each once, by the sum of 1 / (60 + its place); of two equals the earlier list's."""
    scores: dict[int | None, float] = {}
    found: dict[int | None, Recalled] = {}
    for ranked in lists:
        for place, item in enumerate(ranked, start=1):
            scores[item.id] = scores.get(item.id, 0.0) + 1 / (RANK_CONSTANT + place)
            found.setdefault(item.id, item)
    order = sorted(found, key=lambda pk: -scores[pk])
    return [replace(found[pk], score=scores[pk]) for pk in order]
