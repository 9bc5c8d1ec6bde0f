"""Take the calls of a step in order: begin each, run it, and settle what nobody knows the end of."""

from __future__ import annotations

import logging
from itertools import zip_longest
from typing import Any

from agentcore.agents.definition import AgentDefinition
from agentcore.approvals import previews
from agentcore.engine import draining, limits, throttling, tool_calls, tool_context
from agentcore.engine.tool_context import WorkingMemory
from agentcore.models import ToolCall
from agentcore.states import CallStatus
from agentcore.tools import execution, schema
from agentcore.tools.definition import ToolDefinition
from agentcore.turns import steps
from agentcore.turns.work import Work

logger = logging.getLogger("agentcore.engine")


def run(work: Work, agent: AgentDefinition, calls: list[ToolCall], *, stop_at_doubt: bool = False) -> None:
    """Run calls one after another, in the model's order.

    With `stop_at_doubt` those after a call in doubt wait until a person has said how that one ended.
    """
    for call, following in zip_longest(calls, calls[1:]):
        limits.require_time(work)
        if draining.lets_go(work) and call.pk not in work.begun:
            steps.give_back(work)
            return
        _run_one(work, agent, call, following)
        if work.ended or _asks_again(call) or (stop_at_doubt and call.is_in_doubt):
            return


def _run_one(work: Work, agent: AgentDefinition, call: ToolCall, following: ToolCall | None) -> None:
    definition = agent.tools.get(call.tool)
    if definition is None:
        _settle_removed(work, call)
    elif call.pk in work.begun:
        _run_begun(work, agent, call, following)
    elif call.status == CallStatus.EXECUTING and not call.idempotent:
        _settle_doubt(work, agent, definition, call)
    elif _may_begin(work, definition, call) and throttling.begin(work, definition, call):
        _run_begun(work, agent, call, following)


def _settle_removed(work: Work, call: ToolCall) -> None:
    """Tell the model that a tool is gone, and whether the call had begun before."""
    tool_calls.record_not_run(work, call, "not_found", f"The tool {call.tool!r} was removed; the call was not run.")


def _run_begun(work: Work, agent: AgentDefinition, call: ToolCall, following: ToolCall | None) -> None:
    tool_calls.run(work, agent, call, begin_next=_next_to_begin(work, agent, following))


def _next_to_begin(work: Work, agent: AgentDefinition, call: ToolCall | None) -> ToolCall | None:
    """Return the following call if nothing is left to be looked at before it begins."""
    if call is None or call.status == CallStatus.EXECUTING or draining.lets_go(work) or not limits.has_time(work):
        return None
    definition = agent.tools.get(call.tool)
    if definition is None or definition.rate or tool_calls.objection(definition, call):
        return None
    return call if not call.needs_approval or tool_calls.is_covered(work, call) else None


def _may_begin(work: Work, definition: ToolDefinition, call: ToolCall) -> bool:
    """Compare a call with what was allowed, right before it begins; settle it when it may not."""
    if call.fingerprint != definition.fingerprint and not _take_change(work, definition, call):
        return False
    if call.needs_approval and not tool_calls.is_covered(work, call):
        logger.error(
            "A call is not what was approved; a person is asked again",
            extra={"execution_id": str(work.turn.execution_id), "call_id": call.call_id},
        )
        _ask_again(work, definition, call)
        return False
    objection = tool_calls.objection(definition, call)
    if objection:
        tool_calls.record_not_run(work, call, "conflict", objection)
    return not objection


def _take_change(work: Work, definition: ToolDefinition, call: ToolCall) -> bool:
    """Fit a call to its tool, which changed since; say whether it may go on without asking a person again."""
    if call.needs_approval and call.status in (CallStatus.APPROVED, CallStatus.EXECUTING):
        _ask_again(work, definition, call)
        return False
    if _fitted(work, definition, call) is None:
        return False
    call.fingerprint = definition.fingerprint
    return True


def _ask_again(work: Work, definition: ToolDefinition, call: ToolCall) -> None:
    """Put a gated call back to where a person must allow it, as it is now."""
    arguments = _fitted(work, definition, call)
    if arguments is not None:
        steps.ask_again(work, call, fingerprint=definition.fingerprint, arguments=arguments)


def _fitted(work: Work, definition: ToolDefinition, call: ToolCall) -> dict[str, Any] | None:
    """Return the call's arguments as its tool takes them now; tell the model, and return None, when it does not."""
    try:
        return schema.validate_arguments(definition, call.arguments)
    except schema.InvalidArguments as problem:
        text = f"The tool changed since this call was made; it was not run. {problem.message}"
        tool_calls.record_not_run(work, call, problem.code, text)
        return None


def _asks_again(call: ToolCall) -> bool:
    return call.status == CallStatus.PENDING


def _settle_doubt(work: Work, agent: AgentDefinition, definition: ToolDefinition, call: ToolCall) -> None:
    """Find out what became of a call that had begun when its worker died: it must not run again by itself."""
    happened = _verify(work, agent, definition, call)
    if happened is True:
        steps.record_result(work, call, CallStatus.COMPLETED, result=VERIFIED)
    elif happened is False:
        if _may_begin(work, definition, call) and throttling.begin(work, definition, call):
            _run_begun(work, agent, call, None)
    else:
        tool_calls.record_doubt(work, definition, call, "Its worker died while it ran; it may have happened.")


VERIFIED = {"verified": True, "note": "The call took effect; what it returned was lost with its worker."}


def _verify(work: Work, agent: AgentDefinition, definition: ToolDefinition, call: ToolCall) -> bool | None:
    """Ask the tool whether the call happened; None when it does not say."""
    ctx = tool_context.make(work, call, memory=WorkingMemory(work))
    try:
        verify = execution.build_verify(definition, agent.agent_class, call.arguments or {}, ctx)
    except schema.InvalidArguments:
        # The tool changed since: it cannot be asked about a call it would not take.
        return None
    if verify is None:
        return None
    outcome = previews.ask(verify)
    answer: Any = outcome.value
    if isinstance(answer, bool):
        return answer
    logger.warning(
        "A tool could not verify whether its call happened",
        exc_info=outcome.error,
        extra={"execution_id": str(work.turn.execution_id), "tool": call.tool},
    )
    return None
