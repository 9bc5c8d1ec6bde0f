"""Retell a step to the model: its reply, and what came of each call, as messages every API accepts.

Each call is followed by exactly one result, in the model's order. What models write into ids, names and arguments
goes back to them only where the strictest API would take it: one odd call must not spoil all later requests.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

from agentcore import canonical
from agentcore.engine import budget, limits
from agentcore.engine.budget import Group
from agentcore.messages import Message, ToolRequest
from agentcore.models import AgentStep, ToolCall
from agentcore.states import CallStatus, StepAction
from agentcore.turns import calls as call_rows

logger = logging.getLogger("agentcore.engine")

WIRE_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")
MAX_NAME = 64


def user_group(content: str) -> Group:
    """Return a user's message as the group it is."""
    return Group((Message(role="user", content=content),), budget.MESSAGE_TOKENS + budget.text_tokens(content))


def answer_group(content: str) -> Group:
    """Return an answer without calls as the group it is."""
    return Group((Message(role="assistant", content=content),), budget.MESSAGE_TOKENS + budget.text_tokens(content))


def step_group(step: AgentStep, calls: Sequence[ToolCall]) -> Group | None:
    """Return a step that has ended, with the results of its calls; None when the model said nothing in it.

    The calls go by our ids: `with_wire_ids` gives them those of the provider.
    """
    content = (step.message or {}).get("content")
    _tell_repairs(step, calls)
    if not calls:
        return answer_group(content) if content else None
    requests = tuple(
        ToolRequest(id=call.call_id, name=_wire_name(call.tool), arguments=_wire_arguments(call)) for call in calls
    )
    told = [result_text(call) for call in calls]
    results = (
        Message(role="tool", content=limits.cut(text), tool_call_id=call.call_id)
        for text, call in zip(told, calls, strict=True)
    )
    reply = Message(role="assistant", content=content, tool_calls=requests)
    return budget.group(reply, *results, lengths=(0, *map(len, told)))


def with_wire_ids(item: Group, calls: Sequence[ToolCall], ids_in_use: set[str]) -> Group:
    """Return a step's group with the provider's ids where they are usable: some send empty, repeated or reused ones.

    To be asked in the order of the conversation, so that a call goes by the same id in each request.
    """
    if not calls:
        return item
    ids = [_wire_id(call, ids_in_use) for call in calls]
    reply, *results = item.messages
    requests = tuple(replace(request, id=id) for request, id in zip(reply.tool_calls, ids, strict=True))
    renamed = [replace(result, tool_call_id=id) for result, id in zip(results, ids, strict=True)]
    return budget.group(replace(reply, tool_calls=requests), *renamed, lengths=item.lengths)


def result_text(call: ToolCall) -> str:
    """Return what the model is told came of a call, at its full length."""
    error = call.error or {}
    match call.status:
        case CallStatus.COMPLETED:
            return _changed_note(call) + _as_text(call.result)
        case CallStatus.REJECTED if error.get("message"):
            return f"{_declined(call)} Their reason: {error['message']}"
        case CallStatus.REJECTED:
            return f"{_declined(call)} Do not make the same call again."
        case CallStatus.UNKNOWN:
            return "Nobody knows how this call ended: it may have happened. Do not simply repeat it."
        case _:
            return _changed_note(call) + str(error.get("message") or "There is no result of this call.")


def _declined(call: ToolCall) -> str:
    text = "A person declined this call; it was not run."
    return call_rows.not_again(text) if call.may_have_happened else text


def _changed_note(call: ToolCall) -> str:
    if call.proposed_arguments is None:
        return ""
    used = canonical.dumps(call.arguments)
    return f"[A person changed this call before allowing it. The arguments used were {used}]\n"


def _as_text(result: Any) -> str:
    return result if isinstance(result, str) else canonical.dumps(result)


def _tell_repairs(step: AgentStep, calls: Sequence[ToolCall]) -> None:
    """Log what the rows lack of a whole step: the request is valid all the same, and the rows stay as they are."""
    # The calls of a refused reply are kept with it and were never taken up.
    asked = len((step.message or {}).get("tool_calls") or ()) if step.action == StepAction.USE_TOOL else len(calls)
    unanswered = sum(call.is_open for call in calls)
    if unanswered or asked != len(calls):
        logger.warning(
            "A step of the history is incomplete; the model is shown what there is",
            extra={"step": step.pk, "calls_missing": asked - len(calls), "results_missing": unanswered},
        )


def _wire_id(call: ToolCall, ids_in_use: set[str]) -> str:
    given = call.provider_call_id
    usable = WIRE_ID.fullmatch(given) is not None and given not in ids_in_use
    chosen: str = given if usable else call.call_id
    ids_in_use.add(chosen)
    return chosen


def _wire_name(name: str) -> str:
    return NOT_IN_A_NAME.sub("_", name)[:MAX_NAME] or "unnamed"


def _wire_arguments(call: ToolCall) -> str:
    """Return the arguments as the model wrote them, or "{}" when they are no JSON object: the result says so."""
    raw: str = call.raw_arguments
    if call.arguments is not None:
        return raw if raw.strip() not in ("", "null") else "{}"
    return raw if _is_object(raw) else "{}"


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text, parse_constant=_refuse), dict)
    except (ValueError, RecursionError):
        return False


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
