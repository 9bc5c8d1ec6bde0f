"""Sessions: begin, rename, archive, delete and restore conversations."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import IntegrityError

from agentcore import canonical, clock, database
from agentcore.agents.definition import AgentDefinition
from agentcore.conf import settings
from agentcore.events import log
from agentcore.events.kinds import EventType
from agentcore.events.log import Journal
from agentcore.exceptions import Conflict, InvalidInput, NotFound, TooLarge
from agentcore.memory import keeping
from agentcore.models import AgentContext, AgentSession, owner_fields
from agentcore.state import erasing as hot_copies
from agentcore.states import SessionStatus
from agentcore.tools.json_text import MAX_DEPTH
from agentcore.turns import revisions

# "." and ".." cannot stand in an address: clients resolve them away.
SESSION_ID = re.compile(r"(?!\.{1,2}$)[a-z0-9._:-]{1,64}")
MAX_TITLE = 255


@database.retried
def create(
    definition: AgentDefinition,
    *,
    session_id: str | None = None,
    user: Any = None,
    metadata: dict[str, Any] | None = None,
    title: str = "",
) -> AgentSession:
    """Begin a session pinned to the definition's current revision. A taken `session_id` is a Conflict."""
    session = make(definition, session_id=session_id, user=user, metadata=metadata, title=title)
    with refusing_taken_id(session), log.in_one_go(session) as journal:
        begin(journal)
    return session


def make(
    definition: AgentDefinition,
    *,
    session_id: str | None = None,
    user: Any = None,
    metadata: dict[str, Any] | None = None,
    title: str = "",
) -> AgentSession:
    """Return a session pinned to the definition's current revision, not stored yet; raise InvalidInput."""
    chosen = checked_session_id(session_id) if session_id is not None else new_id()
    title, metadata = checked_title(title), checked_metadata(metadata)
    revision = revisions.current(definition)
    now = clock.now()
    return AgentSession(
        session_id=chosen,
        agent=revision.agent,
        revision=revision,
        title=title,
        metadata=metadata,
        created_at=now,
        updated_at=now,
        **owner_fields(user),
    )


def new_id() -> str:
    """Return an id for a session whose caller named none."""
    return f"s-{uuid.uuid4().hex}"


def begin(journal: Journal) -> None:
    """Tell that the session begins which the journal stores."""
    revision = journal.session.revision
    journal.append(EventType.SESSION_STARTED, number=revision.number, hash=revision.hash)


@contextmanager
def refusing_taken_id(session: AgentSession) -> Iterator[None]:
    """Raise Conflict where the block stores a session whose id another one has."""
    try:
        # By itself inside a caller's transaction, which goes on after the refusal.
        with database.atomic():
            yield
    except IntegrityError as error:
        if AgentSession.objects.filter(session_id=session.session_id).exists():
            raise Conflict(
                f"There is already a session {session.session_id!r}.", session_id=session.session_id
            ) from error
        raise


def get(session_id: str) -> AgentSession:
    """Return a session that is not deleted, with agent and revision; raise NotFound."""
    session = find(session_id)
    if session is None:
        raise NotFound(f"There is no session {session_id!r}.", session_id=str(session_id))
    return session


def find(session_id: Any) -> AgentSession | None:
    """Return a session that is not deleted, or None; also for what can be no session's id."""
    if not _is_id(session_id):
        return None
    found: AgentSession | None = (
        AgentSession.objects.present()
        .filter(session_id=str(session_id))
        .select_related("agent", "revision", "user")
        .first()
    )
    return found


@database.retried
def change(session: AgentSession, *, title: str | None = None, metadata: Any = None) -> AgentSession:
    """Set the title, the metadata or both, and nothing else of the row."""
    changes: dict[str, Any] = {}
    if title is not None:
        changes["title"] = checked_title(title)
    if metadata is not None:
        changes["metadata"] = checked_metadata(metadata)
    if changes:
        AgentSession.objects.filter(pk=session.pk).update(updated_at=clock.now(), **changes)
    return get(session.session_id)


@database.retried
def archive(session: AgentSession) -> AgentSession:
    """Close a session to new turns. Archiving twice changes nothing; an active turn is a Conflict."""
    with log.writing(session.pk) as journal:
        require_idle(journal.session)
        if journal.session.status != SessionStatus.ARCHIVED:
            close(journal)
    return get(session.session_id)


