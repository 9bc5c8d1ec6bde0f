"""Take a turn to work on it: one transaction that claims it and begins the step it is at."""

from __future__ import annotations

from uuid import UUID

from django.db import DatabaseError

from agentcore import database
from agentcore.events import log
from agentcore.exceptions import NotQueued
from agentcore.models import AgentContext, ToolCall
from agentcore.states import TurnState
from agentcore.turns import lifecycle, steps
from agentcore.turns.work import Work


@database.retried
def claim(execution_id: UUID | str) -> Work | None:
    """Return the turn to work on, or None when it is not queued, not due, or another worker was faster.

    Asked before it is due, by an early copy of its task, nothing is written.
    """
    turns = AgentContext.objects.due().select_related("session", "agent", "revision", "user")
    turn = turns.filter(execution_id=execution_id, state=TurnState.QUEUED).first()
    return None if turn is None else _take(turn)


def take(turn: AgentContext) -> Work | None:
    """Claim a turn that was just read as queued, with all its relations; the object is the worker's from here on."""
    if turn.due_at is not None:
        return claim(turn.execution_id)
    try:
        return _take(turn)
    except DatabaseError as error:
        if not database.may_pass(error) or database.is_in_transaction():
            raise
        return claim(turn.execution_id)


def _take(turn: AgentContext) -> Work | None:
    # Read before: only who holds the turn writes its steps and calls, and nobody does while it is queued.
    last = turn.steps.order_by("-number").first() if turn.started_at is not None else None
    in_hand = last if last is not None and last.completed_at is None else None
    calls = list(ToolCall.objects.filter(step=in_hand).order_by("position")) if in_hand else []
    try:
        with log.in_one_go(turn.session) as journal:
            lease = lifecycle.claim(journal, turn)
            step = in_hand or steps.begin(journal, turn, last.number + 1 if last else 1)
    except NotQueued:
        return None
    except DatabaseError as error:
        if not log.was_made_after_all(error):
            raise
    work = Work(turn=turn, lease=lease, step=step, calls=calls, is_first=last is None)
    work.take_up()
    return work
