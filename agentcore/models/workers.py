"""The processes that work on turns, as they last said that they are there."""

from __future__ import annotations

from django.db import models

from agentcore.models.base import Record


class WorkerHeartbeat(Record):
    """The last sign of life of one process of a worker; `name` is its host and process id."""

    name = models.CharField(max_length=255, unique=True)
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return self.name
