"""Put documents into the knowledge base and take them out. A document and its pieces change together or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from django.db import IntegrityError

from agentcore import canonical, clock, database
from agentcore.exceptions import InvalidInput, PermissionDenied
from agentcore.knowledge import splitting
from agentcore.knowledge.reading import Content, shortened
from agentcore.models import SHARED, Chunk, Document, owner_fields
from agentcore.vectors import Embedding, Item, Source, Text, embedder, index, sources

COLLECTION = "knowledge"
MAX_SOURCE = 1000
EMBEDDED_AT_ONCE = 200
# Another process may add the same document at the same moment: then it is there, and is replaced.
ATTEMPTS = 3

Outcome = Literal["added", "replaced", "unchanged"]


@dataclass(frozen=True, kw_only=True)
class Ingested:
    """A document that was given, and what became of it: unchanged when the very same was there."""

    document: Document
    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class _Given:
    title: str
    source: str
    agent: str
    content: Content
    metadata: dict[str, Any]
    user: Any
    may_replace: bool = True

    @property
    def place_digest(self) -> str:
        return canonical.text_digest(f"{self.agent}\0{self.source}")

    @property
    def digest(self) -> str:
        content = {"text": self.content.text, "media_type": self.content.media_type}
        return canonical.digest({**content, "title": self.title, "metadata": self.metadata})


def scope_of(agent: str) -> str:
    """Return the scope of an agent's documents in the index, or of the shared ones."""
    return f"agent:{agent}" if agent != SHARED else "shared"


def ingest(
    content: Content,
    *,
    source: str,
    title: str = "",
    agent: str = SHARED,
    metadata: Mapping[str, Any] | None = None,
    by: Any = None,
    may_replace: bool = True,
) -> Ingested:
    """Store a document, or replace what the same source gave before; the very same changes nothing.

    Raises InvalidInput, PermissionDenied where there is another one of the source and `may_replace` is false, and
    EmbedderFailed when its pieces could not be embedded: then all is as it was. Embedding takes its time and holds no
    connection; no transaction should be open.
    """
    checked = _checked(content, source=source, title=title, agent=agent, metadata=metadata, by=by)
    given = replace(checked, may_replace=may_replace)
    found = Document.objects.filter(place_digest=given.place_digest).first()
    if found is not None and found.digest == given.digest:
        return Ingested(document=found, outcome="unchanged")
    if found is not None:
        _require_replacing(given)
    pieces = splitting.split(given.content.text)
    if not pieces:
        raise InvalidInput(f"{given.source} holds nothing but headings.", field="text")
    embeddings = _embeddings(pieces)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _store(given, pieces, embeddings)
        except IntegrityError:
            if attempt == ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def delete(document: Document) -> None:
    """Remove a document, its pieces and their vectors."""
    with database.atomic():
        # Written first: whoever replaces it at this moment comes before or after.
        Document.objects.filter(pk=document.pk).update(updated_at=clock.now())
        _forget_chunks(document.pk)
        Document.objects.filter(pk=document.pk).delete()


def _checked(
    content: Content, *, source: str, title: str, agent: str, metadata: Mapping[str, Any] | None, by: Any
) -> _Given:
    for name, text, most in (("source", source, MAX_SOURCE), ("agent", agent, 64)):
        if len(text) > most or canonical.has_unstorable_text(text):
            raise InvalidInput(f"{name} must be text of at most {most} characters.", field=name)
    if not source.strip():
        raise InvalidInput("source is empty; say where the document comes from.", field="source")
    try:
        stored = canonical.clean(canonical.normalise(dict(metadata or {})))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"metadata must be a JSON object: {error}.", field="metadata") from error
    named = shortened(canonical.clean_text(title)) or content.title or shortened(source.rsplit("/", 1)[-1])
    return _Given(title=named, source=source, agent=agent, content=content, metadata=stored, user=by)


def _embeddings(pieces: Sequence[splitting.Piece]) -> list[Embedding]:
    texts = [Chunk(heading=piece.heading, text=piece.text).embedded_text for piece in pieces]
    with database.given_back():
        return [
            embedding
            for start in range(0, len(texts), EMBEDDED_AT_ONCE)
            for embedding in embedder().embed(texts[start : start + EMBEDDED_AT_ONCE])
        ]


@database.retried
def _store(given: _Given, pieces: Sequence[splitting.Piece], embeddings: Sequence[Embedding]) -> Ingested:
    with database.atomic():
        document, outcome = _written(given)
        if outcome == "unchanged":
            return Ingested(document=document, outcome=outcome)
        _forget_chunks(document.pk)
        chunks = [
            Chunk(document=document, position=position, heading=piece.heading, text=piece.text)
            for position, piece in enumerate(pieces, start=1)
        ]
        Chunk.objects.bulk_create(chunks, batch_size=200)
        numbers = Chunk.objects.filter(document=document).order_by("position").values_list("pk", flat=True)
        scope = scope_of(given.agent)
        _keep([Item(id=pk, scope=scope, embedding=made) for pk, made in zip(numbers, embeddings, strict=True)])
    return Ingested(document=document, outcome=outcome)


def _written(given: _Given) -> tuple[Document, Outcome]:
    """Write the document's own row, which locks it, and say what it was before."""
    now = clock.now()
    same = Document.objects.filter(place_digest=given.place_digest)
    if not same.update(updated_at=now):
        return Document.objects.create(**_fields(given), source=given.source, created_at=now, updated_at=now), "added"
    document = same.get()
    if document.digest == given.digest:
        return document, "unchanged"
    # Once more, now that it is locked: it may have come just before.
    _require_replacing(given)
    document.version += 1
    for name, value in _fields(given).items():
        setattr(document, name, value)
    document.save()
    return document, "replaced"


def _require_replacing(given: _Given) -> None:
    if not given.may_replace:
        raise PermissionDenied(
            f"There is a document of the source {given.source!r}, and you may not replace documents.",
            permission="agentcore.change_document",
        )


def _fields(given: _Given) -> dict[str, Any]:
    return {
        "title": given.title,
        "agent": given.agent,
        "media_type": given.content.media_type,
        "text": given.content.text,
        "metadata": given.metadata,
        "place_digest": given.place_digest,
        "digest": given.digest,
        **owner_fields(given.user),
    }


def _forget_chunks(document_pk: int) -> None:
    numbers = list(Chunk.objects.filter(document_id=document_pk).values_list("pk", flat=True))
    Chunk.objects.filter(document_id=document_pk).delete()
    if index().is_in_database:
        index().remove(COLLECTION, numbers)
    else:
        database.on_commit(lambda: index().remove(COLLECTION, numbers))


def _keep(items: list[Item]) -> None:
    if index().is_in_database:
        index().put(COLLECTION, items)
    else:
        # What is lost here, `agentcore_reembed` finds and puts in.
        database.on_commit(lambda: index().put(COLLECTION, items))


def _page(after: int, size: int) -> list[Text]:
    chunks = Chunk.objects.filter(pk__gt=after).order_by("pk").select_related("document")
    only = chunks.only("heading", "text", "document__agent")
    return [Text(chunk.pk, scope_of(chunk.document.agent), chunk.embedded_text) for chunk in only[:size]]


sources.register(Source(collection=COLLECTION, count=lambda: Chunk.objects.count(), page=_page))
