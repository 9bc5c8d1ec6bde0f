"""The shop behind the demonstration's agents: what their tools read and write.

What a tool makes is unique by the call that made it. So a call that is repeated after a crash finds its row.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Self

from django.db import models
from django.db.models import Sum

CENT = Decimal("0.01")


def in_cents(amount: Decimal) -> Decimal:
    """Return the amount with two decimals; SQLite adds up in floating point, and models write 5 for 5.00."""
    return amount.quantize(CENT)


class MadeByCall(models.Model):
    """A row that one tool call made."""

    call_id = models.CharField(max_length=64, unique=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        abstract = True


class Order(models.Model):
    class Status(models.TextChoices):
        PROCESSING = "processing"
        SHIPPED = "shipped"
        DELIVERED = "delivered"
        CANCELLED = "cancelled"

    number = models.CharField(max_length=20, unique=True)
    customer = models.CharField(max_length=100)
    item = models.CharField(max_length=100)
    status = models.CharField(max_length=16, choices=Status, default=Status.PROCESSING)
    total = models.DecimalField(max_digits=10, decimal_places=2)
    placed_on = models.DateField()

    class Meta:
        ordering = ("number",)

    def __str__(self) -> str:
        return f"Order {self.number}"

    @classmethod
    def locked(cls, number: str) -> Self | None:
        """Return the order for a change of its refunds, None if there is none. Needs a transaction.

        Writing first makes two changes of one order wait for each other, on SQLite too.
        """
        cls.objects.filter(number=number).update(status=models.F("status"))
        return cls.objects.filter(number=number).first()

    @property
    def refunded(self) -> Decimal:
        """What was paid back so far."""
        return in_cents(self.refunds.aggregate(sum=Sum("amount"))["sum"] or Decimal())


class Refund(MadeByCall):
    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="refunds")
    amount = models.DecimalField(max_digits=10, decimal_places=2)
    approved_by = models.CharField(max_length=255, blank=True)

    class Meta:
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"R-{self.pk}"


class Ticket(MadeByCall):
    class Priority(models.TextChoices):
        LOW = "low"
        NORMAL = "normal"
        HIGH = "high"

    subject = models.CharField(max_length=200)
    description = models.TextField()
    priority = models.CharField(max_length=8, choices=Priority, default=Priority.NORMAL)
    requested_by = models.CharField(max_length=255, blank=True)
    is_open = models.BooleanField(default=True)

    class Meta:
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"T-{self.pk}"


class Lead(MadeByCall):
    company_name = models.CharField(max_length=200)
    company_size = models.CharField(max_length=100)
    budget = models.DecimalField(max_digits=12, decimal_places=2)
    is_qualified = models.BooleanField()

    class Meta:
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"L-{self.pk}"


class Quote(MadeByCall):
    lead = models.ForeignKey(Lead, on_delete=models.PROTECT, related_name="quotes")
    amount = models.DecimalField(max_digits=12, decimal_places=2)
    products = models.JSONField(default=list)
    approved_by = models.CharField(max_length=255, blank=True)

    class Meta:
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"Q-{self.pk}"


class Meeting(MadeByCall):
    lead = models.ForeignKey(Lead, on_delete=models.PROTECT, related_name="meetings")
    date = models.CharField(max_length=100)
    minutes = models.PositiveIntegerField()

    class Meta:
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"M-{self.pk}"
