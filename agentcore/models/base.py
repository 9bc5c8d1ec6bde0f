"""What every model of agentcore shares: the one database, and a user who may be deleted."""

from __future__ import annotations

from typing import Any, TypeVar

from django.conf import settings
from django.db import models

from agentcore import database

M = TypeVar("M", bound=models.Model)


class QuerySet(models.QuerySet[M]):
    """Base of the querysets with named queries."""


class Manager(models.Manager[M]):
    """Reads where agentcore writes, even when a router sends other reads to a replica."""

    def get_queryset(self) -> models.QuerySet[M]:
        return super().get_queryset().using(self._db or database.alias())


class Record(models.Model):
    """Base of every row."""

    objects: Any = Manager()

    class Meta:
        abstract = True
        base_manager_name = "objects"


class Owned(models.Model):
    """A row that belongs to a user. The key and name stay when the user is deleted."""

    # Its index begins one of each model that has it.
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        db_index=False,
    )
    user_key = models.CharField(max_length=255, blank=True, default="", editable=False)
    user_name = models.CharField(max_length=255, blank=True, default="", editable=False)

    class Meta:
        abstract = True


def owner_fields(user: Any) -> dict[str, Any]:
    """Return the values of an Owned row's three fields for `user`, who may be None."""
    if user is None:
        return {"user": None, "user_key": "", "user_name": ""}
    return {"user": user, "user_key": str(user.pk), "user_name": user.get_username()[:255]}
