"""Remember by meaning and by time, look by meaning and by words: both lists, merged by reciprocal rank."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from django.db import DatabaseError

from agentcore.memory.base import Recalled
from agentcore.memory.buffer import BufferMemory
from agentcore.memory.vector import VectorMemory
from agentcore.models import Owner, Shown

logger = logging.getLogger("agentcore.memory")

# From the paper that describes the method: a first place counts 1/61, a second 1/62.
RANK_CONSTANT = 60


class HybridMemory(VectorMemory):
    """Recalls what is near in meaning or new. Without its embedder it goes on with the newest.

    A person who searches finds what is near in meaning or has the words; without the embedder, what has the words.
    """

    def recall(self, owner: Owner, query: str, *, limit: int, shown: Shown | None = None) -> list[Recalled]:
        """Return what is best in both lists together."""
        newest = BufferMemory().recall(owner, query, limit=limit, shown=shown)
        nearest = _if_possible(partial(super().recall, owner, query, limit=limit, shown=shown))
        return merged([nearest, newest])[:limit]

    def look_up(self, owner: Owner, query: str, *, limit: int, kind: str | None = None) -> list[Recalled]:
        """Return what is best in both lists together."""
        worded = BufferMemory().look_up(owner, query, limit=limit, kind=kind)
        nearest = _if_possible(partial(super().look_up, owner, query, limit=limit, kind=kind))
        return merged([nearest, worded])[:limit]


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


def _if_possible(find: Callable[[], list[Recalled]]) -> list[Recalled]:
    try:
        return find()
    except DatabaseError:
        raise
    except Exception:
        logger.warning("Nothing can be found by meaning just now; the rest must do", exc_info=True)
        return []
