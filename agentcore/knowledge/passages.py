"""Find passages for an agent, within what it may read: its own documents and the shared ones."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from agentcore import database
from agentcore.knowledge.documents import COLLECTION, scope_of
from agentcore.models import SHARED, Chunk
from agentcore.vectors import Embedding, embedder, index

logger = logging.getLogger("agentcore.knowledge")

# What is longer says no more about what is sought.
MAX_QUERY = 4_000

_told: set[str] = set()


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A piece of a document that was found, and what is needed to cite it. `score` is at most 1."""

    document: int
    title: str
    source: str
    heading: str
    position: int
    text: str
    score: float

    def citation(self) -> dict[str, Any]:
        """Return where the passage stands, without its text."""
        told = {name: getattr(self, name) for name in ("document", "title", "source", "heading", "position")}
        return {**told, "score": self.score}


def retrieve(agent_name: str, query: str, k: int) -> list[Passage]:
    """Return at most `k` passages about `query` that this agent may read, best first; raise EmbedderFailed.

    No connection is held while the query is embedded.
    """
    with database.given_back():
        embedding = embed(query)
    return nearest(agent_name, embedding, k)


def embed(query: str) -> Embedding:
    """Return the query's embedding; raise EmbedderFailed. It reads no row."""
    return embedder().embed([query[:MAX_QUERY]])[0]


def nearest(agent_name: str, embedding: Embedding, k: int) -> list[Passage]:
    """Return at most `k` passages that are near an embedding, of what this agent may read."""
    scopes = [scope_of(SHARED), scope_of(agent_name)]
    with nullcontext() if index().is_in_database else database.given_back():
        hits = index().search(COLLECTION, embedding, scopes=scopes, k=k)
    if len(hits) < k:
        _warn_of_others(embedding)
    scores = {hit.id: hit.score for hit in hits if hit.score > 0}
    # Read again through the filter: an index of somebody else's may hold what is gone, or not this agent's. And
    # compared here: MariaDB takes no notice of case and of spaces at the end.
    chunks = Chunk.objects.readable_by(agent_name).filter(pk__in=scores).select_related("document")
    found = {
        chunk.pk: chunk
        for chunk in chunks.defer("document__text", "document__metadata")
        if chunk.document.agent in (SHARED, agent_name)
    }
    return [_passage(found[pk], score) for pk, score in scores.items() if pk in found]


def _passage(chunk: Chunk, score: float) -> Passage:
    return Passage(
        document=chunk.document_id,
        title=chunk.document.title,
        source=chunk.document.source,
        heading=chunk.heading,
        position=chunk.position,
        text=chunk.text,
        score=round(score, 4),
    )


def _warn_of_others(embedding: Embedding) -> None:
    """Log, once per process and embedder, that there are vectors which this one's cannot be compared with."""
    kind = embedding.kind
    if kind.embedder in _told:
        return
    _told.add(kind.embedder)
    others = [other for other in index().kinds(COLLECTION) if other != kind]
    if others:
        logger.warning(
            "Vectors of another embedder are left out; run agentcore_reembed",
            extra={"embedder": kind.embedder, "others": [list(other) for other in others]},
        )
