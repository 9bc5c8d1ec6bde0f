"""Where the texts behind the vectors are: each collection registers how it is read, so that it can be embedded anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Text(NamedTuple):
    """A text of a collection: its item's id, its scope, and what is embedded."""

    id: int
    scope: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Source:
    """The texts of one collection. `page(after, size)` gives up to `size` with an id above `after`, by id."""

    collection: str
    count: Callable[[], int]
    page: Callable[[int, int], Sequence[Text]]


_sources: dict[str, Source] = {}


def register(source: Source) -> None:
    """Make a collection known; one of the same name is replaced."""
    _sources[source.collection] = source


def registered() -> list[Source]:
    """Return the sources, by the names of their collections."""
    return [_sources[name] for name in sorted(_sources)]
