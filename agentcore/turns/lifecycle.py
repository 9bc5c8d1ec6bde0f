"""The life of a turn. The only module that changes AgentContext.state.

Verbs open their own transaction; those that take a `journal` work in the caller's. Each move is one
conditional UPDATE that names its legal sources.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import F

from agentcore import clock, dispatch
from agentcore.conf import settings
from agentcore.events.kinds import EventType
from agentcore.events.log import Journal
from agentcore.exceptions import Conflict, LeaseLost, NotFound, NotQueued, TurnCancelled
from agentcore.models import AgentContext, statements
from agentcore.states import SOURCES, TERMINAL, WORKING, TurnState
from agentcore.turns import leases, working_memory
from agentcore.turns.leases import Lease

# After that many the pause between two sendings of one turn stays the same: about an hour by default.
MAX_DOUBLINGS = 6

_END_EVENTS = {
    TurnState.COMPLETED: EventType.TURN_COMPLETED,
    TurnState.FAILED: EventType.TURN_FAILED,
    TurnState.CANCELLED: EventType.TURN_CANCELLED,
    TurnState.INTERRUPTED: EventType.TURN_INTERRUPTED,
}


def claim(journal: Journal, turn: AgentContext) -> Lease:
    """Take a queued turn, as it was read, for this worker; raise NotQueued when somebody else was faster.

    Delivering a task twice is harmless because of this: of two claims one moves the row.
    """
    queued = {"pk": turn.pk, "state": TurnState.QUEUED, "lease_token": turn.lease_token}
    fields = _claimed(journal, turn)

    def move() -> None:
        if not statements.update(AgentContext, queued, **fields):
            raise NotQueued(f"Turn {turn.execution_id} is not queued any more.")

    journal.write(move)
    return Lease(turn_pk=turn.pk, session_pk=turn.session_id, execution_id=turn.execution_id, token=turn.lease_token)


def claim_new(journal: Journal, turn: AgentContext) -> Lease:
    """Take a turn that the same journal stores: nobody else can."""
    vars(turn).update(_claimed(journal, turn))
    lease = Lease(turn_pk=0, session_pk=0, execution_id=turn.execution_id, token=turn.lease_token)

    def tell_keys() -> None:
        lease.turn_pk, lease.session_pk = turn.pk, turn.session_id

    journal.write(tell_keys)
    return lease


def _claimed(journal: Journal, turn: AgentContext) -> dict[str, Any]:
    """Make a turn in memory this worker's, and tell of it; return what its row is to say."""
    is_first = turn.started_at is None
    turn.state, turn.lease_token = TurnState.THINKING, turn.lease_token + 1
    turn.started_at = turn.started_at or journal.now
    _append_state(journal, turn, TurnState.QUEUED, TurnState.THINKING, reason="claimed")
    if is_first:
        journal.append(EventType.TURN_RUNNING, execution_id=turn.execution_id, reason="claimed")
    return {
        "state": turn.state,
        "lease_token": turn.lease_token,
        "lease_owner": leases.owner(),
        "lease_expires_at": clock.db_now(plus=leases.duration()),
        "due_at": None,
        "next_dispatch_at": None,
        "started_at": turn.started_at,
        "updated_at": journal.now,
    }


def advance(journal: Journal, turn: AgentContext, lease: Lease, to: TurnState, *, reason: str, **fields: Any) -> None:
    """Move a turn this worker holds, or stay in its state and set `fields`.

    Raises TurnCancelled when somebody cancelled it meanwhile, LeaseLost when the lease is another's.
    """
    allowed = sorted({*SOURCES[to], to} & WORKING - {TurnState.CANCELLING})
    if to in WORKING:
        fields["lease_expires_at"] = clock.db_now(plus=leases.duration())
    asked_at = clock.monotonic()

    def move() -> None:
        held = {"pk": lease.turn_pk, "lease_token": lease.token, "state": allowed}
        if not statements.update(AgentContext, held, state=to, updated_at=journal.now, **fields):
            lease.is_lost = True
            raise _why_not_moved(lease)
        lease.prove(asked_at)

    journal.write(move)
    if to not in WORKING:
        working_memory.save(journal, turn, lease.unsaved)
    if turn.state != to:
        _append_state(journal, turn, TurnState(turn.state), to, reason=reason)
    turn.state = to
    for name, value in fields.items():
        if not isinstance(value, statements.Plus | clock.DatabaseNow):
            setattr(turn, name, value)


def suspend(journal: Journal, turn: AgentContext, lease: Lease, to: TurnState, *, reason: str) -> None:
    """Let a turn wait for people: from here on it is rows, and nothing else."""
    advance(journal, turn, lease, to, reason=reason, **_released(lease))
    waiting_for = "approval" if to == TurnState.WAITING_FOR_APPROVAL else "input"
    journal.append(EventType.TURN_WAITING, execution_id=turn.execution_id, reason=waiting_for)


