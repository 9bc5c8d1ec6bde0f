"""Vectors of texts, as pgvector keeps them."""

from __future__ import annotations

from django.db import models
from pgvector.django import VectorField

from agentcore.models.base import Record


class PgVector(Record):
    """The vector of one item of a collection; `space` is what the index `exact` has under that name."""

    collection = models.CharField(max_length=64)
    item = models.BigIntegerField()
    space = models.UUIDField(editable=False)
    embedder = models.CharField(max_length=128)
    dimension = models.PositiveIntegerField()
    data = VectorField()
    created_at = models.DateTimeField()

    class Meta(Record.Meta):
        ordering = ("id",)
        constraints = (models.UniqueConstraint(fields=("collection", "item"), name="agentcore_pgvector_item"),)
        indexes = (
            models.Index(fields=("space", "item"), name="agentcore_pgvector_space"),
            models.Index(fields=("collection", "embedder", "dimension"), name="agentcore_pgvector_kind"),
        )

    def __str__(self) -> str:
        return f"{self.collection} {self.item}"
