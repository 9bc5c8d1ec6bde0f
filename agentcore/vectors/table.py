"""What an index in a table of agentcore's database does, whatever the type of the column that holds the numbers."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from django.db import connections
from django.db.models import Q

from agentcore import clock, database
from agentcore.vectors.base import Item, Kind, Values, VectorIndex

ROWS_PER_STATEMENT = 500


class TableIndex(VectorIndex):
    """Keeps one row per item. Subclasses search."""

    is_in_database = True

    # Any: managers are typed by a plugin, per model.
    @property
    @abstractmethod
    def _model(self) -> Any:
        """The model of the table."""

    @abstractmethod
    def _columns(self, values: Values) -> dict[str, Any]:
        """Return the columns that hold the numbers, by name."""

    def put(self, collection: str, items: Sequence[Item]) -> None:
        """Keep vectors, in the caller's transaction if there is one."""
        now = clock.now()
        # In one order, so that two writers of the same items wait for one another and do not lock each other out.
        newest = sorted({item.id: item for item in items}.values(), key=lambda item: item.id)
        rows = [self._row(collection, item, now) for item in newest]
        has_target = connections[database.alias()].features.supports_update_conflicts_with_target
        if not newest:
            return
        numbers = self._columns(newest[0].embedding.values)
        with database.atomic():
            self._model.objects.bulk_create(
                rows,
                batch_size=ROWS_PER_STATEMENT,
                update_conflicts=True,
                update_fields=("space", "embedder", "dimension", "created_at", *numbers),
                unique_fields=("collection", "item") if has_target else None,
            )

    def remove(self, collection: str, ids: Sequence[int]) -> None:
        """Forget the vectors of items, in the caller's transaction if there is one."""
        for some in _parts(ids):
            self._model.objects.filter(collection=collection, item__in=some).delete()

    def missing(self, collection: str, ids: Sequence[int], kind: Kind) -> list[int]:
        """Return those of the items that have no vector of this kind."""
        there: set[int] = set()
        for some in _parts(ids):
            rows = self._model.objects.filter(collection=collection, item__in=some)
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
        rows = self._model.objects.filter(collection=collection).order_by("embedder", "dimension")
        left = rows
        while (row := left.values_list("embedder", "dimension").first()) is not None:
            found.append(kind := Kind(*row))
            same = Q(embedder=kind.embedder, dimension__gt=kind.dimension)
            left = rows.filter(Q(embedder__gt=kind.embedder) | same)
        return found

    def items(self, collection: str, *, after: int, size: int) -> list[int]:
        """Return up to `size` items above `after` that have a vector, by id."""
        rows = self._model.objects.filter(collection=collection, item__gt=after).order_by("item")
        return list(rows.values_list("item", flat=True)[:size])

    def _row(self, collection: str, item: Item, now: Any) -> Any:
        kind = item.embedding.kind
        return self._model(
            collection=collection,
            item=item.id,
            space=space(collection, item.scope, kind),
            embedder=kind.embedder,
            dimension=kind.dimension,
            created_at=now,
            **self._columns(item.embedding.values),
        )


def space(collection: str, scope: str, kind: Kind) -> UUID:
    """Return the key of the vectors that a search compares: one short column, byte for byte on every database."""
    parts = "\0".join((collection, scope, kind.embedder, str(kind.dimension)))
    # MariaDB takes no UUID without a version.
    return UUID(bytes=hashlib.sha256(parts.encode()).digest()[:16], version=5)


def _parts(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(ids), ROWS_PER_STATEMENT):
        yield ids[start : start + ROWS_PER_STATEMENT]
