"""Turn a reply's requests into calls, and run a call: once, with the arguments that were stored."""

from __future__ import annotations

import logging
from typing import Any

from django.db import DatabaseError

from agentcore import canonical, database
from agentcore.agents.definition import AgentDefinition
from agentcore.approvals import allowed
from agentcore.conf import settings
from agentcore.engine import fruitless, limits, tool_context
from agentcore.engine.tool_context import EventInbox, WorkingMemory
from agentcore.exceptions import AgentError, ToolError, TurnCancelled
from agentcore.messages import ModelReply, ToolRequest, ToolSpec
from agentcore.models import ToolCall
from agentcore.states import CallStatus
from agentcore.tools import execution, results, schema
from agentcore.tools.definition import ToolDefinition
from agentcore.turns import calls, steps
from agentcore.turns.work import Work

logger = logging.getLogger("agentcore.engine")

MAX_ERROR = 2_000
# A server may end the connection over a large value; over a small one it has another reason.
LARGE_RESULT = 1_000_000


def specs(work: Work, agent: AgentDefinition) -> tuple[ToolSpec, ...]:
    """Return the tools as the session's revision shows them to the model, without those no longer deployed."""
    return tuple(
        ToolSpec(name=tool["name"], description=tool["description"], parameters=tool["schema"])
        for tool in work.pinned["tools"]
        if tool["name"] in agent.tools
    )


def plan(agent: AgentDefinition, reply: ModelReply) -> list[ToolCall]:
    """Return the rows of a reply's calls, not yet stored; one that cannot run has its error already."""
    return [_planned(agent, reply, request, position) for position, request in enumerate(reply.tool_calls)]


def refuse_all(asked: list[ToolCall], limit: AgentError, text: str) -> None:
    """Give each call of a reply the same result: it is not run."""
    for call in asked:
        if call.status == CallStatus.PENDING:
            _fail(call, limit.code, text)


def refuse_declined(work: Work, asked: list[ToolCall]) -> None:
    """Refuse the calls that a person declined earlier in this turn: nobody is asked the same thing again."""
    for call in asked:
        if call.status == CallStatus.PENDING and (call.tool, call.arguments_digest) in work.declined:
            text = "A person declined this same call before; it was not run, and nobody was asked again."
            _fail(call, "rejected", text)


def run(work: Work, agent: AgentDefinition, call: ToolCall, *, begin_next: ToolCall | None) -> None:
    """Run a begun call, with its retries, and record its one result."""
    definition = agent.tools[call.tool]
    memory = WorkingMemory(work)
    outcome = _attempt(work, agent, definition, call, memory)
    for _ in range(definition.retries if definition.idempotent else 0):
        if outcome.kind == "completed" or not limits.has_time(work):
            break
        steps.begin_call(work, call)
        outcome = _attempt(work, agent, definition, call, memory)
    _record(work, definition, call, outcome, memory, begin_next if limits.has_time(work) else None)


def objection(definition: ToolDefinition, call: ToolCall) -> str:
    """Return why a call must not begin, compared right before it would; "" when nothing stands against it."""
    if call.fingerprint != definition.fingerprint:
        return "The tool changed since this call was made; it was not run. Make the call again."
    if canonical.digest(call.arguments) != call.arguments_digest:
        return "The stored arguments are not those that were checked; the call was not run."
    if not execution.has_room():
        return "Too many calls hang in this worker; the call was not run. Try again later."
    return ""


def is_covered(work: Work, call: ToolCall) -> bool:
    """Say whether people allowed a gated call with just the arguments it has now: what was approved, and each vote."""
    found = allowed.find(call)
    work.approvers[call.pk] = found.by
    return found.covers(call)


def record_doubt(
    work: Work,
    definition: ToolDefinition,
    call: ToolCall,
    text: str,
    *,
    duration: float | None = None,
    begin_next: ToolCall | None = None,
) -> None:
    """Record that nobody knows how a call ended: the model is told, or a person is asked, as the tool says."""
    doubt = error("outcome_unknown", text, asked=definition.on_unknown == "ask")
    # Once the turn's time is over, an answer of a person would come too late for it.
    if definition.on_unknown == "tell" or not limits.has_time(work):
        steps.record_result(work, call, CallStatus.UNKNOWN, error=doubt, duration=duration, begin_next=begin_next)
    else:
        steps.record_doubt(work, call, doubt, duration=duration, begin_next=begin_next)


def record_not_run(work: Work, call: ToolCall, code: str, text: str, **details: Any) -> None:
    """Record that a call is not run, or not again: then nobody knows what its earlier attempt did."""
    if call.may_have_happened:
        doubt = error("outcome_unknown", calls.not_again(text))
        steps.record_result(work, call, CallStatus.UNKNOWN, error=doubt)
    else:
        steps.record_result(work, call, CallStatus.FAILED, error=error(code, text, **details))


