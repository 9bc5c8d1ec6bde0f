"""The record that somebody's data was erased."""

from __future__ import annotations

from django.db import models

from agentcore.models.base import Record


class Erasure(Record):
    """One erasure: when, by whom, and how much; `completed_at` is set once nothing was left.

    Whose data it was is a keyed digest: who knows the user's key can look it up, and the record names nobody. Its
    `pseudonym` stands in the user's place on rows that are kept.
    """

    subject_digest = models.CharField(max_length=64, editable=False)
    # The same while it is under way: at most one of a user's is.
    active_digest = models.CharField(max_length=64, unique=True, null=True, blank=True, editable=False)
    by = models.CharField(max_length=255, blank=True, default="")
    counts = models.JSONField(default=dict, blank=True)
    started_at = models.DateTimeField()
    completed_at = models.DateTimeField(null=True, blank=True)

    class Meta(Record.Meta):
        ordering = ("-id",)
        indexes = (models.Index(fields=("subject_digest",), name="agentcore_erasure_subject"),)

    def __str__(self) -> str:
        return self.pseudonym

    @property
    def pseudonym(self) -> str:
        return f"erased-{self.pk}"
