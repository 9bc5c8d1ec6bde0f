"""Archive the sessions that nobody has touched for long."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from agentcore import clock, database
from agentcore.events import log
from agentcore.exceptions import NotFound
from agentcore.models import AgentSession
from agentcore.states import SessionStatus
from agentcore.turns import sessions

BATCH = 100


def idle(days: float) -> Any:
    """Return the sessions untouched for `days`, the longest first: neither archived nor deleted, no turn active."""
    return _untouched(clock.now() - timedelta(days=days)).order_by("updated_at", "pk")


def archive_idle(days: float, *, limit: int | None = None) -> int:
    """Archive the sessions untouched for `days`, up to `limit` of them; return how many were archived."""
    before, archived = clock.now() - timedelta(days=days), 0
    while limit is None or archived < limit:
        page = _untouched(before).order_by("updated_at", "pk")[:BATCH]
        done = sum(_archive(pk, before) for pk in list(page.values_list("pk", flat=True)))
        archived += done
        if not done:
            break
    return archived


@database.retried
def _archive(pk: int, before: datetime) -> bool:
    try:
        with log.writing(pk) as journal:
            # Looked at again under the lock: a turn may have begun.
            is_idle = bool(_untouched(before).filter(pk=pk).exists())
            if is_idle:
                sessions.close(journal)
    except NotFound:
        return False
    return is_idle


# Any: models are typed by a plugin that does not follow querysets through here.
def _untouched(before: datetime) -> Any:
    return AgentSession.objects.filter(
        status=SessionStatus.ACTIVE, updated_at__lt=before, deleted_at=None, active_turn=None
    )
