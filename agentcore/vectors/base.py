"""What an embedder and a vector index are, and the values that pass between them and their callers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentcore.exceptions import ConfigurationError, EmbedderFailed

MAX_ID = 128
MAX_DIMENSION = 16_000

Values = NDArray[np.float32]


class Kind(NamedTuple):
    """Which vectors may be compared with one another: those of one embedder and one dimension."""

    embedder: str
    dimension: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Embedding:
    """What an embedder made of a text. `values` has the length 1, or 0 for a text that says nothing."""

    embedder: str
    values: Values

    @property
    def kind(self) -> Kind:
        """Return what the vector may be compared with."""
        return Kind(self.embedder, len(self.values))


@dataclass(frozen=True, kw_only=True, eq=False)
class Item:
    """A vector to keep: of which item of the collection, and who may find it."""

    id: int
    scope: str
    embedding: Embedding


@dataclass(frozen=True, kw_only=True)
class Hit:
    """An item that was found. `score` is the cosine of the angle to what was sought: 1 is the same direction."""

    id: int
    score: float


class Embedder(ABC):
    """Turns texts into vectors. `id` names it together with its model: another model is another embedder.

    It is made once per process without arguments, and used from several threads.
    """

    id: str

    @abstractmethod
    def compute(self, texts: Sequence[str]) -> Any:
        """Return one vector per text, in order: an array or lists of numbers. It may raise any Exception."""

    def embed(self, texts: Sequence[str]) -> list[Embedding]:
        """Return the embeddings of `texts`, in order; raise EmbedderFailed. No transaction should be open."""
        if not texts:
            return []
        try:
            values = np.asarray(self.compute(texts), dtype=np.float32)
        except EmbedderFailed:
            raise
        except Exception as error:
            raise EmbedderFailed(
                f"The embedder {self.id!r} failed with {type(error).__name__}.", embedder=self.id
            ) from error
        self._check(values, len(texts))
        return [Embedding(embedder=self.id, values=row) for row in _of_length_one(values)]

    def _check(self, values: Values, count: int) -> None:
        if values.ndim != 2 or len(values) != count or not 0 < values.shape[1] <= MAX_DIMENSION:
            raise EmbedderFailed(
                f"The embedder {self.id!r} gave an array of shape {values.shape} for {count} texts; "
                f"it must be one vector of 1 to {MAX_DIMENSION} numbers for each.",
                embedder=self.id,
            )
        if not np.isfinite(values).all():
            raise EmbedderFailed(f"The embedder {self.id!r} gave numbers that are not finite.", embedder=self.id)


class VectorIndex(ABC):
    """Keeps the vectors of collections and finds the nearest.

    An item has one vector in its collection. A search compares vectors of one kind alone, and looks only among those
    of the scopes it is given: first the scopes, then the nearest. It is made once per process without arguments.
    """

    # Whether it writes into agentcore's database: then vectors are stored and removed together with their rows.
    is_in_database = False

    @abstractmethod
    def put(self, collection: str, items: Sequence[Item]) -> None:
        """Keep vectors; what was kept of the same items before is replaced."""

    @abstractmethod
    def remove(self, collection: str, ids: Sequence[int]) -> None:
        """Forget the vectors of items; those that are not there do not matter."""

    @abstractmethod
    def search(self, collection: str, embedding: Embedding, *, scopes: Sequence[str], k: int) -> list[Hit]:
        """Return at most `k` hits within `scopes`, best first; among equals the lower id. No scope, no hit."""

    @abstractmethod
    def missing(self, collection: str, ids: Sequence[int], kind: Kind) -> list[int]:
        """Return those of the items that have no vector of this kind, in the order given."""

    @abstractmethod
    def kinds(self, collection: str) -> list[Kind]:
        """Return the kinds of vectors that the collection holds."""

    def items(self, collection: str, *, after: int, size: int) -> list[int]:
        """Return up to `size` items above `after` that have a vector, by id; none where the index cannot tell."""
        return []

    def prepare(self, kind: Kind) -> None:  # noqa: B027 - most have nothing to prepare
        """Make ready for searches of this kind, once many vectors are there. It may take long."""


def checked_id(embedder: Any) -> str:
    """Return an embedder's id; raise ConfigurationError unless it is text of 1 to 128 characters."""
    given = getattr(embedder, "id", None)
    if not isinstance(given, str) or not 0 < len(given) <= MAX_ID:
        raise ConfigurationError(
            f"The embedder {type(embedder).__name__} has the id {given!r}; it must be text of 1 to {MAX_ID} characters."
        )
    return given


def _of_length_one(values: Values) -> Values:
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    unit: Values = np.divide(values, lengths, out=np.zeros_like(values), where=lengths > 0)
    return unit
