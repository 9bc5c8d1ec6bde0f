"""Decide which calls need a person, and prepare what that person is shown. In doubt, a person is asked."""

from __future__ import annotations

import logging
from typing import Any

from agentcore.agents.definition import AgentDefinition
from agentcore.approvals import policy, previews
from agentcore.approvals.previews import Link
from agentcore.approvals.requests import Question
from agentcore.engine import tool_context
from agentcore.engine.tool_context import WorkingMemory
from agentcore.models import ToolCall
from agentcore.states import ApprovalKind
from agentcore.tools import schema
from agentcore.tools.definition import ApprovalPolicy, ToolDefinition
from agentcore.turns.work import Work

logger = logging.getLogger("agentcore.engine")


def decide(work: Work, agent: AgentDefinition, call: ToolCall) -> str:
    """Set `needs_approval` of a call; return why a person is asked ("" when the definition simply says so)."""
    requirement = known(work, agent, call)
    if requirement is not None:
        call.needs_approval = requirement
        asked = policy.always_asks(work.overrides, call.tool)
        return policy.why_always(work.overrides, call.tool) if asked else ""
    call.needs_approval, reason = _ask_rule(work, agent.tools[call.tool], call)
    return reason


def known(work: Work, agent: AgentDefinition, call: ToolCall) -> bool | None:
    """Say whether the call needs a person, or None when its tool's rule must be asked."""
    if policy.always_asks(work.overrides, call.tool):
        return True
    pinned = policy.pinned_requirement(work.pinned, call.tool)
    return policy.known_requirement(pinned, agent.tools[call.tool])


def question(work: Work, agent: AgentDefinition, call: ToolCall, *, reason: str) -> Question:
    """Return what a person is asked about a call, with the preview its tool writes."""
    definition = agent.tools[call.tool]
    rules = policy.policy_of(definition, work.overrides)
    ctx = tool_context.make(work, call, memory=WorkingMemory(work))
    links = previews.find_links(definition, agent.agent_class, call.arguments or {}, ctx)
    if call.is_in_doubt:
        return _outcome_question(call, rules, links)
    preview = previews.write(definition, agent.agent_class, call.arguments or {}, ctx)
    if call.may_have_happened:
        reason = f"{reason} An attempt at this call had begun before; it may have happened.".strip()
    return Question(call=call, rules=rules, preview=preview, reason=reason, links=links)


def _outcome_question(call: ToolCall, rules: ApprovalPolicy, links: tuple[Link, ...]) -> Question:
    told = (call.error or {}).get("message", "")
    return Question(
        call=call,
        rules=policy.for_outcome(rules),
        links=links,
        preview=f"Attempt {call.attempts} began, and nobody knows how it ended. {told}",
        reason="Find out whether it happened. Approve runs it again, respond gives its result, reject ends the turn.",
        kind=ApprovalKind.OUTCOME,
    )


def _ask_rule(work: Work, definition: ToolDefinition, call: ToolCall) -> tuple[bool, str]:
    rule: Any = definition.requires_approval
    arguments = schema.python_arguments(definition, call.arguments or {})
    ctx = tool_context.make(work, call, memory=WorkingMemory(work))
    outcome = previews.ask(lambda: rule(arguments, ctx))
    if outcome.kind == "completed" and isinstance(outcome.value, bool):
        return outcome.value, "The tool's rule asks for it." if outcome.value else ""
    problem = previews.problem(outcome)
    logger.error(
        "An approval rule failed; a person is asked",
        exc_info=outcome.error,
        extra={"execution_id": str(work.turn.execution_id), "tool": call.tool},
    )
    return True, f"The tool's rule could not decide: it {problem}."