def give_back(journal: Journal, turn: AgentContext, lease: Lease, *, reason: str) -> None:
    """Put a turn this worker holds back into the queue, and ask for a worker."""
    advance(journal, turn, lease, TurnState.QUEUED, reason=reason, **_released(lease), **_sent())
    journal.append(EventType.TURN_RESUMED, execution_id=turn.execution_id, reason=reason)
    dispatch.run_turn(turn.execution_id)


def postpone(journal: Journal, turn: AgentContext, lease: Lease, *, seconds: float, reason: str) -> None:
    """Put a turn this worker holds back into the queue, to go on in so many seconds and not before."""
    wait = timedelta(seconds=seconds)
    fields = {"due_at": clock.db_now(plus=wait), **_sent(after=wait)}
    advance(journal, turn, lease, TurnState.QUEUED, reason=reason, **_released(lease), **fields)
    journal.append(EventType.TURN_RESUMED, execution_id=turn.execution_id, reason=reason, seconds=round(seconds, 3))
    dispatch.run_turn(turn.execution_id, after=seconds)


def complete(journal: Journal, turn: AgentContext, lease: Lease, *, response: str, **fields: Any) -> None:
    """End a turn with its response."""
    advance(
        journal,
        turn,
        lease,
        TurnState.COMPLETED,
        reason="answered",
        response=response,
        **_ended(journal, lease),
        **fields,
    )
    journal.append(EventType.TURN_COMPLETED, execution_id=turn.execution_id, response=response)


def fail(journal: Journal, turn: AgentContext, lease: Lease, *, error: dict[str, Any], **fields: Any) -> None:
    """End a turn this worker holds with an error."""
    advance(
        journal, turn, lease, TurnState.FAILED, reason=error["code"], error=error, **_ended(journal, lease), **fields
    )
    journal.append(EventType.TURN_FAILED, execution_id=turn.execution_id, error=error)


def interrupt(journal: Journal, turn: AgentContext, lease: Lease, *, error: dict[str, Any]) -> None:
    """End a turn this worker holds because it cannot go on after a crash."""
    advance(journal, turn, lease, TurnState.INTERRUPTED, reason=error["code"], error=error, **_ended(journal, lease))
    journal.append(EventType.TURN_INTERRUPTED, execution_id=turn.execution_id, error=error)


def wake(journal: Journal, turn: AgentContext, *, reason: str) -> None:
    """Queue a waiting turn again and dispatch it after the commit."""
    _move(journal, turn, TurnState.QUEUED, reason=reason, **_sent())
    journal.append(EventType.TURN_RESUMED, execution_id=turn.execution_id, reason=reason)
    dispatch.run_turn(turn.execution_id)


def suspend_for_input(journal: Journal, turn: AgentContext, lease: Lease, *, question: str) -> None:
    """Let a turn wait for its user's answer: `question` is set exactly while it does."""
    advance(journal, turn, lease, TurnState.WAITING_FOR_INPUT, reason="input", question=question, **_released(lease))
    journal.append(EventType.TURN_WAITING, execution_id=turn.execution_id, reason="input")


def wake_answered(journal: Journal, turn: AgentContext, *, send: bool) -> None:
    """Queue a turn whose question was answered and, with `send`, dispatch it after the commit."""
    _move(journal, turn, TurnState.QUEUED, reason="answered", question=None, **_sent())
    journal.append(EventType.TURN_RESUMED, execution_id=turn.execution_id, reason="answered")
    if send:
        dispatch.run_turn(turn.execution_id)


def request_cancel(journal: Journal, turn: AgentContext, *, by: str) -> None:
    """Ask the worker that has the turn to end it at the end of the call in hand."""
    _move(journal, turn, TurnState.CANCELLING, reason="cancelled")
    journal.append(EventType.TURN_CANCELLING, execution_id=turn.execution_id, reason="cancelled", by=by)


def end(
    journal: Journal,
    turn: AgentContext,
    to: TurnState,
    *,
    reason: str,
    error: dict[str, Any] | None,
    by: str = "",
) -> None:
    """End a turn that no worker holds (any longer): cancelled, failed or interrupted."""
    if to not in TERMINAL:
        raise ValueError(f"{to} does not end a turn")
    _move(journal, turn, to, reason=reason, error=error, lease_token=statements.Plus(1), **_ended(journal, None))
    journal.append(_END_EVENTS[to], execution_id=turn.execution_id, error=error, reason=reason, by=by or "system")


