"""Write a session's log. Every change of a session goes through here: its lock, its rows, its events, its commit.

`writing` is for who must look at rows under the lock; `in_one_go` for who knows already what will be written.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any
from uuid import UUID

from agentcore import canonical, clock, database
from agentcore.conf import settings
from agentcore.events import chain, push
from agentcore.exceptions import NotFound, TooLarge
from agentcore.models import AgentSession, SessionEvent, statements
from agentcore.signals import LoggedEvent


@dataclass(frozen=True)
class _Entry:
    type: str
    execution_id: UUID | None
    data: Any
    digest: str


class Journal:
    """The events of one change of a session, and in what is written in one go also its rows.

    `now` is the time of the change. What is only upkeep does not make a session look used (`touches`).
    """

    def __init__(self, session_pk: int, *, waits: bool = False, touches: bool = True) -> None:
        self._session_pk = session_pk
        self._touches = touches
        self.now: datetime = clock.now()
        self._entries: list[_Entry] = []
        self._writes: list[Callable[[], object]] | None = [] if waits else None

    @cached_property
    def session(self) -> AgentSession:
        """The session's row as it is under the lock, or as it was known.

        Who reads it there with something else sets it, and it is not read again.
        """
        found: AgentSession = AgentSession.objects.get(pk=self._session_pk)
        return found

    def write(self, statement: Callable[[], object]) -> None:
        """Write a row: now, or after the session's own row where that is written last."""
        if self._writes is None:
            statement()
        else:
            self._writes.append(statement)

    def append(self, type: str, *, execution_id: UUID | None = None, **data: Any) -> None:
        """Add an event. Values too large for an event are replaced by where to find them."""
        stored, text = _fitted(canonical.normalise(data), execution_id)
        self._entries.append(_Entry(str(type), execution_id, stored, canonical.text_digest(text)))

    def append_custom(self, type: str, *, execution_id: UUID, data: dict[str, Any]) -> None:
        """Add an event of a tool or driver; raise TooLarge when it is over MAX_EVENT_BYTES."""
        text = canonical.dumps(data)
        limit = settings.MAX_EVENT_BYTES
        if len(text.encode()) > limit:
            raise TooLarge(f"The data of a {type!r} event is over {limit} bytes.", limit=limit)
        self._entries.append(_Entry(type, execution_id, canonical.normalise(data), canonical.text_digest(text)))

    def flush(self) -> None:
        """Write what was collected, with the new end of the chain; announce the events after the commit."""
        if self._writes is None:
            rows = self._append() if self._entries else []
        else:
            rows = self._write_in_one_go(self._writes)
        statements.insert(rows)
        self._take(rows)

    def _append(self) -> list[SessionEvent]:
        rows = self._rows()
        statements.update(AgentSession, {"pk": self.session.pk}, **self._head(rows))
        return rows

    def _write_in_one_go(self, writes: list[Callable[[], object]]) -> list[SessionEvent]:
        """Write the session's row first: that is the lock, and says whether its log ends where it did."""
        rows = self._begin() if self.session._state.adding else self._follow()
        for statement in writes:
            statement()
        return rows

    def _begin(self) -> list[SessionEvent]:
        """Write the row of a session that is new with its first events."""
        rows = self._rows()
        vars(self.session).update(self._head(rows))
        statements.insert([self.session])
        for row in rows:
            row.session_id = self.session.pk
        return rows

    def _follow(self) -> list[SessionEvent]:
        rows = self._rows()
        head = {"last_sequence": self.session.last_sequence, "last_hash": self.session.last_hash}
        known = {"pk": self.session.pk, **head}
        if not statements.update(AgentSession, known, **self._head(rows)):
            _lock_again(self.session)
            rows = self._append()
        return rows

    def _head(self, rows: list[SessionEvent]) -> dict[str, Any]:
        sequence, hash = (
            (rows[-1].sequence, rows[-1].hash) if rows else (self.session.last_sequence, self.session.last_hash)
        )
        head = {"last_sequence": sequence, "last_hash": hash}
        return {**head, "updated_at": self.now} if self._touches else head

    def _take(self, rows: list[SessionEvent]) -> None:
        if not rows:
            return
        self.session.last_sequence, self.session.last_hash = rows[-1].sequence, rows[-1].hash
        _promised.last = (self.session.pk, rows[-1].sequence, rows[-1].hash)
        self._entries.clear()
        events = [logged(row, self.session) for row in rows]
        database.on_commit(lambda: push.announce(events))

    def _rows(self) -> list[SessionEvent]:
        previous, rows = self.session.last_hash, []
        for number, entry in enumerate(self._entries, start=self.session.last_sequence + 1):
            previous = chain.link(
                previous,
                sequence=number,
                type=entry.type,
                execution_id=entry.execution_id,
                created_at=self.now,
                data_digest=entry.digest,
            )
            rows.append(
                SessionEvent(
                    session=self.session,
                    turn_id=entry.execution_id,
                    sequence=number,
                    type=entry.type,
                    data=entry.data,
                    data_digest=entry.digest,
                    created_at=self.now,
                    hash=previous,
                )
            )
        return rows


