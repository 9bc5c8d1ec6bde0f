"""Archive the sessions that nobody has touched for long."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q

from agentcore import clock, database
from agentcore.events import log
from agentcore.exceptions import NotFound
from agentcore.models import AgentContext, AgentSession
from agentcore.states import SessionStatus
from agentcore.turns import sessions

BATCH = 100


def idle(days: float) -> Iterator[AgentSession]:
    """Yield the sessions untouched for `days`, the longest first: neither archived nor deleted, no turn active."""
    for page in _pages(clock.now() - timedelta(days=days)):
        yield from page


def archive_idle(days: float, *, limit: int | None = None) -> int:
    """Archive the sessions untouched for `days`, up to `limit` of them; return how many were archived."""
    before, archived = clock.now() - timedelta(days=days), 0
    for page in _pages(before):
        left = None if limit is None else limit - archived
        archived += sum(_archive(session.pk, before) for session in page[:left])
        if limit is not None and archived >= limit:
            break
    return archived


def _pages(before: datetime) -> Iterator[list[AgentSession]]:
    """Yield the untouched sessions, some at a time, without those that have an active turn."""
    after = Q()
    while rows := list(_untouched(before).filter(after).order_by("updated_at", "pk")[:BATCH]):
        active = AgentContext.objects.filter(active_session__in=rows).values_list("active_session_id", flat=True)
        busy = set(active)
        yield [session for session in rows if session.pk not in busy]
        last = rows[-1]
        after = Q(updated_at__gte=last.updated_at) & (Q(updated_at__gt=last.updated_at) | Q(pk__gt=last.pk))


@database.retried
def _archive(pk: int, before: datetime) -> bool:
    try:
        with log.writing(pk) as journal:
            # Looked at again under the lock: a turn may have begun.
            is_idle = bool(_untouched(before).filter(pk=pk, active_turn=None).exists())
            if is_idle:
                sessions.close(journal)
    except NotFound:
        return False
    return is_idle


# Any: models are typed by a plugin that does not follow querysets through here.
def _untouched(before: datetime) -> Any:
    return AgentSession.objects.filter(status=SessionStatus.ACTIVE, updated_at__lt=before, deleted_at=None)
