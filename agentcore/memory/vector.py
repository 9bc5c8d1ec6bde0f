"""Remember by meaning: rows as the buffer keeps them, and a vector of each in the project's index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentcore import database, vectors
from agentcore.memory import store
from agentcore.memory.base import COLLECTION, Item, Kept, Recalled, Source
from agentcore.models import Memory, Owner, Shown
from agentcore.models.memory import session_scope, user_scope
from agentcore.vectors import Embedding, Text, sources

# So many more are asked for than wanted, since some may be over or shown already; and never more than MOST.
SPARE = 16
MOST = 4_096
# Of the sessions that keep memories of their own, the newest first, when all that a user has is searched.
MAX_SESSIONS = 500


class VectorMemory:
    """Answers with what is nearest in meaning. The index filters by scope first; the rows decide whose they are."""

    def recall(self, owner: Owner, query: str, *, limit: int, shown: Shown | None = None) -> list[Recalled]:
        """Return the nearest memories; raise what the embedder raises."""
        return _found(Memory.objects.of(owner).not_shown(shown), owner, query, limit=limit, most=MOST)

    def look_up(self, owner: Owner, query: str, *, limit: int, kind: str | None = None) -> list[Recalled]:
        """Return the nearest memories of a kind, or of any; raise what the embedder raises."""
        # The index knows no kinds: where those of one are the farthest, all have to be gone through.
        most = MOST if kind is None else max(MOST, Memory.objects.owned_by(owner).count())
        return _found(Memory.objects.of(owner).of_kind(kind), owner, query, limit=limit, most=most)

    def remember(self, owner: Owner, items: Sequence[Item], *, source: Source) -> list[Kept]:
        """Keep items as rows, and the vectors of those that are new; raise what the embedder raises, after the rows."""
        kept = store.keep(owner, items, source=source)
        _put([(memory.id, memory.scope, memory.text) for memory in kept if memory.is_new or memory.is_changed])
        return kept

    def renew(self, memory: Memory) -> None:
        """Make the vector of a memory anew."""
        _put([(memory.pk, memory.scope, memory.text)])

    def forget(self, ids: Sequence[int]) -> None:
        """Drop vectors."""
        vectors.index().remove(COLLECTION, list(ids))


def _count() -> int:
    count: int = Memory.objects.lasting().count()
    return count


def _page(after: int, size: int) -> list[Text]:
    rows = Memory.objects.lasting().filter(pk__gt=after).select_related("session").order_by("pk")[:size]
    return [Text(id=row.pk, scope=row.scope, text=row.text) for row in rows]


# What this backend keeps is what can be embedded anew.
sources.register(sources.Source(collection=COLLECTION, count=_count, page=_page))


def _put(told: Sequence[tuple[int, str, str]]) -> None:
    """Store the vectors of texts, and of what others made of them meanwhile: who comes last finds what is said now."""
    while told:
        with database.given_back():
            embeddings = vectors.embedder().embed([text for _, _, text in told])
        items = [
            vectors.Item(id=pk, scope=scope, embedding=embedding)
            for (pk, scope, _), embedding in zip(told, embeddings, strict=True)
        ]
        vectors.index().put(COLLECTION, items)
        now = dict(Memory.objects.filter(pk__in=[item.id for item in items]).values_list("pk", "text"))
        if gone := [item.id for item in items if item.id not in now]:
            vectors.index().remove(COLLECTION, gone)
        told = [(pk, scope, now[pk]) for pk, scope, text in told if pk in now and now[pk] != text]


def _scopes(owner: Owner) -> list[str]:
    """Return where what `owner` has may be found."""
    found = [user_scope(owner.user_key)] if owner.user_key else []
    if owner.session_pk is not None:
        return [*found, session_scope(owner.session_id)]
    kept = Memory.objects.of(owner).exclude(session=None).order_by("-session_id")
    sessions = kept.values_list("session__session_id", flat=True).distinct()[:MAX_SESSIONS]
    return [*found, *(session_scope(session_id) for session_id in sessions)]


# Any: models are typed by a plugin that does not follow querysets through here.
def _found(rows: Any, owner: Owner, query: str, *, limit: int, most: int) -> list[Recalled]:
    # Asking the database costs less than asking an embedder, which may be far away.
    if owner.is_nobody or not query.strip() or not rows.exists():
        return []
    scopes = _scopes(owner)
    with database.given_back():
        [embedding] = vectors.embedder().embed([query[: store.MAX_TEXT]])
    return _nearest(rows, embedding, scopes, limit=limit, most=most)


def _nearest(rows: Any, embedding: Embedding, scopes: Sequence[str], *, limit: int, most: int) -> list[Recalled]:
    wanted = limit + SPARE
    while True:
        hits = vectors.index().search(COLLECTION, embedding, scopes=scopes, k=wanted)
        found = rows.in_bulk([hit.id for hit in hits])
        nearest = [Recalled.of(found[hit.id], hit.score) for hit in hits if hit.id in found and hit.score > 0]
        if len(nearest) >= limit or len(hits) < wanted or wanted >= most or hits[-1].score <= 0:
            return nearest[:limit]
        wanted = min(wanted * 4, most)
