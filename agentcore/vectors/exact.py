"""Keep vectors in a table of agentcore's own and compare each of a scope: exact, and the same on every database."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
from django.db.models import Count, Sum

from agentcore.models import Vector
from agentcore.vectors.base import Embedding, Hit, Values
from agentcore.vectors.table import TableIndex, space

# Rows that are read at once: 8 MiB of vectors of 256 numbers.
PAGE = 8192
# What a process keeps of the scopes it searched last, in bytes; a scope of more than half of it is read each time.
KEPT_BYTES = 256 * 1024 * 1024
STAMP_BITS = 40


class ExactIndex(TableIndex):
    """Compares each vector of a scope. Memory is bounded; time grows with the scope.

    Reading takes far longer than comparing, so each process keeps the scopes it searched last, and asks the database
    before each use, by an index alone, whether they are as they were.
    """

    _model = Vector

    def __init__(self) -> None:
        self._shelf = _Shelf()

    def search(self, collection: str, embedding: Embedding, *, scopes: Sequence[str], k: int) -> list[Hit]:
        """Return the nearest within `scopes`."""
        best = _Best(k)
        for scope in dict.fromkeys(scopes):
            for part in self._parts(space(collection, scope, embedding.kind), len(embedding.values)):
                best.add(part.ids, part.values @ embedding.values)
        return best.hits()

    def _columns(self, values: Values) -> dict[str, Any]:
        return {"data": np.asarray(values, dtype="<f4").tobytes(), "stamp": secrets.randbits(STAMP_BITS)}

    def _parts(self, space: UUID, dimension: int) -> Iterator[_Part]:
        """Yield the vectors of a space: as they were kept, or as they are read."""
        state = _state_of(space)
        if not state[0]:
            return
        if (kept := self._shelf.find(space, state)) is not None:
            yield kept
        elif state[0] * dimension * 4 * 2 > KEPT_BYTES:
            yield from _pages(space, dimension)
        else:
            read = _joined(list(_pages(space, dimension)))
            self._shelf.put(space, read)
            yield read


@dataclass(frozen=True, kw_only=True, eq=False)
class _Part:
    """Vectors that were read. `state` is that of exactly these rows, whatever was written meanwhile."""

    ids: Any
    values: Values
    state: tuple[int, int]


class _Shelf:
    """The spaces that were searched last, as far as they fit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[UUID, _Part] = OrderedDict()
        self._bytes = 0

    def find(self, space: UUID, state: tuple[int, int]) -> _Part | None:
        """Return what is kept of a space, if it is still as the database has it."""
        with self._lock:
            part = self._kept.get(space)
            if part is None or part.state != state:
                return None
            self._kept.move_to_end(space)
            return part

    def put(self, space: UUID, part: _Part) -> None:
        """Keep a space; those that were not searched for longest make room."""
        with self._lock:
            self._take(space)
            self._kept[space] = part
            self._bytes += part.values.nbytes
            while self._bytes > KEPT_BYTES:
                self._take(next(iter(self._kept)))

    def _take(self, space: UUID) -> None:
        old = self._kept.pop(space, None)
        self._bytes -= old.values.nbytes if old is not None else 0


class _Best:
    """The best hits so far."""

    def __init__(self, k: int) -> None:
        self._k = k
        self._ids = np.empty(0, dtype=np.int64)
        self._scores = np.empty(0, dtype=np.float32)

    def add(self, ids: Any, scores: Values) -> None:
        if len(scores) > self._k > 0:
            # All that are as good as the last of the best stay for now: among equals the lower id is taken.
            keep = scores >= np.partition(scores, len(scores) - self._k)[len(scores) - self._k]
            ids, scores = ids[keep], scores[keep]
        ids, scores = np.concatenate((self._ids, ids)), np.concatenate((self._scores, scores))
        order = np.lexsort((ids, -scores))[: max(self._k, 0)]
        self._ids, self._scores = ids[order], scores[order]

    def hits(self) -> list[Hit]:
        return [Hit(id=int(item), score=float(score)) for item, score in zip(self._ids, self._scores, strict=True)]


def _state_of(space: UUID) -> tuple[int, int]:
    """Return how many rows there are and the sum of their stamps, which each writing changes."""
    found = Vector.objects.filter(space=space).aggregate(count=Count("*"), stamps=Sum("stamp"))
    return int(found["count"]), int(found["stamps"] or 0)


def _pages(space: UUID, dimension: int) -> Iterator[_Part]:
    rows = Vector.objects.filter(space=space).order_by("item").values_list("item", "stamp", "data")
    page = list(rows[:PAGE])
    while page:
        yield _Part(
            ids=np.fromiter((row[0] for row in page), dtype=np.int64, count=len(page)),
            values=np.frombuffer(b"".join(row[2] for row in page), dtype="<f4").reshape(len(page), dimension),
            state=(len(page), sum(row[1] for row in page)),
        )
        page = list(rows.filter(item__gt=page[-1][0])[:PAGE]) if len(page) == PAGE else []


def _joined(parts: list[_Part]) -> _Part:
    if len(parts) == 1:
        return parts[0]
    return _Part(
        ids=np.concatenate([part.ids for part in parts]) if parts else np.empty(0, dtype=np.int64),
        values=np.concatenate([part.values for part in parts]) if parts else np.empty((0, 0), dtype=np.float32),
        state=(sum(part.state[0] for part in parts), sum(part.state[1] for part in parts)),
    )
