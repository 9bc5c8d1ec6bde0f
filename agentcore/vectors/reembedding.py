"""Embed again what another embedder embedded, or nobody yet, and drop vectors of texts that are gone.

Each page is kept as it comes: stop and start at will.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from agentcore import database
from agentcore.vectors.base import Item, Kind
from agentcore.vectors.registry import embedder, index
from agentcore.vectors.sources import Source, Text

PAGE = 200
PROBE = "What is this embedder's dimension?"


def current_kind() -> Kind:
    """Return the kind of vectors that the present embedder makes; raise EmbedderFailed."""
    return embedder().embed([PROBE])[0].kind


def renew(source: Source, kind: Kind, *, tell: Callable[[int], None] = lambda count: None) -> int:
    """Give each text of a source a vector of this kind; return how many had none.

    `tell` is called with the size of each page that is done. What fails, raises EmbedderFailed or IndexFailed; what was
    done by then stays done. A vector of before is replaced only by its new one.
    """
    renewed = 0
    for page in _pages(source):
        missing = set(index().missing(source.collection, [text.id for text in page], kind))
        renewed += _embed(source.collection, [text for text in page if text.id in missing])
        tell(len(page))
    index().prepare(kind)
    return renewed


def sweep(source: Source) -> int:
    """Drop the vectors whose texts are gone, which a crash may have left; return how many. Raises IndexFailed."""
    removed = after = 0
    while items := index().items(source.collection, after=after, size=PAGE):
        # Read after the index: a text is stored before its vector.
        there = _between(source, after, items[-1])
        gone = [item for item in items if item not in there]
        index().remove(source.collection, gone)
        removed, after = removed + len(gone), items[-1]
    return removed


def _between(source: Source, after: int, last: int) -> set[int]:
    """Return the ids of the texts above `after`, up to `last`."""
    there: set[int] = set()
    while after < last and (page := source.page(after, PAGE)):
        there.update(text.id for text in page)
        after = page[-1].id
    return there


def _embed(collection: str, texts: list[Text]) -> int:
    if texts:
        with database.given_back():
            embeddings = embedder().embed([text.text for text in texts])
        items = [
            Item(id=text.id, scope=text.scope, embedding=made) for text, made in zip(texts, embeddings, strict=True)
        ]
        index().put(collection, items)
    return len(texts)


def _pages(source: Source) -> Iterator[Sequence[Text]]:
    after = 0
    while page := source.page(after, PAGE):
        yield page
        after = page[-1].id
