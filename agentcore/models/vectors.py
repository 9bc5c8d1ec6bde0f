"""Vectors of texts, as the index `exact` keeps them."""

from __future__ import annotations

from django.db import models

from agentcore.models.base import Record


class Vector(Record):
    """The vector of one item of a collection: `data` holds `dimension` little-endian numbers of 32 bits.

    `stamp` is another number after each writing: what was read before tells by the sum whether it is still so.
    `space` is made of collection, scope, embedder and dimension: a search reads the vectors of one space after another.
    """

    collection = models.CharField(max_length=64)
    item = models.BigIntegerField()
    space = models.UUIDField(editable=False)
    embedder = models.CharField(max_length=128)
    dimension = models.PositiveIntegerField()
    data = models.BinaryField()
    stamp = models.BigIntegerField(editable=False)
    created_at = models.DateTimeField()

    class Meta(Record.Meta):
        ordering = ("id",)
        constraints = (models.UniqueConstraint(fields=("collection", "item"), name="agentcore_vector_item"),)
        indexes = (
            # With the stamp, so that whether a space changed is read from the index alone.
            models.Index(fields=("space", "item", "stamp"), name="agentcore_vector_space"),
            models.Index(fields=("collection", "embedder", "dimension"), name="agentcore_vector_kind"),
        )

    def __str__(self) -> str:
        return f"{self.collection} {self.item}"
