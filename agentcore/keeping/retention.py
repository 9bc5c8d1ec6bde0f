"""Remove what is older than it may be: the oldest turns of each session, and their part of its log.

What goes is always a beginning of the log. Its last number and hash stay with the session, so that the rest is still
proved. A turn that people decided about stays as an emptied row: who decided what, and when, is kept longer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any
from uuid import UUID

from django.db.models import Q

from agentcore import clock, database
from agentcore.conf import settings
from agentcore.events import log
from agentcore.events.kinds import EventType
from agentcore.events.log import Journal
from agentcore.exceptions import NotFound
from agentcore.memory import keeping
from agentcore.models import AgentContext, AgentSession, MetricsWindow, SessionEvent, ToolApproval
from agentcore.state import erasing as hot_copies
from agentcore.states import TERMINAL
from agentcore.turns import emptying

NEVER = datetime.min.replace(tzinfo=UTC)
# Turns per transaction, and rows per look.
TURNS = 50
PAGE = 500


@dataclass(frozen=True, kw_only=True)
class _Age:
    """What is old: what happened before `before`, and turns only when they `ended_before`."""

    before: datetime
    ended_before: datetime


def trim(days: float, *, limit: int | None = None) -> Counter[str]:
    """Remove the turns that ended more than `days` ago; return how many turns, events and sessions went.

    With METRICS, turns that are in no sum yet stay. Sessions that were deleted as long ago go themselves once they have
    no turn left. With `limit`, so many sessions at most are changed.
    """
    age, done, changed = _age(days), Counter[str](), 0
    for session_pk in _sessions(age):
        if limit is not None and changed >= limit:
            return done
        found = _trim_session(session_pk, age)
        changed += bool(found)
        done += found
    done["sessions"] += _remove_deleted(age.before, limit)
    return done


def drop_decisions(days: float) -> int:
    """Remove the turns that were kept for the record of decisions alone; return how many."""
    before, dropped = clock.now() - timedelta(days=days), 0
    kept = AgentContext.objects.filter(trimmed_at__isnull=False, completed_at__lt=before).order_by("pk")
    while page := list(kept.values_list("pk", "session_id")[:TURNS]):
        for pk, session_pk in page:
            dropped += _drop(pk, session_pk)
    return dropped


def old_turns(days: float) -> Any:
    """Return the turns that `trim` would look at."""
    return _old(clock.now() - timedelta(days=days))


def _age(days: float) -> _Age:
    before = clock.now() - timedelta(days=days)
    return _Age(before=before, ended_before=min(before, _counted_until()) if settings.METRICS else before)


def _counted_until() -> datetime:
    """Return up to when metrics have counted turns, or need not."""
    window = MetricsWindow.objects.first()
    return (window and (window.summed_until or window.counted_from)) or NEVER


def _old(before: datetime) -> Any:
    return AgentContext.objects.filter(trimmed_at=None, completed_at__lt=before)


def _sessions(age: _Age) -> Iterator[int]:
    """Yield each session that has an old turn; none twice, and none is waited for whose turns cannot go yet."""
    seen: set[int] = set()
    page: list[tuple[datetime, int, int]] = []
    while True:
        after = Q()
        if page:
            at, pk, _ = page[-1]
            after = Q(completed_at__gte=at) & (Q(completed_at__gt=at) | Q(pk__gt=pk))
        rows = _old(age.ended_before).filter(after).order_by("completed_at", "pk")
        page = list(rows.values_list("completed_at", "pk", "session_id")[:PAGE])
        if not page:
            return
        for session_pk in dict.fromkeys(session_pk for _, _, session_pk in page):
            if session_pk not in seen:
                seen.add(session_pk)
                yield session_pk


def _trim_session(session_pk: int, age: _Age) -> Counter[str]:
    done = Counter[str]()
    while found := _trim_some(session_pk, age):
        done += found
    return done


@database.retried
def _trim_some(session_pk: int, age: _Age) -> Counter[str]:
    try:
        with log.writing(session_pk, touches=False) as journal:
            return _trim(journal, age)
    except NotFound:
        return Counter()


def _trim(journal: Journal, age: _Age) -> Counter[str]:
    """Remove the oldest turns of the session, as far as one transaction goes."""
    names = _oldest(journal.session, age.ended_before)
    turns, through = _within_reach(journal.session, names, age.before)
    last = SessionEvent.objects.filter(session=journal.session, sequence=through).first() if turns else None
    if last is None:
        # Nothing is old, or somebody removed that event: what is left is for agentcore_verify to tell.
        return Counter()
    events = SessionEvent.objects.filter(session=journal.session, sequence__lte=through).delete()[0]
    decided = set(ToolApproval.objects.filter(turn__in=turns).values_list("turn", flat=True))
    AgentContext.objects.filter(pk__in=[pk for pk in turns if pk not in decided]).delete()
    if decided:
        emptying.empty(sorted(decided), now=journal.now)
        AgentContext.objects.filter(pk__in=decided).update(trimmed_at=journal.now)
    hot_copies.forget_with(names[pk] for pk in turns)
    AgentSession.objects.filter(pk=journal.session.pk).update(removed_through=through, removed_hash=last.hash)
    journal.append(EventType.SESSION_TRIMMED, through=through, hash=last.hash, turns=len(turns))
    return Counter(turns=len(turns), events=events)


def _oldest(session: AgentSession, before: datetime) -> dict[int, UUID]:
    """Return the session's first turns that are old enough, by key; those after a younger one are not among them."""
    first = AgentContext.objects.filter(session=session, trimmed_at=None).order_by("pk")[:TURNS]
    rows = first.values_list("pk", "execution_id", "state", "completed_at")
    old = takewhile(lambda row: row[2] in TERMINAL and row[3] is not None and row[3] < before, rows)
    return {pk: execution_id for pk, execution_id, _, _ in old}


