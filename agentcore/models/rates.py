"""What was taken of something that is limited: one row per thing and user, for as long as it matters."""

from __future__ import annotations

from django.db import models

from agentcore.models.base import Record


class RateCount(Record):
    """When something was taken, in microseconds since 1970: `taken` holds [time, how many], oldest first."""

    # Unique by digest: MariaDB compares text without regard to case.
    digest = models.CharField(max_length=64, unique=True, editable=False)
    name = models.CharField(max_length=255)
    taken = models.JSONField(default=list)
    next_at = models.BigIntegerField(default=0, help_text="When the next would be due if all came at even distances.")
    forget_at = models.DateTimeField()

    class Meta(Record.Meta):
        ordering = ("id",)
        indexes = (models.Index(fields=("forget_at",), name="agentcore_rate_forget"),)

    def __str__(self) -> str:
        return self.name
