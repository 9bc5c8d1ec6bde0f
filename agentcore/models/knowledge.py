"""The knowledge base: documents, and the pieces of them that are found."""

from __future__ import annotations

from typing import Self

from django.db import models

from agentcore.models.base import Manager, Owned, QuerySet, Record

# The agent of a document that every agent may read.
SHARED = ""


class DocumentQuerySet(QuerySet["Document"]):
    def readable_by(self, agent: str) -> Self:
        """Keep what an agent may read: its own documents, and the shared ones."""
        return self.filter(agent__in=[SHARED, agent])


class Document(Owned, Record):
    """A text that agents may look up; the user is who added it.

    `source` says where it comes from, and names it: the same source given again is the same document, with a higher
    `version`. `agent` is the one that may read it, "" when all may.
    """

    title = models.CharField(max_length=255)
    source = models.CharField(max_length=1000)
    agent = models.CharField(max_length=64, blank=True, default=SHARED, help_text="Empty: shared by all agents.")
    media_type = models.CharField(max_length=100)
    text = models.TextField()
    metadata = models.JSONField(default=dict, blank=True)
    version = models.PositiveIntegerField(default=1)
    # Unique by digest: MariaDB compares text without regard to case and trailing spaces.
    place_digest = models.CharField(max_length=64, unique=True, editable=False)
    digest = models.CharField(max_length=64, editable=False)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    objects = Manager.from_queryset(DocumentQuerySet)()

    class Meta(Record.Meta):
        ordering = ("-id",)
        indexes = (models.Index(fields=("agent", "id"), name="agentcore_document_agent"),)

    def __str__(self) -> str:
        return self.title


class ChunkQuerySet(QuerySet["Chunk"]):
    def readable_by(self, agent: str) -> Self:
        """Keep the pieces of what an agent may read."""
        return self.filter(document__agent__in=[SHARED, agent])


class Chunk(Record):
    """A piece of a document: what is embedded, found and cited. `heading` holds the headings above it."""

    document = models.ForeignKey(Document, on_delete=models.CASCADE, related_name="chunks", db_index=False)
    position = models.PositiveIntegerField()
    heading = models.CharField(max_length=255, blank=True, default="")
    text = models.TextField()

    objects = Manager.from_queryset(ChunkQuerySet)()

    class Meta(Record.Meta):
        ordering = ("document", "position")
        constraints = (models.UniqueConstraint(fields=("document", "position"), name="agentcore_chunk_position"),)

    def __str__(self) -> str:
        return f"{self.document_id}.{self.position}"

    @property
    def embedded_text(self) -> str:
        """What is embedded: the piece under its headings."""
        return f"{self.heading}\n{self.text}" if self.heading else self.text
