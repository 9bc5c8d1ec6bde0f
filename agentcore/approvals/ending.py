"""End turns and their requests together: cancel a session's turn, expire what nobody decided."""

from __future__ import annotations

from agentcore import database
from agentcore.approvals import decisions, standing
from agentcore.events import log
from agentcore.events.log import Journal
from agentcore.exceptions import Conflict
from agentcore.models import AgentContext, AgentSession, ToolApproval
from agentcore.states import WORKING, TurnState
from agentcore.turns import lifecycle, steps

BATCH = 100


@database.retried
def cancel(session: AgentSession, *, by: str = "") -> AgentContext:
    """Cancel the session's active turn; raise Conflict when there is none.

    A queued or waiting turn ends at once, its requests with it. A running one is `cancelling` until the
    call in hand returns; cancelling it once more changes nothing.
    """
    with log.writing(session.pk) as journal:
        turn = AgentContext.objects.filter(active_session_id=session.pk).first()
        if turn is None:
            raise Conflict(f"Session {session.session_id!r} has no active turn to cancel.")
        _cancel(journal, turn, by=by)
    return lifecycle.get(turn.execution_id)


@database.retried
def cancel_turn(turn: AgentContext, *, by: str = "") -> None:
    """Cancel this turn, as `cancel` does; one that has ended already is left alone."""
    with log.writing(turn.session_id) as journal:
        active = AgentContext.objects.filter(pk=turn.pk, active_session_id=turn.session_id).first()
        if active is not None:
            _cancel(journal, active, by=by)


def expire_due() -> int:
    """Expire the pending requests whose time is over; return how many were."""
    expired = 0
    due = ToolApproval.objects.expired_by_now().order_by("expires_at").values_list("pk", "session_id")
    for pk, session_pk in due[:BATCH]:
        expired += _expire(pk, session_pk)
    return expired


@database.retried
def _expire(pk: int, session_pk: int) -> bool:
    with log.writing(session_pk) as journal:
        asked = standing.find(journal, pk)
        is_due = asked is not None and asked.is_over
        if asked is not None and is_due:
            decisions.expire(journal, asked)
    return is_due


def _cancel(journal: Journal, turn: AgentContext, *, by: str) -> None:
    if turn.state == TurnState.CANCELLING:
        return
    if turn.state in WORKING:
        lifecycle.request_cancel(journal, turn, by=by)
        return
    decisions.cancel_pending(journal, turn, reason="The turn was cancelled.")
    steps.close_cancelled(journal, turn, by=by)
