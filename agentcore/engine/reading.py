"""Read a turn back, in the shape callers get."""

from __future__ import annotations

from typing import Any

from agentcore import clock
from agentcore.engine import citing
from agentcore.engine.results import CallSummary, ExecutionResult, PendingApproval, StepSummary
from agentcore.messages import Usage
from agentcore.models import AgentContext, AgentStep, ToolApproval, ToolCall
from agentcore.states import TurnState
from agentcore.tools.masking import mask
from agentcore.turns.work import Work


def result_of(turn: AgentContext) -> ExecutionResult:
    """Return how a turn stands, with its steps and calls: at most four queries, whatever their number."""
    return _result(turn, steps_of(turn))


def result_in_hand(work: Work) -> ExecutionResult | None:
    """Return how a turn ended that this worker completed, None for others: only what it did not do itself is read."""
    if work.turn.state != TurnState.COMPLETED:
        return None
    steps = tuple(_step(step, calls) for step, calls in work.done) if work.is_first else steps_of(work.turn)
    return _result(work.turn, steps)


def _result(turn: AgentContext, steps: tuple[StepSummary, ...]) -> ExecutionResult:
    return ExecutionResult(
        execution_id=str(turn.execution_id),
        session_id=turn.session.session_id,
        agent=turn.agent.name,
        state=TurnState(turn.state),
        response=turn.response,
        steps=steps,
        error=turn.error,
        pending_approvals=pending_of(turn),
        question=turn.question,
        usage=Usage(input_tokens=turn.input_tokens, output_tokens=turn.output_tokens),
        duration=_duration(turn),
        completed_at=turn.completed_at,
        metadata=turn.metadata,
        citations=citing.citations_of(turn, steps),
    )


def steps_of(turn: AgentContext) -> tuple[StepSummary, ...]:
    """Return the steps of a turn in order, each with its calls; secrets are masked."""
    calls: dict[int, list[ToolCall]] = {}
    for call in ToolCall.objects.filter(turn=turn).order_by("step_id", "position"):
        calls.setdefault(call.step_id, []).append(call)
    return tuple(_step(step, calls.get(step.pk, [])) for step in turn.steps.order_by("number"))


def pending_of(turn: AgentContext) -> tuple[PendingApproval, ...]:
    """Return the requests a turn waits for."""
    if turn.state != TurnState.WAITING_FOR_APPROVAL:
        return ()
    pending = ToolApproval.objects.pending().filter(turn=turn).order_by("id")
    return tuple(PendingApproval(id=item.pk, tool=item.tool, expires_at=item.expires_at) for item in pending)


def _step(step: AgentStep, calls: list[ToolCall]) -> StepSummary:
    return StepSummary(
        number=step.number,
        state=str(step.state),
        action=str(step.action),
        message=_shown_message(step),
        finish_reason=step.finish_reason,
        tool_calls=tuple(_call(call) for call in calls),
        usage=Usage(input_tokens=step.input_tokens, output_tokens=step.output_tokens),
        duration=step.duration,
        error=step.error,
    )


def _shown_message(step: AgentStep) -> dict[str, Any] | None:
    # The calls stand beside it with masked arguments; the raw text would show what they hide.
    if step.message is None:
        return None
    return {"role": "assistant", "content": step.message.get("content")}


def _call(call: ToolCall) -> CallSummary:
    return CallSummary(
        call_id=call.call_id,
        tool=call.tool,
        arguments=mask(call.arguments, call.sensitive),
        status=str(call.status),
        result=mask(call.result, call.sensitive),
        error=call.error,
        attempts=call.attempts,
        late_result=mask(call.late_result, call.sensitive),
    )


def _duration(turn: AgentContext) -> float | None:
    if turn.started_at is None:
        return None
    return ((turn.completed_at or clock.now()) - turn.started_at).total_seconds()
