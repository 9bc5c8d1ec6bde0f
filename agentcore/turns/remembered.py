"""What is still to be remembered of turns that completed, and the proof of who remembers it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from agentcore import clock, database
from agentcore.conf import settings
from agentcore.events import log
from agentcore.events.kinds import EventType
from agentcore.exceptions import LeaseLost
from agentcore.models import AgentContext, Owner, SessionEvent, statements
from agentcore.states import TurnState
from agentcore.turns.leases import Lease
from agentcore.turns.work import Work, as_one

# How long after its end a turn is left to the worker that ended it, whose extractor may ask a model.
WORKERS_OWN = timedelta(minutes=5)


def due_at(turn: AgentContext, now: datetime) -> datetime | None:
    """Return from when on others remember a turn that completes now, should its worker die; None: nothing is to be."""
    owner = Owner.of_session(turn.session)
    if not turn.enable_memory or owner.is_nobody:
        return None
    # What is said in a session without a user can be read in that session alone, and its history has it.
    is_wanted = owner.user_id is not None or settings.MEMORY["extractor"] is not None
    return now + WORKERS_OWN if is_wanted else None


def find_left(*, limit: int) -> list[UUID]:
    """Return the turns that were not remembered in time, the longest due first."""
    due = AgentContext.objects.present().unremembered()
    return list(due.order_by("remember_at").values_list("execution_id", flat=True)[:limit])


@database.retried
def take(execution_id: UUID) -> Work | None:
    """Take a turn that was not remembered in time; None when somebody else was faster.

    Should this process die too, it is due again after as long as has passed since its end: ever more seldom.
    """
    turns = AgentContext.objects.present().select_related("session", "agent", "revision", "user")
    turn = turns.unremembered().filter(execution_id=execution_id).first()
    step = None if turn is None else turn.steps.order_by("-number").first()
    if turn is None or step is None:
        return None
    now = clock.now()
    again_at = now + max(WORKERS_OWN, now - (turn.completed_at or now))
    lease = Lease(turn_pk=turn.pk, session_pk=turn.session_id, execution_id=turn.execution_id, token=turn.lease_token)
    work = Work(turn=turn, lease=lease, step=step, ended=True)
    if not statements.update(AgentContext, _held(work), remember_at=again_at):
        return None
    turn.remember_at = again_at
    return work


@database.retried
def require_held(work: Work) -> None:
    """Raise LeaseLost for a turn that is not this worker's to remember, or of which nothing is to be remembered."""
    if not AgentContext.objects.filter(**_held(work)).exists():
        raise _lost(work)


@as_one
def tell_kept(work: Work, **told: Any) -> None:
    """Tell what was kept of a turn, once; raise LeaseLost when that is not this worker's to do, or any more."""
    with log.in_one_go(work.turn.session) as journal:

        def prove() -> None:
            if not statements.update(AgentContext, _held(work), remember_at=None, updated_at=journal.now):
                raise _lost(work)

        journal.write(prove)
        journal.append(EventType.MEMORY_UPDATED, execution_id=work.turn.execution_id, **told)
    work.turn.remember_at = None


@database.retried
def close(work: Work) -> None:
    """Take note that there was nothing to remember of a turn, and so nothing to tell."""
    statements.update(AgentContext, _held(work), remember_at=None)


@database.retried
def has_another(work: Work) -> bool:
    """Say whether somebody else remembers a turn or has done so: what is kept of it is right then."""
    due = list(AgentContext.objects.present().filter(pk=work.turn.pk).values_list("remember_at", flat=True))
    return bool(due) and (due[0] is not None or _is_told(work.turn))


def _is_told(turn: AgentContext) -> bool:
    told = SessionEvent.objects.filter(session_id=turn.session_id, turn_id=turn.execution_id)
    return any("stored" in data for data in told.filter(type=EventType.MEMORY_UPDATED).values_list("data", flat=True))


def _held(work: Work) -> dict[str, Any]:
    turn = work.turn
    return {
        "pk": turn.pk,
        "lease_token": work.lease.token,
        "state": TurnState.COMPLETED,
        "erased_at": None,
        "remember_at": turn.remember_at,
    }


def _lost(work: Work) -> LeaseLost:
    return LeaseLost(f"Turn {work.turn.execution_id} is not this worker's to remember, or not any more.")
