"""Steps: record each once, with what comes of it, before it is acted on. The only writer of their rows.

Verbs open their own transaction and prove the worker's lease in it; rows and what is in memory of them change as
one. Those that take a `journal` work in the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.db.models import F, Model

from agentcore.events import log
from agentcore.events.kinds import EventType
from agentcore.events.log import Journal
from agentcore.exceptions import LeaseLost
from agentcore.messages import Message, ModelReply
from agentcore.models import AgentContext, AgentSession, AgentStep, ToolCall, statements
from agentcore.states import CallStatus, StepAction, StepState, TurnState
from agentcore.turns import calls, hot, lifecycle, remembered, working_memory
from agentcore.turns.work import Work, as_one


def begin(journal: Journal, turn: AgentContext, number: int) -> AgentStep:
    """Begin step `number` of a turn."""
    step = AgentStep(turn=turn, number=number, started_at=journal.now)
    journal.write(lambda: _insert(step, turn))
    journal.append(EventType.STEP_STARTED, execution_id=turn.execution_id, step=number, action=StepAction.THINK)
    return step


@as_one
def record_answer(
    work: Work,
    reply: ModelReply,
    *,
    duration: float,
    session_fields: dict[str, Any] | None = None,
    **turn_fields: Any,
) -> None:
    """Record a reply without calls and end the turn with it; set fields of the session with it."""
    with log.in_one_go(work.turn.session) as journal:
        if session_fields:
            journal.write(lambda: _set(AgentSession, work.lease.session_pk, session_fields))
        _store_last_reply(journal, work, reply, StepState.COMPLETED, duration=duration, action=StepAction.RESPOND)
        lifecycle.complete(
            journal,
            work.turn,
            work.lease,
            response=reply.content or "",
            remember_at=remembered.due_at(work.turn, journal.now),
            **_counted(reply),
            **turn_fields,
        )
    work.ended = True


@as_one
def record_thought(work: Work, reply: ModelReply, *, duration: float) -> None:
    """Record an empty reply and begin another step."""
    with log.in_one_go(work.turn.session) as journal:
        _store_last_reply(journal, work, reply, StepState.COMPLETED, duration=duration, action=StepAction.THINK)
        lifecycle.advance(journal, work.turn, work.lease, TurnState.THINKING, reason="empty", **_counted(reply))
        _begin_next(journal, work)


@as_one
def record_failure(work: Work, reply: ModelReply, *, duration: float, error: dict[str, Any]) -> None:
    """Record a reply that ends the turn badly."""
    with log.in_one_go(work.turn.session) as journal:
        _store_last_reply(
            journal, work, reply, StepState.FAILED, duration=duration, action=StepAction.RESPOND, error=error
        )
        lifecycle.fail(journal, work.turn, work.lease, error=error, **_counted(reply))
    work.ended = True


@as_one
def record_calls(
    work: Work,
    reply: ModelReply,
    asked: Sequence[ToolCall],
    *,
    duration: float,
    begin_first: ToolCall | None = None,
) -> None:
    """Record a reply with its calls, before any of them is acted on; begin one of them at once if asked."""
    with log.in_one_go(work.turn.session) as journal:
        _store_reply(journal, work, reply, duration=duration, action=StepAction.USE_TOOL)
        lifecycle.advance(journal, work.turn, work.lease, TurnState.USING_TOOL, reason="calls", **_counted(reply))
        calls.store(journal, work, asked, begin_first)


@as_one
def record_limit(work: Work, reply: ModelReply, asked: Sequence[ToolCall], *, duration: float, error: Any) -> None:
    """Record the last allowed reply when it asks for calls: none is run, and the turn fails."""
    with log.in_one_go(work.turn.session) as journal:
        _store_reply(journal, work, reply, duration=duration, action=StepAction.USE_TOOL)
        calls.store(journal, work, asked, None)
        _close(journal, work, StepState.FAILED, error=error)
        lifecycle.fail(journal, work.turn, work.lease, error=error, **_counted(reply))
    work.ended = True


@as_one
def begin_call(work: Work, call: ToolCall, *, allowed: Callable[[], None] = lambda: None) -> None:
    """Record an attempt before it starts: whoever finds it later knows that it may have happened.

    `allowed` is asked in the same transaction; what it raises leaves the call as it was.
    """
    with log.in_one_go(work.turn.session) as journal:
        journal.write(allowed)
        lifecycle.advance(journal, work.turn, work.lease, TurnState.USING_TOOL, reason="call")
        calls.begin(journal, work, call)


@as_one
def record_result(
    work: Work,
    call: ToolCall,
    status: CallStatus,
    *,
    result: Any = None,
    error: dict[str, Any] | None = None,
    duration: float | None = None,
    memory: dict[str, Any] | None = None,
    begin_next: ToolCall | None = None,
) -> None:
    """Record the one result of a call, with what it put into working memory.

    When it was the step's last open call, the step ends and the next begins; `begin_next` is begun.
    """
    with log.in_one_go(work.turn.session) as journal:
        calls.require_open(call)
        last = not any(other.is_open for other in work.calls if other.pk != call.pk)
        to = TurnState.THINKING if last else TurnState.USING_TOOL
        calls.store_result(journal, work.turn, call, status, result=result, error=error, duration=duration)
        is_kept_hot = memory and hot.may_keep(call)
        if memory and not is_kept_hot:
            working_memory.save(journal, work.turn, {**work.lease.unsaved, **memory})
        lifecycle.advance(journal, work.turn, work.lease, to, reason="result")
        if begin_next is not None:
            calls.begin(journal, work, begin_next)
        if last:
            _finish(journal, work)
        if memory:
            work.take_memory(memory, is_saved=not is_kept_hot)


@as_one
def record_doubt(
    work: Work, call: ToolCall, error: dict[str, Any], *, duration: float | None = None, begin_next: ToolCall | None
) -> None:
    """Record that nobody knows how a call ended, for a person to say; the call stays without a result."""
    with log.in_one_go(work.turn.session) as journal:
        calls.require_open(call)
        calls.store_doubt(journal, work.turn, call, error, duration)
        lifecycle.advance(journal, work.turn, work.lease, TurnState.USING_TOOL, reason="unknown")
        if begin_next is not None:
            calls.begin(journal, work, begin_next)


@as_one
def ask_again(work: Work, call: ToolCall, *, fingerprint: str, arguments: Any) -> None:
    """Put an approved call whose tool has changed since back to where a person must allow it."""
    with log.writing(work.turn.session) as journal:
        lifecycle.advance(journal, work.turn, work.lease, TurnState.USING_TOOL, reason="tool changed")
        calls.renew(call, fingerprint=fingerprint, arguments=arguments)


@as_one
def give_back(work: Work) -> None:
    """Put the turn back into the queue as it is; another worker goes on with it."""
    with log.writing(work.turn.session) as journal:
        lifecycle.give_back(journal, work.turn, work.lease, reason="given back")
    work.ended = True


@as_one
def postpone(work: Work, *, seconds: float, attempts: int, reason: str) -> None:
    """Put the turn back into the queue, to ask the model again in so many seconds: attempt `attempts` + 1."""
    with log.writing(work.turn.session) as journal:
        AgentStep.objects.filter(pk=work.step.pk, message__isnull=True).update(
            failed_attempts=attempts, waited_seconds=F("waited_seconds") + seconds
        )
        lifecycle.postpone(journal, work.turn, work.lease, seconds=seconds, reason=reason)
    work.ended = True


def count_failures(work: Work, attempts: int) -> None:
    """Store how often the model was asked in vain for the step's reply: a worker that takes over goes on counting."""
    mine = AgentContext.objects.filter(pk=work.turn.pk, lease_token=work.lease.token)
    AgentStep.objects.filter(pk=work.step.pk, message__isnull=True, turn__in=mine).update(failed_attempts=attempts)


