"""Tool calls: store each before it is acted on, and give it one result. The only writer of their rows.

Everything here works in the caller's transaction; `steps` and `approvals.decisions` are the callers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from agentcore import canonical
from agentcore.events.kinds import EventType
from agentcore.events.log import Journal
from agentcore.exceptions import Conflict, LeaseLost
from agentcore.models import AgentContext, ToolCall, statements
from agentcore.states import OPEN_CALLS, CallStatus
from agentcore.tools.masking import mask
from agentcore.turns.work import Work

_RESULT_EVENTS = {
    CallStatus.COMPLETED: EventType.TOOL_EXECUTION_COMPLETED,
    CallStatus.FAILED: EventType.TOOL_EXECUTION_FAILED,
    CallStatus.CANCELLED: EventType.TOOL_EXECUTION_FAILED,
    CallStatus.UNKNOWN: EventType.TOOL_EXECUTION_UNKNOWN,
}


def store(journal: Journal, work: Work, calls: Sequence[ToolCall], begin_first: ToolCall | None) -> None:
    """Store what a reply asked for, in its order; those that will not run come with their result."""
    for call in calls:
        call.turn, call.step = work.turn, work.step
        if call.status not in OPEN_CALLS:
            call.completed_at = journal.now
    if begin_first is not None:
        _mark_begun(journal, begin_first)
    work.calls = list(calls)
    journal.write(partial(_insert, work, calls))
    for call in calls:
        if call.status == CallStatus.EXECUTING:
            _append_started(journal, work.turn, call)
        elif call.status not in OPEN_CALLS:
            _append_result(journal, work.turn, call)


def _insert(work: Work, calls: Sequence[ToolCall]) -> None:
    for call in calls:
        call.step_id = work.step.pk  # the step may have got its key in this same transaction
    statements.insert(calls)
    work.begun.update(call.pk for call in calls if call.status == CallStatus.EXECUTING)


def begin(journal: Journal, work: Work, call: ToolCall) -> None:
    """Record an attempt before it starts: whoever finds it later knows that it may have happened."""
    before = call.status
    _mark_begun(journal, call)

    def store() -> None:
        begun = statements.update(
            ToolCall,
            {"pk": call.pk, "status": before},
            status=CallStatus.EXECUTING,
            attempts=statements.Plus(1),
            started_at=journal.now,
            needs_approval=bool(call.needs_approval),
        )
        if not begun:
            raise LeaseLost(f"Call {call.call_id} is not {before} any more.")
        work.begun.add(call.pk)

    journal.write(store)
    _append_started(journal, work.turn, call)


def gate(calls: Iterable[ToolCall]) -> None:
    """Store that a person must allow these calls; the caller asks for it in the same transaction."""
    ToolCall.objects.filter(pk__in=[call.pk for call in calls]).update(needs_approval=True)


def approve(journal: Journal, call: ToolCall, arguments: Any) -> None:
    """Let a gated call run with these arguments; what the model had asked for is kept when they differ."""
    digest = canonical.digest(arguments)
    edited = digest != call.arguments_digest
    _move_waiting(
        call,
        status=CallStatus.APPROVED,
        arguments=arguments,
        arguments_digest=digest,
        proposed_arguments=call.arguments if edited else None,
    )


def repeat(call: ToolCall) -> None:
    """Let a call in doubt run again: a person took it upon them."""
    _move_waiting(call, status=CallStatus.APPROVED, error=None)


def settle(journal: Journal, call: ToolCall, status: CallStatus, *, result: Any = None, error: Any = None) -> None:
    """Give a call that a person was asked about, and that will not run, its one result."""
    _move_waiting(call, status=status, result=result, error=error, completed_at=journal.now)


def change_gated(call: ToolCall, *, fingerprint: str, arguments: Any) -> None:
    """Renew what a gated call is about after its tool changed."""
    _move_waiting(call, fingerprint=fingerprint, arguments=arguments, arguments_digest=canonical.digest(arguments))


def store_doubt(
    journal: Journal, turn: AgentContext, call: ToolCall, error: dict[str, Any], duration: float | None
) -> None:
    """Store that nobody knows how a call ended; it stays without a result."""
    fields = {"status": CallStatus.UNKNOWN, "error": error, "duration": duration}
    journal.write(lambda: _store_open(call, fields))
    vars(call).update(fields)
    _append_result(journal, turn, call)


def renew(call: ToolCall, *, fingerprint: str, arguments: Any) -> None:
    """Put an approved call, begun or not, whose tool has changed since back to where a person must allow it."""
    call.status, call.fingerprint, call.arguments = CallStatus.PENDING, fingerprint, arguments
    call.arguments_digest = canonical.digest(arguments)
    ToolCall.objects.filter(pk=call.pk, status__in=(CallStatus.APPROVED, CallStatus.EXECUTING)).update(
        status=call.status,
        fingerprint=fingerprint,
        arguments=arguments,
        arguments_digest=call.arguments_digest,
    )


def store_result(
    journal: Journal,
    turn: AgentContext,
    call: ToolCall,
    status: CallStatus,
    *,
    result: Any = None,
    error: dict[str, Any] | None = None,
    duration: float | None = None,
) -> None:
    """Give a call its one result, and tell of it."""
    # The log has told its end already: each beginning has one.
    told = call.is_in_doubt
    fields = {
        "status": status,
        "result": result,
        "error": error,
        "duration": duration,
        "completed_at": journal.now,
    }

    def store() -> None:
        if not _store_open(call, fields):
            raise LeaseLost(f"Call {call.call_id} has its result already.")

    journal.write(store)
    vars(call).update(fields)
    if not told:
        _append_result(journal, turn, call)


def record_late(call: ToolCall, late_result: Any) -> None:
    """Keep what a call returned after it had timed out, unless its turn was emptied; its result stays what it was."""
    late = ToolCall.objects.filter(pk=call.pk)
    late.filter(late_result__isnull=True).update(late_result=late_result)
    # Looked at afterwards: who empties the turn at the same time has either seen it, or is seen here.
    if AgentContext.objects.filter(pk=call.turn_id, erased_at__isnull=False).exists():
        late.update(late_result=None)


def close(journal: Journal, turn: AgentContext, call: ToolCall, error: dict[str, Any]) -> None:
    """Give a call of an ending turn its one result; it says whether the call had begun."""
    begun = call.may_have_happened
    cancelled = error["code"] == "cancelled"
    if begun and not cancelled:
        status, text = CallStatus.UNKNOWN, "It had begun when the turn ended; it may have happened."
    elif begun:
        status, text = CallStatus.CANCELLED, "Cancelled, may have happened."
    else:
        status, text = CallStatus.CANCELLED, "Not run: the turn ended before."
    store_result(
        journal, turn, call, status, error={"code": error["code"], "message": text, "details": {"begun": begun}}
    )


def not_again(text: str) -> str:
    """Return what is told of a call that "was not run", for one that an earlier attempt had begun."""
    return f"{text.replace('was not run', 'was not run again')} An attempt had begun before; it may have happened."


def require_open(call: ToolCall) -> None:
    """Raise LeaseLost for a call that has its result: another worker gave it one."""
    if not call.is_open:
        raise LeaseLost(f"Call {call.call_id} has its result already.")


def _store_open(call: ToolCall, fields: dict[str, Any]) -> int:
    return statements.update(ToolCall, {"pk": call.pk, "completed_at": None}, **fields)


def _move_waiting(call: ToolCall, **fields: Any) -> None:
    waiting = {"pk": call.pk, "status": [CallStatus.PENDING, CallStatus.UNKNOWN], "completed_at": None}
    if not statements.update(ToolCall, waiting, **fields):
        raise Conflict(f"Call {call.call_id} does not wait for a decision any more.")


def _mark_begun(journal: Journal, call: ToolCall) -> None:
    call.status, call.started_at = CallStatus.EXECUTING, journal.now
    call.attempts += 1


def _append_started(journal: Journal, turn: AgentContext, call: ToolCall) -> None:
    journal.append(
        EventType.TOOL_EXECUTION_STARTED,
        execution_id=turn.execution_id,
        call_id=call.call_id,
        tool=call.tool,
        arguments=mask(call.arguments, call.sensitive),
        attempt=call.attempts,
    )


def _append_result(journal: Journal, turn: AgentContext, call: ToolCall) -> None:
    kind = _RESULT_EVENTS.get(CallStatus(call.status))
    if kind is None:
        return
    completed = call.status == CallStatus.COMPLETED
    outcome = {"result": mask(call.result, call.sensitive)} if completed else {"error": call.error}
    journal.append(
        kind,
        execution_id=turn.execution_id,
        call_id=call.call_id,
        tool=call.tool,
        duration=call.duration,
        **outcome,
    )
