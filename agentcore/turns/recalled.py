"""What was looked up for a turn before its first step: entries and events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agentcore import canonical
from agentcore.events import log
from agentcore.events.kinds import EventType
from agentcore.models import ContextEntry, EntryKind, SessionEvent, statements
from agentcore.states import TurnState
from agentcore.turns import lifecycle
from agentcore.turns.work import Work, as_one


class Entry(NamedTuple):
    """One thing that was found: its kind, a key of its own within it, and what it says, which must be JSON."""

    kind: EntryKind
    key: str
    value: Mapping[str, Any]


@as_one
def record(work: Work, entries: Sequence[Entry], *, type: EventType, **told: Any) -> None:
    """Store what was found and tell it, with `told` as the event's data; that nothing was found is told too."""
    known = work.recalled
    with log.in_one_go(work.turn.session) as journal:
        rows = [
            ContextEntry(
                turn=work.turn,
                kind=entry.kind,
                key=entry.key[:255],
                key_digest=canonical.text_digest(entry.key),
                value=canonical.clean(canonical.normalise(dict(entry.value))),
                created_at=journal.now,
                updated_at=journal.now,
            )
            for entry in entries
        ]
        lifecycle.advance(journal, work.turn, work.lease, TurnState.THINKING, reason="recalled")
        journal.write(lambda: statements.insert(rows))
        journal.append(type, execution_id=work.turn.execution_id, **told)
    known.extend((row.kind, row.value) for row in rows)


def was_told(work: Work, type: EventType) -> bool:
    """Say whether somebody who had the turn before told an event of that type of it."""
    if work.is_first:
        return False
    told = SessionEvent.objects.filter(session_id=work.turn.session_id, turn_id=work.turn.execution_id, type=type)
    return bool(told.exists())