@as_one
def finish(work: Work) -> None:
    """End a step whose calls all have their results, and begin the next one."""
    with log.in_one_go(work.turn.session) as journal:
        lifecycle.advance(journal, work.turn, work.lease, TurnState.THINKING, reason="results")
        _finish(journal, work)


@as_one
def fail_turn(work: Work, error: dict[str, Any]) -> None:
    """End the turn in hand with an error; each open call gets its one result."""
    with log.writing(work.turn.session) as journal:
        close_open(journal, work.turn, error)
        lifecycle.fail(journal, work.turn, work.lease, error=error)
    work.ended = True


@as_one
def interrupt_turn(work: Work, error: dict[str, Any]) -> None:
    """End a turn that cannot go on after its worker died."""
    with log.writing(work.turn.session) as journal:
        close_open(journal, work.turn, error)
        lifecycle.interrupt(journal, work.turn, work.lease, error=error)
    work.ended = True


@as_one
def cancel_turn(work: Work, *, late_result: Any = None) -> None:
    """End a turn that was cancelled while this worker had it."""
    with log.writing(work.turn.session) as journal:
        turn = AgentContext.objects.get(pk=work.turn.pk)
        if turn.lease_token != work.lease.token or turn.state != TurnState.CANCELLING:
            raise LeaseLost(f"Turn {turn.execution_id} is {turn.state} under another token.")
        working_memory.save(journal, turn, work.lease.unsaved)
        close_cancelled(journal, turn, late_result=late_result)
    work.ended = True


