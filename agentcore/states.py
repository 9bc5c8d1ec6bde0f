"""The states of turns, calls and approvals, and the moves a turn may make. Nothing else decides that."""

from __future__ import annotations

from django.db import models


class TurnState(models.TextChoices):
    """Where a turn is. Active states keep the session's one place; terminal ones never change."""

    # It waits for a worker.
    QUEUED = "queued"
    # A worker asks the model.
    THINKING = "thinking"
    # A worker runs a tool the model asked for.
    USING_TOOL = "using_tool"
    # A person must decide on a tool call; no worker holds anything.
    WAITING_FOR_APPROVAL = "waiting_for_approval"
    # The user must answer a question; no worker holds anything.
    WAITING_FOR_INPUT = "waiting_for_input"
    # It was cancelled while a worker had it; the call in hand is let finish.
    CANCELLING = "cancelling"
    # It ended with a response.
    COMPLETED = "completed"
    # It ended with an error.
    FAILED = "failed"
    # Somebody ended it.
    CANCELLED = "cancelled"
    # Its worker died once too often, or its driver cannot go on after a crash.
    INTERRUPTED = "interrupted"


_S = TurnState

MOVES: dict[TurnState, frozenset[TurnState]] = {
    _S.QUEUED: frozenset({_S.THINKING, _S.CANCELLED, _S.FAILED}),
    _S.THINKING: frozenset(
        {
            _S.USING_TOOL,
            _S.WAITING_FOR_APPROVAL,
            _S.WAITING_FOR_INPUT,
            _S.COMPLETED,
            _S.FAILED,
            _S.CANCELLING,
            _S.INTERRUPTED,
            _S.QUEUED,
        }
    ),
    _S.USING_TOOL: frozenset(
        {
            _S.THINKING,
            _S.WAITING_FOR_APPROVAL,
            _S.WAITING_FOR_INPUT,
            _S.FAILED,
            _S.CANCELLING,
            _S.INTERRUPTED,
            _S.QUEUED,
        }
    ),
    _S.WAITING_FOR_APPROVAL: frozenset({_S.QUEUED, _S.WAITING_FOR_INPUT, _S.FAILED, _S.CANCELLED}),
    _S.WAITING_FOR_INPUT: frozenset({_S.QUEUED, _S.FAILED, _S.CANCELLED}),
    _S.CANCELLING: frozenset({_S.CANCELLED}),
    _S.COMPLETED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELLED: frozenset(),
    _S.INTERRUPTED: frozenset(),
}

TERMINAL = frozenset(state for state, targets in MOVES.items() if not targets)
ACTIVE = frozenset(MOVES) - TERMINAL
WAITING = frozenset({_S.WAITING_FOR_APPROVAL, _S.WAITING_FOR_INPUT})
# A worker holds the turn's lease in these, and in no others.
WORKING = frozenset({_S.THINKING, _S.USING_TOOL, _S.CANCELLING})

SOURCES: dict[TurnState, frozenset[TurnState]] = {
    target: frozenset(source for source, targets in MOVES.items() if target in targets) for target in MOVES
}


class SessionStatus(models.TextChoices):
    ACTIVE = "active"
    ARCHIVED = "archived"


class StepState(models.TextChoices):
    """Where a step is: `thinking` until the reply is recorded, then `using_tool` until each call has its result."""

    THINKING = "thinking"
    USING_TOOL = "using_tool"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class StepAction(models.TextChoices):
    THINK = "think"
    USE_TOOL = "use_tool"
    ASK_USER = "ask_user"
    RESPOND = "respond"


class CallStatus(models.TextChoices):
    """Where a tool call is. Those from `completed` on have the call's one result."""

    # Not begun; it may still turn out to need a person.
    PENDING = "pending"
    # A person allowed it; not begun.
    APPROVED = "approved"
    # An attempt was recorded and may be under way.
    EXECUTING = "executing"
    COMPLETED = "completed"
    FAILED = "failed"
    REJECTED = "rejected"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    # It began and nobody knows how it ended.
    UNKNOWN = "unknown"


OPEN_CALLS = frozenset({CallStatus.PENDING, CallStatus.APPROVED, CallStatus.EXECUTING})


class ApprovalKind(models.TextChoices):
    CALL = "call"
    OUTCOME = "outcome"


class ApprovalStatus(models.TextChoices):
    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    RESPONDED = "responded"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class Verdict(models.TextChoices):
    """What one entry of an approval's record says. People give the first three, the system the others."""

    APPROVE = "approve"
    REJECT = "reject"
    RESPOND = "respond"
    EXPIRE = "expire"
    CANCEL = "cancel"


class Channel(models.TextChoices):
    """The way a decision came in."""

    PYTHON = "python"
    ADMIN = "admin"
    PAGE = "page"
    API = "api"
    COMMAND = "command"
    SYSTEM = "system"
