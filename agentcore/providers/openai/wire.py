"""The wire format of OpenAI's chat completions: our messages to JSON, their answer to a ModelReply."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agentcore.exceptions import ProviderBadReply
from agentcore.messages import FinishReason, Message, ModelReply, ModelRequest, ToolRequest, ToolSpec, Usage
from agentcore.providers import names

FINISH_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}


def request_body(request: ModelRequest, *, max_tokens_name: str) -> dict[str, Any]:
    """Return the JSON body of `request`; what is not set is left out, for the API's own default.

    `max_tokens_name` is what the server calls the limit: OpenAI's newer models refuse the old name,
    other servers know no other.
    """
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [_message(message) for message in request.messages],
    }
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.max_tokens is not None:
        body[max_tokens_name] = request.max_tokens
    return body


def read_reply(data: Any) -> ModelReply:
    """Return the reply in a decoded answer; raise ProviderBadReply when it holds none."""
    choice = first_choice(data)
    message = choice.get("message") if choice is not None else None
    if choice is None or not isinstance(message, Mapping):
        raise ProviderBadReply("The model API answered without any choice.")
    return make_reply(
        content=read_text(message.get("content")),
        refusal=read_text(message.get("refusal")),
        tool_calls=tuple(read_call(call) for call in _items(message.get("tool_calls"))),
        finish_reason=choice.get("finish_reason"),
        usage=read_usage(data),
        model=str(data.get("model") or ""),
    )


def make_reply(
    *,
    content: str | None,
    refusal: str | None,
    tool_calls: tuple[ToolRequest, ...],
    finish_reason: Any,
    usage: Usage,
    model: str,
) -> ModelReply:
    """Return the reply made of parts as the API named them. What a refused answer asked for is dropped."""
    if refusal:
        return ModelReply(content=refusal, finish_reason="refusal", usage=usage, model=model)
    return ModelReply(
        content=content,
        tool_calls=tool_calls,
        finish_reason=_finish_reason(finish_reason, has_calls=bool(tool_calls)),
        usage=usage,
        model=model,
    )


def first_choice(data: Any) -> Mapping[str, Any] | None:
    """Return the first choice of an answer or of a streamed piece, None when there is none."""
    choices = _items(data.get("choices")) if isinstance(data, Mapping) else []
    return choices[0] if choices else None


def read_usage(data: Mapping[str, Any]) -> Usage:
    """Return the tokens an answer says it used."""
    usage = data.get("usage")
    if not isinstance(usage, Mapping):
        return Usage()
    return Usage(input_tokens=_count(usage.get("prompt_tokens")), output_tokens=_count(usage.get("completion_tokens")))


def read_call(call: Mapping[str, Any]) -> ToolRequest:
    """Return one tool call, its arguments exactly as received; a missing id becomes ""."""
    function = call.get("function")
    if not isinstance(function, Mapping):
        raise ProviderBadReply("The model API answered with a tool call that names no function.")
    return ToolRequest(
        id=str(call.get("id") or ""),
        name=str(function.get("name") or ""),
        arguments=read_arguments(function.get("arguments")),
    )


def read_arguments(value: Any) -> str:
    """Return a call's argument text. Some servers send the object itself: it becomes text again."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value)


def read_text(value: Any) -> str | None:
    """Return an answer's text. Some servers send a list of parts: those that are text are joined."""
    if isinstance(value, list):
        parts = [part.get("text") for part in value if isinstance(part, Mapping)]
        return "".join(part for part in parts if isinstance(part, str))
    return value if isinstance(value, str) else None


def _message(message: Message) -> dict[str, Any]:
    data: dict[str, Any] = {"role": message.role}
    # Several servers refuse an empty or null content beside tool calls.
    if message.content or not message.tool_calls:
        data["content"] = message.content or ""
    if message.tool_calls:
        data["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        data["tool_call_id"] = message.tool_call_id
    return data


def _call(call: ToolRequest) -> dict[str, Any]:
    function = {"name": names.tool_name(call.name), "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _finish_reason(value: Any, *, has_calls: bool) -> FinishReason:
    reason = FINISH_REASONS.get(str(value), "other")
    # Some servers say "stop", or nothing, beside tool calls; a cut or filtered answer stays one.
    return "tool_calls" if has_calls and reason in ("stop", "other") else reason


def _items(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