def take_over(journal: Journal, turn: AgentContext) -> None:
    """Queue a turn again whose worker let its lease run out; that worker's token is void from here."""
    _move(
        journal,
        turn,
        TurnState.QUEUED,
        reason="taken over",
        takeovers=statements.Plus(1),
        lease_token=statements.Plus(1),
        **_released(None),
        **_sent(),
    )
    journal.append(EventType.TURN_RESUMED, execution_id=turn.execution_id, reason="taken over")
    dispatch.run_turn(turn.execution_id)


def send_again(turn: AgentContext) -> bool:
    """Dispatch a queued turn that nobody claimed; say whether it still was. The pause doubles each time."""
    pause = timedelta(seconds=settings.LEASE_SECONDS * 2 ** min(turn.dispatch_count, MAX_DOUBLINGS))
    after = seconds_until_due(turn)
    sent = AgentContext.objects.filter(pk=turn.pk, state=TurnState.QUEUED, dispatch_count=turn.dispatch_count).update(
        dispatch_count=F("dispatch_count") + 1, next_dispatch_at=clock.db_now(plus=pause + timedelta(seconds=after))
    )
    if sent:
        dispatch.run_turn(turn.execution_id, after=after)
    return bool(sent)


def seconds_until_due(turn: AgentContext) -> float:
    """Return for how many seconds a queued turn is not to be worked on yet."""
    return max((turn.due_at - clock.now()).total_seconds(), 0.0) if turn.due_at else 0.0


def find(execution_id: UUID | str) -> AgentContext | None:
    found: AgentContext | None = AgentContext.objects.filter(execution_id=execution_id).first()
    return found


def get(execution_id: UUID | str) -> AgentContext:
    """Return a turn that is not deleted, with session, agent and revision; raise NotFound."""
    turns = AgentContext.objects.present().select_related("session", "agent", "revision", "user")
    try:
        found: AgentContext = turns.get(execution_id=_as_uuid(execution_id))
    except AgentContext.DoesNotExist:
        raise NotFound(f"There is no turn {execution_id}.", execution_id=str(execution_id)) from None
    return found


def _move(journal: Journal, turn: AgentContext, to: TurnState, *, reason: str, **fields: Any) -> None:
    """Move a turn under its session's lock, whoever held it; raise Conflict from an illegal source.

    The state it was read with is tried first, and what it is now only asked when it is another.
    """
    change = {"state": to, "updated_at": journal.now, **fields}
    source = turn.state
    if source not in SOURCES[to] or not _moved(turn, source, change):
        source = AgentContext.objects.values_list("state", flat=True).get(pk=turn.pk)
        if source not in SOURCES[to] or not _moved(turn, source, change):
            raise Conflict(
                f"Turn {turn.execution_id} is {source} and cannot become {to}.",
                state=source,
                allowed=sorted(SOURCES[to]),
            )
    _append_state(journal, turn, TurnState(source), to, reason=reason)
    turn.state = to


def _moved(turn: AgentContext, source: str, change: dict[str, Any]) -> int:
    return statements.update(AgentContext, {"pk": turn.pk, "state": source}, **change)


def _why_not_moved(lease: Lease) -> Exception:
    turn = AgentContext.objects.get(pk=lease.turn_pk)
    if turn.lease_token == lease.token and turn.state == TurnState.CANCELLING:
        return TurnCancelled(f"Turn {lease.execution_id} was cancelled.")
    return LeaseLost(f"Turn {lease.execution_id} is {turn.state} under another token.")


def _append_state(journal: Journal, turn: AgentContext, source: TurnState, to: TurnState, *, reason: str) -> None:
    journal.append(EventType.STATE_CHANGED, execution_id=turn.execution_id, previous=source, new=to, reason=reason)


def _released(lease: Lease | None) -> dict[str, Any]:
    fields: dict[str, Any] = {"lease_owner": "", "lease_expires_at": None}
    if lease is not None:
        fields["worked_seconds"] = statements.Plus(leases.worked_seconds(lease))
    return fields


def _ended(journal: Journal, lease: Lease | None) -> dict[str, Any]:
    over = {"active_session": None, "question": None, "completed_at": journal.now}
    return {**over, "due_at": None, "next_dispatch_at": None, **_released(lease)}


def _sent(*, after: timedelta = timedelta(0)) -> dict[str, Any]:
    first_pause = timedelta(seconds=settings.LEASE_SECONDS)
    return {"dispatch_count": 1, "next_dispatch_at": clock.db_now(plus=after + first_pause)}


def _as_uuid(execution_id: UUID | str) -> UUID:
    try:
        return execution_id if isinstance(execution_id, UUID) else UUID(str(execution_id))
    except ValueError as error:
        raise NotFound(f"There is no turn {execution_id!r}.", execution_id=str(execution_id)) from error