def close(journal: Journal) -> None:
    """Archive the journal's session, which has no active turn and is not archived."""
    AgentSession.objects.filter(pk=journal.session.pk).update(
        status=SessionStatus.ARCHIVED, archived_at=journal.now, completed_at=journal.now
    )
    revision = journal.session.revision
    journal.append(EventType.SESSION_ARCHIVED, number=revision.number, hash=revision.hash)


@database.retried
def delete(session: AgentSession) -> None:
    """Remove a session from sight (SOFT_DELETE) or for good. An active turn is a Conflict."""
    with log.writing(session.pk) as journal:
        require_idle(journal.session)
        if settings.SOFT_DELETE:
            AgentSession.objects.filter(pk=session.pk).update(deleted_at=journal.now, updated_at=journal.now)
            AgentContext.objects.filter(session=session).update(deleted_at=journal.now)
        else:
            keeping.forget_with(session.pk)
            hot_copies.forget_with(AgentContext.objects.filter(session=session).values_list("execution_id", flat=True))
            journal.session.delete()


@database.retried
def restore(session_id: str) -> AgentSession:
    """Bring a deleted session back as it was, with its turns. One that is there already is left alone.

    Raises NotFound where no row of it is left, and Conflict for one whose content was erased.
    """
    known = AgentSession.objects.filter(session_id=session_id) if _is_id(session_id) else AgentSession.objects.none()
    session = known.first()
    if session is None:
        raise NotFound(f"There is no session {session_id!r} to restore.", session_id=str(session_id))
    with log.writing(session.pk) as journal:
        if journal.session.erased_at is not None:
            raise Conflict(f"Session {session_id!r} was erased; nothing is left to restore.", session_id=session_id)
        if journal.session.deleted_at is not None:
            AgentSession.objects.filter(pk=session.pk).update(deleted_at=None, updated_at=journal.now)
            # Of an emptied one only the record of decisions is kept.
            AgentContext.objects.filter(session=session, erased_at=None).update(deleted_at=None)
    return get(session_id)


def require_idle(session: AgentSession) -> None:
    """Raise Conflict when the session has an active turn. The caller holds the session's lock."""
    active = AgentContext.objects.filter(active_session_id=session.pk).values_list("execution_id", flat=True).first()
    if active is not None:
        raise Conflict(
            f"Session {session.session_id!r} has an active turn. Wait for its end or cancel it.",
            execution_id=str(active),
        )


def checked_session_id(session_id: Any) -> str:
    if not isinstance(session_id, str) or not SESSION_ID.fullmatch(session_id):
        raise InvalidInput(
            f"session_id {_shown(session_id)} must be 1 to 64 characters of a-z 0-9 . _ : - and not . or ..",
            field="session_id",
        )
    return session_id


def checked_title(title: Any) -> str:
    if not isinstance(title, str) or len(title) > MAX_TITLE:
        raise InvalidInput(f"title must be text of at most {MAX_TITLE} characters.", field="title")
    if canonical.has_unstorable_text(title):
        raise InvalidInput("title holds a NUL character or a lone surrogate; remove it.", field="title")
    return title


def checked_metadata(metadata: Any) -> dict[str, Any]:
    """Return metadata as it is stored; raise InvalidInput or TooLarge."""
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise InvalidInput(f"metadata must be an object, not {type(metadata).__name__}.", field="metadata")
    try:
        stored: dict[str, Any] = canonical.normalise(metadata)
        is_unstorable = canonical.has_unstorable_text(stored)
        size = 0 if is_unstorable else canonical.byte_size(stored)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"metadata cannot be stored as JSON: {error}.", field="metadata") from error
    if is_unstorable:
        raise InvalidInput("metadata holds a NUL character or a lone surrogate; remove it.", field="metadata")
    if canonical.depth(stored) > MAX_DEPTH:
        raise InvalidInput(f"metadata is nested deeper than {MAX_DEPTH} levels.", field="metadata")
    if size > settings.MAX_INPUT_BYTES:
        raise TooLarge(f"metadata is over {settings.MAX_INPUT_BYTES} bytes.", limit=settings.MAX_INPUT_BYTES)
    return stored


def _is_id(session_id: Any) -> bool:
    return isinstance(session_id, str) and SESSION_ID.fullmatch(session_id) is not None


def _shown(value: Any) -> str:
    return repr(value)[:80]
