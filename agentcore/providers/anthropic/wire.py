"""The wire format of Anthropic's messages API: our requests to JSON, its answer to a ModelReply."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agentcore.exceptions import ProviderBadReply
from agentcore.messages import FinishReason, ModelReply, ModelRequest, ToolRequest, ToolSpec, Usage
from agentcore.providers.anthropic import conversation

# "pause_turn", as everything unknown, is "other": it interrupts tools that only the API itself can run.
FINISH_REASONS: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
# The part of the input that came from the prompt cache, or went into it, is counted apart.
INPUT_COUNTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def request_body(request: ModelRequest, *, max_tokens: int) -> dict[str, Any]:
    """Return the JSON body of `request`, but for `extra_body`; `max_tokens` is for a request that names none."""
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": max_tokens if request.max_tokens is None else request.max_tokens,
        "messages": conversation.exchange(request.messages),
    }
    if system := conversation.instructions(request.messages):
        body["system"] = system
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    return body


def extra_body(request: ModelRequest) -> dict[str, Any]:
    """Return what of `request` the SDK does not take as an argument: the API knows `temperature`, the SDK does not."""
    temperature = {} if request.temperature is None else {"temperature": request.temperature}
    return {**temperature, **request.options}


def read_reply(data: Any) -> ModelReply:
    """Return the reply in a decoded answer; raise ProviderBadReply when it holds none."""
    blocks = data.get("content") if isinstance(data, Mapping) else None
    if not isinstance(blocks, list):
        raise ProviderBadReply("The model API answered without any content.")
    found = [block for block in blocks if isinstance(block, Mapping)]
    return make_reply(
        text="".join(read_text(block.get("text")) for block in found if block.get("type") == "text"),
        tool_calls=tuple(read_call(block) for block in found if block.get("type") == "tool_use"),
        stop_reason=data.get("stop_reason"),
        stop_details=data.get("stop_details"),
        usage=read_usage(data.get("usage")),
        model=str(data.get("model") or ""),
    )


def make_reply(
    *,
    text: str,
    tool_calls: tuple[ToolRequest, ...],
    stop_reason: Any,
    stop_details: Any,
    usage: Usage,
    model: str,
) -> ModelReply:
    """Return the reply made of parts as the API named them. What a refused answer asked for is dropped."""
    reason = _finish_reason(stop_reason, has_calls=bool(tool_calls))
    is_refused = reason == "refusal"
    if is_refused and not text and isinstance(stop_details, Mapping):
        text = read_text(stop_details.get("explanation"))
    return ModelReply(
        content=text or None,
        tool_calls=() if is_refused else tool_calls,
        finish_reason=reason,
        usage=usage,
        model=model,
    )


def read_call(block: Mapping[str, Any]) -> ToolRequest:
    """Return one tool call; its arguments, which arrive as an object, become text."""
    return ToolRequest(
        id=str(block.get("id") or ""), name=str(block.get("name") or ""), arguments=read_arguments(block.get("input"))
    )


def read_arguments(value: Any) -> str:
    """Return a call's argument text. Some servers send it as text: it stays as it is."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value)


def read_text(value: Any) -> str:
    """Return `value` if it is text, else ""."""
    return value if isinstance(value, str) else ""


def read_usage(usage: Any, *, before: Usage = Usage()) -> Usage:  # noqa: B008  # it is frozen
    """Return the tokens an answer says it used; a part of a stream that leaves some out keeps those from `before`."""
    if not isinstance(usage, Mapping):
        return before
    return Usage(
        input_tokens=max(sum(_count(usage.get(name)) for name in INPUT_COUNTS), before.input_tokens),
        output_tokens=max(_count(usage.get("output_tokens")), before.output_tokens),
    )


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}


def _finish_reason(value: Any, *, has_calls: bool) -> FinishReason:
    reason = FINISH_REASONS.get(str(value), "other")
    # Servers like Anthropic's say "end_turn", or nothing, beside tool calls; a cut answer stays one.
    return "tool_calls" if has_calls and reason in ("stop", "other") else reason


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
