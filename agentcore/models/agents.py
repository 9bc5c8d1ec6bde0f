"""Agents and their revisions: what was defined when, so that a session keeps what it began with."""

from __future__ import annotations

from django.db import models

from agentcore.models.base import Record


class Agent(Record):
    """An agent that was used at least once. Its definition is code; its revisions are its snapshots."""

    name = models.CharField(max_length=64, unique=True)
    current_revision = models.ForeignKey(
        "AgentRevision", null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta(Record.Meta):
        ordering = ("name",)
        permissions = (("view_metrics", "Can view agent metrics"),)

    def __str__(self) -> str:
        return self.name


class AgentRevision(Record):
    """An immutable snapshot of a definition. `definition` is canonical JSON, `hash` its SHA-256."""

    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="revisions")
    number = models.PositiveIntegerField()
    hash = models.CharField(max_length=64)
    definition = models.JSONField()
    created_at = models.DateTimeField()

    class Meta(Record.Meta):
        ordering = ("agent", "number")
        constraints = (
            models.UniqueConstraint(fields=("agent", "number"), name="agentcore_revision_number"),
            models.UniqueConstraint(fields=("agent", "hash"), name="agentcore_revision_hash"),
        )

    def __str__(self) -> str:
        return f"{self.agent.name} r{self.number}"
