"""Begin a call only as often as its tool allows: `@tool(rate_limit=…)`, counted in the transaction that begins it."""

from __future__ import annotations

import math

from agentcore.engine import tool_calls
from agentcore.exceptions import RateLimited
from agentcore.models import ToolCall
from agentcore.resilience.rate_limit import Allowance, Rate
from agentcore.tools.definition import ToolDefinition
from agentcore.turns import steps
from agentcore.turns.work import Work


def begin(work: Work, definition: ToolDefinition, call: ToolCall) -> bool:
    """Record that a call begins; or, past its tool's limit, that it is not run. Say which."""
    allowance = _allowance(work, definition)
    # Another attempt at a call is still that one call.
    if allowance is None or call.may_have_happened:
        steps.begin_call(work, call)
        return True
    try:
        steps.begin_call(work, call, allowed=lambda: allowance.require(f"{call.tool!r}: {allowance.rate}"))
    except RateLimited as refusal:
        wait = math.ceil(refusal.details["retry_after"])
        text = (
            f"Rate limit: {call.tool!r} may be called {allowance.rate} for each user. This call was not run. "
            f"Retry after {wait} seconds."
        )
        tool_calls.record_not_run(work, call, refusal.code, text, retry_after=wait)
        return False
    return True


def _allowance(work: Work, definition: ToolDefinition) -> Allowance | None:
    """Return what a tool allows to the turn's user; turns of nobody have one allowance together.

    It belongs to the function, whatever name it has and whichever agents may call it.
    """
    if definition.rate is None:
        return None
    calls, period = definition.rate
    function = f"{definition.function.__module__}.{definition.function.__qualname__}"
    return Allowance(name=f"tool:{function}:{work.turn.user_key}", rate=Rate(limit=calls, period=period))
