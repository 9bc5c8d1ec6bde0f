"""Tell which calls are questions to the user, and put the next one: after all else of the reply is done."""

from __future__ import annotations

from collections.abc import Sequence

from agentcore.agents.definition import AgentDefinition
from agentcore.engine import limits
from agentcore.models import ToolCall
from agentcore.states import CallStatus
from agentcore.turns import questions
from agentcore.turns.work import Work


def is_question(agent: AgentDefinition, call: ToolCall) -> bool:
    """Say whether a call is a question that may be asked now; one that staff want to allow first is not yet."""
    definition = agent.tools.get(call.tool)
    if definition is None or not definition.asks_user:
        return False
    may_begin = call.needs_approval is False and call.status == CallStatus.PENDING
    return may_begin or call.status == CallStatus.APPROVED


def find_next(agent: AgentDefinition, calls: Sequence[ToolCall]) -> ToolCall | None:
    """Return the first question of a reply that has no answer yet."""
    return next((call for call in calls if is_question(agent, call)), None)


def ask(work: Work, call: ToolCall) -> None:
    """Let the turn wait for the user's answer to a question; raise TurnFailure when its time is over."""
    limits.require_time(work)
    questions.ask(work, call, question=str((call.arguments or {}).get("question", "")))
