"""What metrics keep: since when they count, and the sums of what lies behind."""

from __future__ import annotations

from django.db import models

from agentcore.models.base import Record


class MetricsWindow(Record):
    """The one row that says since when metrics count, and up to when their rows are summed up already."""

    counted_from = models.DateTimeField(null=True, blank=True, help_text="Empty: from the beginning.")
    summed_until = models.DateTimeField(null=True, blank=True, help_text="Turns that ended before it are in the sums.")

    def __str__(self) -> str:
        return f"Metrics from {self.counted_from or 'the beginning'}"


class MetricsSum(Record):
    """How often one outcome was met, and how long it took, in turns that ended before `summed_until`.

    One row for each `subject` (turn, call, model, approval), `label` (agent, tool, model, kind), outcome and detail:
    names from the project's code, never what a model or a user wrote, so that there are few.
    """

    subject = models.CharField(max_length=16)
    label = models.CharField(max_length=255)
    outcome = models.CharField(max_length=32)
    detail = models.CharField(max_length=32, blank=True, default="")
    count = models.PositiveBigIntegerField(default=0)
    seconds = models.FloatField(default=0)
    input_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)

    class Meta(Record.Meta):
        constraints = (
            models.UniqueConstraint(fields=("subject", "label", "outcome", "detail"), name="agentcore_sum_once"),
        )

    def __str__(self) -> str:
        return f"{self.subject} {self.label} {self.outcome}: {self.count}"