@contextmanager
def writing(session: int | AgentSession, *, touches: bool = True) -> Iterator[Journal]:
    """Open the transaction of one change of a session, or join the caller's.

    The first statement writes to the session's row: that makes changes of one session wait for each
    other on every database (row locks do nothing on SQLite, where reading first loses to "locked").
    `session` is its key, or its row as a worker knows it: of that, only where the log ends is read
    again, if it moved, and it knows the new end afterwards.
    """
    _promised.last = None
    with database.atomic():
        if isinstance(session, AgentSession):
            journal = _locked(session, touches)
        else:
            journal = _locked_by_key(session, touches)
        yield journal
        journal.flush()


@contextmanager
def in_one_go(session: AgentSession) -> Iterator[Journal]:
    """Collect one change of a session, then make it in one transaction, or join the caller's.

    For who holds the turn's lease, which each of its writes proves: nothing needs to be read under the lock. The
    first statement is the lock all the same; where others wrote meanwhile, the events get the numbers after theirs.
    A session without a row gets it first. `session` knows the new end of its log afterwards.
    """
    _promised.last = None
    journal = Journal(session.pk, waits=True)
    journal.session = session
    yield journal
    with database.atomic_of_our_own():
        journal.flush()


def was_made_after_all(error: BaseException) -> bool:
    """Say whether this thread's last change was made, though the database's answer to its commit was lost.

    Who tries again what was made would take its own work for another worker's.
    """
    promised: tuple[int, int, str] | None = getattr(_promised, "last", None)
    if promised is None or not database.may_pass(error) or database.is_in_transaction():
        return False
    database.release_connection()
    return _is_there(*promised)


@database.retried
def _is_there(session_pk: int, sequence: int, hash: str) -> bool:
    return bool(SessionEvent.objects.filter(session_id=session_pk, sequence=sequence, hash=hash).exists())


# The last event that this thread wrote, before it is known whether the commit took it.
_promised = threading.local()


def _locked_by_key(session_pk: int, touches: bool) -> Journal:
    _lock(session_pk)
    return Journal(session_pk, touches=touches)


def _locked(session: AgentSession, touches: bool) -> Journal:
    head = {"last_sequence": session.last_sequence, "last_hash": session.last_hash}
    if not statements.update(AgentSession, {"pk": session.pk, **head}, last_sequence=session.last_sequence):
        _lock_again(session)
    journal = Journal(session.pk, touches=touches)
    journal.session = session
    return journal


def _lock(session_pk: int) -> None:
    if not statements.update(AgentSession, {"pk": session_pk}, last_sequence=statements.Plus(0)):
        raise NotFound("There is no such session.")


def _lock_again(session: AgentSession) -> None:
    """Take the lock of a session whose log does not end where it was known to, and read where it does."""
    _lock(session.pk)
    session.refresh_from_db(fields=("last_sequence", "last_hash"))


def logged(row: SessionEvent, session: AgentSession) -> LoggedEvent:
    """Return a row of the log as the value that leaves this package."""
    return LoggedEvent(
        session_pk=session.pk,
        session_id=session.session_id,
        sequence=row.sequence,
        type=row.type,
        execution_id=str(row.turn_id) if row.turn_id else None,
        data=row.data,
        data_digest=row.data_digest,
        created_at=chain.timestamp(row.created_at),
        hash=row.hash,
    )


def read(session: AgentSession, *, after: int = 0, limit: int = 100) -> list[LoggedEvent]:
    """Return up to `limit` events that follow number `after`, in order."""
    rows = SessionEvent.objects.filter(session_id=session.pk, sequence__gt=after).order_by("sequence")
    return [logged(row, session) for row in rows[:limit]]


def _fitted(data: dict[str, Any], execution_id: UUID | None) -> tuple[dict[str, Any], str]:
    text = canonical.dumps(data)
    limit = settings.MAX_EVENT_BYTES
    for name in sorted(data, key=lambda key: -len(canonical.dumps(data[key]))) if len(text) * 4 > limit else ():
        if len(text.encode()) <= limit:
            break
        data = {**data, name: _reference(data[name], execution_id)}
        text = canonical.dumps(data)
    return data, text


def _reference(value: Any, execution_id: UUID | None) -> dict[str, Any]:
    text = canonical.dumps(value)
    return {
        "ref": f"turns/{execution_id}/" if execution_id else "",
        "bytes": len(text.encode()),
        "sha256": canonical.text_digest(text),
    }
