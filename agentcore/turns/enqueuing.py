"""Store a turn: once per idempotency key, in a session that has no active one, queued for a worker."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from agentcore import canonical, database, dispatch
from agentcore.conf import settings
from agentcore.events import log
from agentcore.events.kinds import EventType
from agentcore.events.log import Journal
from agentcore.exceptions import Conflict, NotFound
from agentcore.models import AgentContext, AgentSession, ContextEntry, EntryKind, owner_fields, statements
from agentcore.states import SessionStatus
from agentcore.turns import admission, sessions


@dataclass(frozen=True, kw_only=True)
class Enqueued:
    """A stored turn; `duplicate` says that its idempotency key was known."""

    turn: AgentContext
    duplicate: bool


@dataclass(frozen=True, kw_only=True)
class TurnOptions:
    """The limits of one turn; what is None comes from the session's revision."""

    max_steps: int | None = None
    turn_timeout: float | None = None
    enable_memory: bool | None = None
    enable_rag: bool | None = None
    initial_context: dict[str, Any] | None = None


@database.retried
def enqueue(
    session: AgentSession,
    *,
    message: dict[str, Any],
    key: str,
    user: Any = None,
    metadata: dict[str, Any],
    options: TurnOptions,
    send: bool = True,
) -> Enqueued:
    """Store a turn and, with `send`, dispatch it after the commit.

    A known key with the same message and metadata gives the stored turn. Raises Conflict for a known
    key with another body, an active turn or an archived session, RateLimited for one turn too many of a user;
    nothing is stored then.
    """
    body = canonical.digest({"message": message, "metadata": metadata})
    with log.writing(session.pk) as journal:
        known = _find_by_key(session, key)
        if known is not None:
            _require_same_body(known, body)
            return Enqueued(turn=known, duplicate=True)
        _require_open(journal.session)
        sessions.require_idle(journal.session)
        admission.require_room(journal.session, user)
        # It never changes, and was read with the session; of the rest only the lock's row is sure.
        journal.session.agent, journal.session.revision = session.agent, session.revision
        turn = store(journal, message=message, key=key, user=user, metadata=metadata, options=options)
        if send:
            dispatch.run_turn(turn.execution_id)
    return Enqueued(turn=turn, duplicate=False)


def store(
    journal: Journal,
    *,
    message: dict[str, Any],
    key: str,
    user: Any = None,
    metadata: dict[str, Any],
    options: TurnOptions,
) -> AgentContext:
    """Store a queued turn of the journal's session, which has no active one."""
    turn = _made(journal, message=message, key=key, user=user, metadata=metadata, options=options)
    journal.append(EventType.TURN_INPUT, execution_id=turn.execution_id, message=message)
    journal.write(lambda: _insert(journal, turn, options.initial_context or {}))
    return turn


def _find_by_key(session: AgentSession, key: str) -> AgentContext | None:
    found: AgentContext | None = AgentContext.objects.filter(
        session_id=session.pk, idempotency_digest=canonical.text_digest(key)
    ).first()
    return found


def _require_same_body(turn: AgentContext, body: str) -> None:
    if turn.body_digest != body:
        raise Conflict(
            "This idempotency key was used for another message. Send a new key with a new message.",
            execution_id=str(turn.execution_id),
        )


def _require_open(session: AgentSession) -> None:
    if session.deleted_at is not None:
        raise NotFound(f"There is no session {session.session_id!r}.", session_id=session.session_id)
    if session.status == SessionStatus.ARCHIVED:
        raise Conflict(f"Session {session.session_id!r} is archived.", session_id=session.session_id)


def _made(
    journal: Journal,
    *,
    message: dict[str, Any],
    key: str,
    user: Any,
    metadata: dict[str, Any],
    options: TurnOptions,
) -> AgentContext:
    session = journal.session
    pinned = session.revision.definition
    return AgentContext(
        session=session,
        active_session=session,
        agent=session.agent,
        revision=session.revision,
        input=message,
        metadata=metadata,
        idempotency_key=key,
        idempotency_digest=canonical.text_digest(key),
        body_digest=canonical.digest({"message": message, "metadata": metadata}),
        max_steps=options.max_steps or pinned["max_steps"],
        turn_timeout=options.turn_timeout or pinned["turn_timeout"],
        enable_memory=_chosen(options.enable_memory, pinned["enable_memory"]),
        enable_rag=_chosen(options.enable_rag, pinned["enable_rag"]),
        created_at=journal.now,
        updated_at=journal.now,
        dispatch_count=1,
        next_dispatch_at=journal.now + timedelta(seconds=settings.LEASE_SECONDS),
        **_requester(session, user),
    )


def _insert(journal: Journal, turn: AgentContext, context: dict[str, Any]) -> None:
    # The session may have got its key in this same transaction.
    turn.session = turn.active_session = journal.session
    statements.insert([turn])
    statements.insert(
        [
            ContextEntry(
                turn=turn,
                kind=EntryKind.WORKING_MEMORY,
                key=key,
                key_digest=canonical.text_digest(key),
                value=value,
                created_at=journal.now,
                updated_at=journal.now,
            )
            for key, value in context.items()
        ]
    )


def _requester(session: AgentSession, user: Any) -> dict[str, Any]:
    if user is not None:
        return owner_fields(user)
    return {"user_id": session.user_id, "user_key": session.user_key, "user_name": session.user_name}


def _chosen(override: bool | None, pinned: bool) -> bool:
    return pinned if override is None else override
