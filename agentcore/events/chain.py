"""The hash chain over a session's events: how a link is made, and where a chain is broken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from agentcore import canonical
from agentcore.models import AgentSession, SessionEvent


def timestamp(moment: datetime) -> str:
    """Return a time as events show and hash it: ISO 8601 in UTC with microseconds."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def link(
    previous: str,
    *,
    sequence: int,
    type: str,
    execution_id: UUID | None,
    created_at: datetime,
    data_digest: str,
) -> str:
    """Return an event's hash: SHA-256 of the previous event's hash ("" before the first) and of this entry.

    The entry is the canonical JSON of [sequence, type, execution_id, created_at, data_digest]. The data
    itself is left out, so that it can be erased and the chain still be checked.
    """
    execution = str(execution_id) if execution_id else None
    entry = canonical.dumps([sequence, type, execution, timestamp(created_at), data_digest])
    return canonical.text_digest(previous + entry)


def problems(session: AgentSession) -> Iterator[str]:
    """Yield a sentence for each event of a session that was altered, removed or added.

    A log whose beginning was removed by retention is proved from there on.
    """
    previous, expected = session.removed_hash, session.removed_through + 1
    for event in _events(session):
        if event.sequence < expected:
            yield f"Event {event.sequence} is still there; the log was removed through {session.removed_through}."
            continue
        while expected < event.sequence:
            yield f"Event {expected} is missing."
            expected += 1
        yield from _event_problems(event, previous)
        previous, expected = event.hash, event.sequence + 1
    if expected - 1 != session.last_sequence:
        yield f"The log ends at {expected - 1}, the session says {session.last_sequence}."
    elif previous != session.last_hash:
        yield "The last event's hash is not the one the session holds."


def _events(session: AgentSession) -> Iterable[SessionEvent]:
    events: Iterable[SessionEvent] = SessionEvent.objects.filter(session=session).order_by("sequence").iterator(500)
    return events


def _event_problems(event: SessionEvent, previous: str) -> Iterator[str]:
    expected = link(
        previous,
        sequence=event.sequence,
        type=event.type,
        execution_id=event.turn_id,
        created_at=event.created_at,
        data_digest=event.data_digest,
    )
    if event.hash != expected:
        yield f"Event {event.sequence} ({event.type}) does not continue the chain."
    if event.data is not None and _digest(event.data) != event.data_digest:
        yield f"The data of event {event.sequence} ({event.type}) is not what was written."


def _digest(data: Any) -> str:
    try:
        return canonical.digest(data)
    except (TypeError, ValueError):
        return ""
