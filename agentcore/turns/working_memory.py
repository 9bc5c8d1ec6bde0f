"""A turn's working memory as rows: one for each key, so that writers of different keys lose nothing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from agentcore import canonical
from agentcore.events.log import Journal
from agentcore.models import AgentContext, ContextEntry, EntryKind


def save(journal: Journal, turn: AgentContext, changes: Mapping[str, Any]) -> None:
    """Store changes by key; a key that was taken out is stored as None."""
    for key, value in changes.items():
        journal.write(partial(_store, journal, turn, key, value))


def _store(journal: Journal, turn: AgentContext, key: str, value: Any) -> None:
    fields = {"key": key[:255], "value": value, "updated_at": journal.now}
    ContextEntry.objects.update_or_create(
        turn=turn,
        kind=EntryKind.WORKING_MEMORY,
        key_digest=canonical.text_digest(key),
        defaults=fields,
        create_defaults={**fields, "created_at": journal.now},
    )