def _within_reach(session: AgentSession, turns: dict[int, UUID], before: datetime) -> tuple[list[int], int]:
    """Return those of the turns whose events all lie before any that stays, and the last number that goes."""
    events = SessionEvent.objects.filter(session=session).order_by("sequence")
    while turns:
        names = list(turns.values())
        others = Q(turn__isnull=False) & ~Q(turn__in=names)
        stays = events.filter(others | Q(created_at__gte=before)).values_list("sequence", flat=True).first()
        through = session.last_sequence if stays is None else stays - 1
        beyond = events.filter(turn__in=names, sequence__gt=through).values_list("turn", flat=True).distinct()
        late = set(beyond.order_by())
        if not late:
            return list(turns), through
        turns = _before_first(late, turns)
    return [], 0


def _before_first(late: set[UUID], turns: dict[int, UUID]) -> dict[int, UUID]:
    return dict(takewhile(lambda item: item[1] not in late, turns.items()))


@database.retried
def _drop(pk: int, session_pk: int) -> bool:
    try:
        with log.writing(session_pk, touches=False):
            return bool(AgentContext.objects.filter(pk=pk, trimmed_at__isnull=False).delete()[0])
    except NotFound:
        return False


def _remove_deleted(before: datetime, limit: int | None) -> int:
    gone = list(_forgotten(before).order_by("deleted_at").values_list("pk", flat=True)[:limit])
    return sum(_remove(pk, before) for pk in gone)


@database.retried
def _remove(pk: int, before: datetime) -> bool:
    try:
        with log.writing(pk, touches=False) as journal:
            # Looked at again under the lock: somebody may have restored it.
            is_forgotten = bool(_forgotten(before).filter(pk=pk).exists())
            if is_forgotten:
                keeping.forget_with(pk)
                journal.session.delete()
    except NotFound:
        return False
    return is_forgotten


def _forgotten(before: datetime) -> Any:
    return AgentSession.objects.filter(deleted_at__lt=before, turns=None)
