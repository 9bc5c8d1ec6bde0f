"""Find memories by their words: the same on every database, whose own comparisons differ in case and in accents."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from itertools import islice
from typing import Any

from django.db.models import Q

from agentcore.models import Memory

# So many rows are read at once.
PAGE = 500


# Any: models are typed by a plugin that does not follow querysets through here.
def find(rows: Any, query: str, *, limit: int) -> list[Memory]:
    """Return up to `limit` of the rows whose text holds all the words, in any case and order, the newest first."""
    words = set(_folded(query).split())
    if not words:
        return []
    return list(islice((row for row in _newest_first(rows) if _holds(row, words)), limit))


def _holds(row: Memory, words: set[str]) -> bool:
    text = _folded(row.text)
    return all(word in text for word in words)


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _newest_first(rows: Any) -> Iterator[Memory]:
    """Yield rows, in pages: no cursor stays open when enough are found."""
    ordered = rows.newest_first()
    page = list(ordered[:PAGE])
    while page:
        yield from page
        last = page[-1]
        older = Q(seen_at__lt=last.seen_at) | Q(seen_at=last.seen_at, pk__lt=last.pk)
        page = list(ordered.filter(older)[:PAGE]) if len(page) == PAGE else []