def _planned(agent: AgentDefinition, reply: ModelReply, request: ToolRequest, position: int) -> ToolCall:
    call = ToolCall(
        position=position,
        provider_call_id=request.id[:255],
        tool=request.name[:255],
        raw_arguments=request.arguments,
    )
    definition = agent.tools.get(request.name)
    if reply.finish_reason == "length":
        # Also one that can be read: half a text is JSON too, once a server has closed the brackets.
        text = "The reply was cut off by the length limit; this call was not run. Make a shorter one."
        _fail(call, "invalid_input", text, reason=fruitless.CUT)
    elif definition is None:
        known = ", ".join(sorted(agent.tools)) or "none"
        text = f"Unknown tool {request.name[:64]!r}; nothing was run. Available: {known}."
        _fail(call, "not_found", text, reason=fruitless.UNKNOWN_TOOL)
    elif len(request.arguments.encode()) > settings.MAX_ARGUMENT_BYTES:
        limit = settings.MAX_ARGUMENT_BYTES
        call.raw_arguments = "{}"
        _fail(call, "too_large", f"The arguments are over {limit} bytes; the call was not run.")
    else:
        _accept(call, definition, request)
    return call


def _accept(call: ToolCall, definition: ToolDefinition, request: ToolRequest) -> None:
    call.fingerprint, call.idempotent = definition.fingerprint, definition.idempotent
    call.sensitive = list(definition.sensitive)
    try:
        call.arguments = schema.parse_arguments(definition, request.arguments)
    except schema.InvalidArguments as problem:
        cut = {"reason": fruitless.CUT} if problem.is_cut else {}
        _fail(call, problem.code, f"The call was not run. {problem.message}", **problem.details, **cut)
        return
    call.arguments_digest = canonical.digest(call.arguments)


def _fail(call: ToolCall, code: str, message: str, **details: Any) -> None:
    call.status = CallStatus.FAILED
    call.error = error(code, message, **details)


def error(code: str, message: str, **details: Any) -> dict[str, Any]:
    """Return the error of a call, cleaned and bounded."""
    return {"code": code, "message": canonical.clean_text(message)[:MAX_ERROR], "details": canonical.clean(details)}


def _attempt(
    work: Work, agent: AgentDefinition, definition: ToolDefinition, call: ToolCall, memory: WorkingMemory
) -> execution.Outcome:
    inbox = EventInbox(work)
    ctx = tool_context.make(work, call, memory=memory, inbox=inbox)
    function = execution.build_call(definition, agent.agent_class, call.arguments or {}, ctx)
    timeout = min(definition.timeout or settings.TOOL_TIMEOUT, max(work.seconds_left(), 0.0))
    in_caller = database.is_in_test_case()
    with database.given_back():
        # Last of all: whoever was stopped for longer than the lease must not run what another one runs now.
        work.lease.require_current()
        outcome = execution.run_tool(
            function,
            timeout=timeout,
            in_caller=in_caller,
            bell=inbox.bell,
            on_late=lambda late: _keep_late(call, late),
            convert=results.to_json,
        )
    ctx.end()
    inbox.close()
    return outcome


def _keep_late(call: ToolCall, outcome: execution.Outcome) -> None:
    kind = type(outcome.error).__name__
    late = outcome.value if outcome.kind == "completed" else {"error": f"The tool ran and failed ({kind})."}
    calls.record_late(call, "The tool returned nothing." if late is None else late)


def _record(
    work: Work,
    definition: ToolDefinition,
    call: ToolCall,
    outcome: execution.Outcome,
    memory: WorkingMemory,
    begin_next: ToolCall | None,
) -> None:
    if outcome.kind == "timed_out" and not definition.idempotent:
        text = f"The call did not return within {outcome.duration:.1f} seconds; it may have happened."
        record_doubt(work, definition, call, text, duration=outcome.duration, begin_next=begin_next)
        return
    result, problem = _told(work, call, outcome)
    status = CallStatus.COMPLETED if outcome.kind == "completed" else CallStatus.FAILED
    facts: dict[str, Any] = {"duration": outcome.duration, "memory": memory.changes, "begin_next": begin_next}
    try:
        steps.record_result(work, call, status, result=result, error=problem, **facts)
    except TurnCancelled:
        steps.cancel_turn(work, late_result=result if outcome.kind == "completed" else problem)
    except DatabaseError as refusal:
        if result is None or (database.may_pass(refusal) and canonical.byte_size(result) < LARGE_RESULT):
            raise
        # The tool has done its work: a result that the database does not take must not undo that.
        logger.exception("A result could not be stored; a note of it is", extra={"call_id": call.call_id})
        steps.record_result(work, call, status, result=results.omitted(result), error=problem, **facts)


def _told(work: Work, call: ToolCall, outcome: execution.Outcome) -> tuple[Any, dict[str, Any] | None]:
    """Return what is stored of an outcome: a result, or an error in words that hold no secret."""
    if outcome.kind == "completed":
        return outcome.value, None
    if outcome.kind == "timed_out":
        return None, error("timeout", f"The call did not return within {outcome.duration:.1f} seconds.")
    if isinstance(outcome.error, ToolError):
        return None, error("tool_error", str(outcome.error) or "The tool could not do it.")
    kind = type(outcome.error).__name__
    logger.error(
        "A tool failed; the model is told only the kind of error",
        exc_info=outcome.error,
        extra={"execution_id": str(work.turn.execution_id), "tool": call.tool, "call_id": call.call_id},
    )
    return None, error("tool_error", f"The tool ran and failed ({kind}).", kind=kind)
