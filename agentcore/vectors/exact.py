"""Keep vectors in a table of agentcore's own and compare each of a scope: exact, and the same on every database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import numpy as np

from agentcore.models import Vector
from agentcore.vectors.base import Embedding, Hit, Values
from agentcore.vectors.table import TableIndex, space

# Rows that are held in memory at once: 8 MiB of vectors of 256 numbers.
PAGE = 8192


class ExactIndex(TableIndex):
    """Reads the vectors of a scope page by page and keeps the best. Memory is bounded; time grows with the scope."""

    _model = Vector

    def search(self, collection: str, embedding: Embedding, *, scopes: Sequence[str], k: int) -> list[Hit]:
        """Return the nearest within `scopes`."""
        best = _Best(k)
        for scope in dict.fromkeys(scopes):
            for ids, values in _pages(space(collection, scope, embedding.kind), len(embedding.values)):
                best.add(ids, values @ embedding.values)
        return best.hits()

    def _stored(self, values: Values) -> bytes:
        return np.asarray(values, dtype="<f4").tobytes()


class _Best:
    """The best hits so far."""

    def __init__(self, k: int) -> None:
        self._k = k
        self._ids = np.empty(0, dtype=np.int64)
        self._scores = np.empty(0, dtype=np.float32)

    def add(self, ids: Any, scores: Values) -> None:
        ids, scores = np.concatenate((self._ids, ids)), np.concatenate((self._scores, scores))
        if len(scores) > self._k > 0:
            # All that are as good as the last of the best stay for now: among equals the lower id is taken.
            limit = np.partition(scores, len(scores) - self._k)[len(scores) - self._k]
            keep = scores >= limit
            ids, scores = ids[keep], scores[keep]
        order = np.lexsort((ids, -scores))[: max(self._k, 0)]
        self._ids, self._scores = ids[order], scores[order]

    def hits(self) -> list[Hit]:
        return [Hit(id=int(item), score=float(score)) for item, score in zip(self._ids, self._scores, strict=True)]


def _pages(space: UUID, dimension: int) -> Iterator[tuple[Any, Values]]:
    rows = Vector.objects.filter(space=space).order_by("item").values_list("item", "data")
    page = list(rows[:PAGE])
    while page:
        ids = np.fromiter((item for item, _ in page), dtype=np.int64, count=len(page))
        values = np.frombuffer(b"".join(data for _, data in page), dtype="<f4").reshape(len(page), dimension)
        yield ids, values
        page = list(rows.filter(item__gt=page[-1][0])[:PAGE]) if len(page) == PAGE else []
