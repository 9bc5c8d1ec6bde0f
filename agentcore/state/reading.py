"""Read a turn's working memory through the state backend: from its rows, and from what is only in its hot copy yet."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from agentcore.models import ContextEntry, EntryKind
from agentcore.state import copies
from agentcore.state.registry import current


def working_memory(execution_id: UUID | str) -> dict[str, Any]:
    """Return a turn's working memory by key as it is now; whether the caller may see it is the caller's to check."""
    entries = ContextEntry.objects.filter(turn__execution_id=execution_id, kind=EntryKind.WORKING_MEMORY)
    rows = {key: (value, at) for key, value, at in entries.order_by("id").values_list("key", "value", "updated_at")}
    copy = copies.read(current().read(str(execution_id)))
    unsaved = copy.unsaved({key: at for key, (_, at) in rows.items()}) if copy is not None else {}
    known = {key: value for key, (value, _) in rows.items()} | unsaved
    return {key: value for key, value in known.items() if value is not None}