def close_cancelled(journal: Journal, turn: AgentContext, *, late_result: Any = None, by: str = "") -> None:
    """End a turn as cancelled, and with it its step and open calls."""
    error = {"code": "cancelled", "message": "The turn was cancelled.", "details": {}}
    if late_result is not None:
        ToolCall.objects.filter(turn=turn, status=CallStatus.EXECUTING).update(late_result=late_result)
    close_open(journal, turn, error)
    lifecycle.end(journal, turn, TurnState.CANCELLED, reason="cancelled", error=error, by=by)


def close_open(journal: Journal, turn: AgentContext, error: dict[str, Any]) -> None:
    """Give each open call of an ending turn its one result, and end the step in hand."""
    for call in ToolCall.objects.filter(turn=turn, completed_at=None):
        calls.close(journal, turn, call, error)
    for step in AgentStep.objects.filter(turn=turn, completed_at=None):
        state = StepState.CANCELLED if error["code"] == "cancelled" else StepState.FAILED
        _end_step(journal, turn, step, state, error=error)


def _insert(step: AgentStep, turn: AgentContext) -> None:
    step.turn = turn  # it may have got its key in this same transaction
    statements.insert([step])


def _set(model: type[Model], pk: int, fields: dict[str, Any]) -> None:
    statements.update(model, {"pk": pk}, **fields)


def _counted(reply: ModelReply) -> dict[str, Any]:
    return {
        "step_count": statements.Plus(1),
        "input_tokens": statements.Plus(reply.usage.input_tokens),
        "output_tokens": statements.Plus(reply.usage.output_tokens),
    }


def _store_last_reply(
    journal: Journal,
    work: Work,
    reply: ModelReply,
    state: StepState,
    *,
    duration: float,
    action: StepAction,
    error: dict[str, Any] | None = None,
) -> None:
    """Store a reply with which its step ends."""
    ending = {"state": state, "error": error, "completed_at": journal.now}
    _store_reply(journal, work, reply, duration=duration, action=action, **ending)
    _tell_end(journal, work.turn, work.step, duration)
    work.done.append((work.step, work.calls))


def _store_reply(
    journal: Journal, work: Work, reply: ModelReply, *, duration: float, action: StepAction, **ending: Any
) -> None:
    turn, step = work.turn, work.step
    fields: dict[str, Any] = {
        "message": Message(role="assistant", content=reply.content or None, tool_calls=reply.tool_calls).as_dict(),
        "action": action,
        "finish_reason": reply.finish_reason,
        "state": StepState.USING_TOOL,
        "model": reply.model[:255],
        "duration": duration,
        "input_tokens": reply.usage.input_tokens,
        "output_tokens": reply.usage.output_tokens,
        **ending,
    }
    vars(step).update(fields)
    turn.step_count += 1
    turn.input_tokens += reply.usage.input_tokens
    turn.output_tokens += reply.usage.output_tokens

    def store() -> None:
        if not statements.update(AgentStep, {"pk": step.pk, "message": None}, **fields):
            raise LeaseLost(f"Step {step.number} of turn {turn.execution_id} has its reply already.")

    journal.write(store)
    if reply.content:
        journal.append(
            EventType.MESSAGE,
            execution_id=turn.execution_id,
            message={"role": "assistant", "content": reply.content},
            step=step.number,
        )


def _finish(journal: Journal, work: Work) -> None:
    _close(journal, work, StepState.COMPLETED)
    _begin_next(journal, work)


def _begin_next(journal: Journal, work: Work) -> None:
    work.step = begin(journal, work.turn, work.step.number + 1)
    work.calls = []


def _close(journal: Journal, work: Work, state: StepState, *, error: dict[str, Any] | None = None) -> None:
    _end_step(journal, work.turn, work.step, state, error=error, ended=work.calls)
    work.done.append((work.step, work.calls))


def _end_step(
    journal: Journal,
    turn: AgentContext,
    step: AgentStep,
    state: StepState,
    *,
    error: dict[str, Any] | None = None,
    ended: Sequence[ToolCall] = (),
) -> None:
    spent = (step.duration or 0.0) + sum(call.duration or 0.0 for call in ended)
    fields = {"state": state, "error": error, "duration": spent, "completed_at": journal.now}
    vars(step).update(fields)
    journal.write(lambda: _set(AgentStep, step.pk, fields))
    _tell_end(journal, turn, step, spent)


def _tell_end(journal: Journal, turn: AgentContext, step: AgentStep, spent: float) -> None:
    kind = EventType.STEP_COMPLETED if step.state == StepState.COMPLETED else EventType.STEP_FAILED
    journal.append(
        kind,
        execution_id=turn.execution_id,
        step=step.number,
        action=step.action or StepAction.THINK,
        duration=spent,
        error=step.error,
    )
