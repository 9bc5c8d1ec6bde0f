"""Tell what goes wrong in an index, whichever it is, by one error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import DatabaseError

from agentcore.exceptions import AgentError, ConfigurationError, IndexFailed
from agentcore.vectors.base import Embedding, Hit, Item, Kind, VectorIndex


class GuardedIndex(VectorIndex):
    """Does what the index within does, and raises IndexFailed where that raises anything of its own.

    Errors of the database stay as they are: who writes tries again after some of them.
    """

    # Any: a project's own need not inherit ours.
    def __init__(self, within: Any) -> None:
        self.within = within
        self.is_in_database = bool(getattr(within, "is_in_database", False))

    def put(self, collection: str, items: Sequence[Item]) -> None:
        """Keep vectors."""
        with self._telling():
            self.within.put(collection, items)

    def remove(self, collection: str, ids: Sequence[int]) -> None:
        """Forget the vectors of items."""
        with self._telling():
            self.within.remove(collection, ids)

    def search(self, collection: str, embedding: Embedding, *, scopes: Sequence[str], k: int) -> list[Hit]:
        """Return the nearest within `scopes`."""
        with self._telling():
            return list(self.within.search(collection, embedding, scopes=scopes, k=k))

    def missing(self, collection: str, ids: Sequence[int], kind: Kind) -> list[int]:
        """Return those of the items that have no vector of this kind."""
        with self._telling():
            return list(self.within.missing(collection, ids, kind))

    def kinds(self, collection: str) -> list[Kind]:
        """Return the kinds of vectors that the collection holds."""
        with self._telling():
            return list(self.within.kinds(collection))

    def items(self, collection: str, *, after: int, size: int) -> list[int]:
        """Return items that have a vector, where the index can tell."""
        with self._telling():
            asked = getattr(self.within, "items", None)
            return list(asked(collection, after=after, size=size)) if asked is not None else []

    def prepare(self, kind: Kind) -> None:
        """Make ready for searches, where the index can."""
        with self._telling():
            getattr(self.within, "prepare", lambda kind: None)(kind)

    def close(self) -> None:
        """Give back what the index holds, where it can."""
        getattr(self.within, "close", lambda: None)()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except (AgentError, ConfigurationError, DatabaseError):
            raise
        except Exception as error:
            name = type(self.within).__name__
            raise IndexFailed(f"The index {name} failed with {type(error).__name__}.", index=name) from error
