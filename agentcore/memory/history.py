"""Note in the history of Django's admin what owners did to their memories: that, and never what they said."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.apps import apps
from django.db import router

from agentcore import clock, database
from agentcore.models import Memory

# django.contrib.admin.models has these; it cannot be imported where the admin is not installed.
CHANGE = 2
DELETION = 3


def note(memories: Iterable[Memory], *, flag: int, message: str) -> None:
    """Write a LogEntry for each memory that has a user, as done by them; nothing where there is no admin."""
    if not _has_history():
        return
    model: Any = apps.get_model("admin", "LogEntry")
    types = apps.get_model("contenttypes", "ContentType").objects.db_manager(database.alias())
    kind, now = types.get_for_model(Memory), clock.now()
    model.objects.using(database.alias()).bulk_create(
        model(
            user_id=memory.user_id,
            content_type_id=kind.pk,
            object_id=str(memory.pk),
            object_repr=str(memory),
            action_flag=flag,
            action_time=now,
            change_message=message,
        )
        for memory in memories
        if memory.user_id is not None
    )


def _has_history() -> bool:
    """Say whether the admin is there, and its rows are where ours are."""
    return apps.is_installed("django.contrib.admin") and router.allow_migrate_model(
        database.alias(), apps.get_model("admin", "LogEntry")
    )
