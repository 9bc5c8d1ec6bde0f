"""Which rows exist for the user of a request. What is not theirs is absent, and looks it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from agentcore.api import parsing
from agentcore.api.errors import absent
from agentcore.exceptions import PermissionDenied
from agentcore.models import AgentContext, AgentSession, Document
from agentcore.turns.sessions import SESSION_ID


def session_for(user: Any, session_id: str) -> AgentSession:
    """Return a session that `user` may see; raise NotFound."""
    return _only(AgentSession.objects.visible_to(user).filter(deleted_at=None), session_id)


def session_to_change(user: Any, session_id: str, *, permission: str) -> AgentSession:
    """Return a session of `user`'s own, or any with `permission`; raise PermissionDenied for one they only see."""
    session = _only(AgentSession.objects.present(), session_id)
    if session.user_id == user.pk or user.has_perm(permission):
        return session
    if user.has_perm("agentcore.view_agentsession"):
        raise PermissionDenied("You may look at this session, and not change it.", permission=permission)
    raise absent()


def turn_for(user: Any, execution_id: str) -> AgentContext:
    """Return a turn that `user` may see; raise NotFound."""
    return _only_turn(AgentContext.objects.present().visible_to(user), execution_id)


def turn_to_change(user: Any, execution_id: str, *, permission: str) -> AgentContext:
    """Return a turn of a session that `user` may change, as `session_to_change` says."""
    turn = _only_turn(AgentContext.objects.present(), execution_id)
    session_to_change(user, turn.session.session_id, permission=permission)
    return turn


def require_documents(user: Any, action: str) -> None:
    """Raise NotFound for who may not see documents, PermissionDenied for who may see them and not do `action`."""
    permission = f"agentcore.{action}_document"
    if user.has_perm(permission):
        return
    if user.has_perm("agentcore.view_document"):
        raise PermissionDenied(f"You may not {action} documents.", permission=permission)
    raise absent()


def document_for(user: Any, id: str, action: str) -> Document:
    """Return a document that `user` may view or delete; raise NotFound, or PermissionDenied as above."""
    require_documents(user, action)
    number = parsing.find_number(id)
    if number is None or number > parsing.MAX_ID:
        raise absent()
    document: Document | None = Document.objects.filter(pk=number).defer("text").first()
    if document is None:
        raise absent()
    return document


def _only_turn(turns: Any, execution_id: str) -> AgentContext:
    try:
        wanted = UUID(execution_id)
    except ValueError as error:
        raise absent() from error
    found = turns.select_related("session", "agent", "revision").filter(execution_id=wanted)
    turn: AgentContext | None = found.first()
    if turn is None:
        raise absent()
    return turn


def _only(sessions: Any, session_id: str) -> AgentSession:
    # Checked first: some databases compare text without regard to case, and one refuses NUL.
    found = sessions.filter(session_id=session_id) if SESSION_ID.fullmatch(session_id) else sessions.none()
    session: AgentSession | None = found.select_related("agent", "revision", "active_turn").first()
    if session is None:
        raise absent()
    return session
