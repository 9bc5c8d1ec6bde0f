"""Keep vectors in a table of agentcore's own and compare each of a scope: exact, and the same on every database."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import numpy as np
from django.db import connections
from django.db.models import Q

from agentcore import clock, database
from agentcore.models import Vector
from agentcore.vectors.base import Embedding, Hit, Item, Kind, Values, VectorIndex

logger = logging.getLogger("agentcore.vectors")

# Rows that are held in memory at once: 8 MiB of vectors of 256 numbers.
PAGE = 8192
ROWS_PER_STATEMENT = 500


class ExactIndex(VectorIndex):
    """Reads the vectors of a scope page by page and keeps the best. Memory is bounded; time grows with the scope."""

    is_in_database = True

    def put(self, collection: str, items: Sequence[Item]) -> None:
        """Keep vectors, in the caller's transaction if there is one."""
        now = clock.now()
        # In one order, so that two writers of the same items wait for one another and do not lock each other out.
        newest = sorted({item.id: item for item in items}.values(), key=lambda item: item.id)
        rows = [_row(collection, item, now) for item in newest]
        has_target = connections[database.alias()].features.supports_update_conflicts_with_target
        with database.atomic():
            Vector.objects.bulk_create(
                rows,
                batch_size=ROWS_PER_STATEMENT,
                update_conflicts=True,
                update_fields=("space", "scope", "embedder", "dimension", "data", "created_at"),
                unique_fields=("collection", "item") if has_target else None,
            )

    def remove(self, collection: str, ids: Sequence[int]) -> None:
        """Forget the vectors of items."""
        for some in _parts(ids):
            Vector.objects.filter(collection=collection, item__in=some).delete()

    def search(self, collection: str, embedding: Embedding, *, scopes: Sequence[str], k: int) -> list[Hit]:
        """Return the nearest within `scopes`."""
        best = _Best(k)
        for scope in dict.fromkeys(scopes):
            for ids, values in _pages(_space(collection, scope, embedding.kind), len(embedding.values)):
                best.add(ids, values @ embedding.values)
        return best.hits()

    def missing(self, collection: str, ids: Sequence[int], kind: Kind) -> list[int]:
        """Return those of the items that have no vector of this kind."""
        there: set[int] = set()
        for some in _parts(ids):
            rows = Vector.objects.filter(collection=collection, item__in=some)
            there.update(
                item
                for item, *found in rows.values_list("item", "embedder", "dimension")
                # Compared here: MariaDB takes no notice of case.
                if Kind(*found) == kind
            )
        return [item for item in ids if item not in there]

    def kinds(self, collection: str) -> list[Kind]:
        """Return the kinds of vectors there are, by as many look-ups as there are kinds."""
        found: list[Kind] = []
        rows = Vector.objects.filter(collection=collection).order_by("embedder", "dimension")
        left = rows
        while (row := left.values_list("embedder", "dimension").first()) is not None:
            found.append(kind := Kind(*row))
            same = Q(embedder=kind.embedder, dimension__gt=kind.dimension)
            left = rows.filter(Q(embedder__gt=kind.embedder) | same)
        return found


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


def _row(collection: str, item: Item, now: Any) -> Vector:
    kind = item.embedding.kind
    return Vector(
        collection=collection,
        item=item.id,
        space=_space(collection, item.scope, kind),
        scope=item.scope,
        embedder=kind.embedder,
        dimension=kind.dimension,
        data=np.asarray(item.embedding.values, dtype="<f4").tobytes(),
        created_at=now,
    )


def _space(collection: str, scope: str, kind: Kind) -> UUID:
    """Return the key of the vectors that a search compares: one short column, byte for byte on every database."""
    parts = "\0".join((collection, scope, kind.embedder, str(kind.dimension)))
    return UUID(bytes=hashlib.sha256(parts.encode()).digest()[:16])


def _pages(space: UUID, dimension: int) -> Iterator[tuple[Any, Values]]:
    rows = Vector.objects.filter(space=space).order_by("item").values_list("item", "data")
    page = list(rows[:PAGE])
    while page:
        ids = np.fromiter((item for item, _ in page), dtype=np.int64, count=len(page))
        values = np.frombuffer(b"".join(data for _, data in page), dtype="<f4").reshape(len(page), dimension)
        yield ids, values
        page = list(rows.filter(item__gt=page[-1][0])[:PAGE]) if len(page) == PAGE else []


def _parts(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(ids), ROWS_PER_STATEMENT):
        yield ids[start : start + ROWS_PER_STATEMENT]
