"""Tell calls and results of earlier as text: a model that cannot call tools has no roles for them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from agentcore.messages import Message, ToolRequest
from agentcore.providers.structured.schema import ANSWER, ARGUMENTS, TOOL


def as_text(messages: Sequence[Message], *, is_structured: bool) -> tuple[Message, ...]:
    """Return the messages with user and assistant in turn, each call followed by its result as a user's message.

    What the assistant said is written as it would have to say it now: as JSON if `is_structured`.
    """
    results = {message.tool_call_id: message for message in messages if message.role == "tool"}
    told: list[Message] = []
    for message in messages:
        for part in _told(message, results=results, is_structured=is_structured):
            _append(told, part)
    return tuple(told)


def told_result(tool: str, result: str | None) -> str:
    """Return how a result is told to the model."""
    return f"Result of {tool}: {result or 'none'}"


def _told(message: Message, *, results: dict[str | None, Message], is_structured: bool) -> Iterator[Message]:
    if message.role == "tool":
        return  # told beside its call
    if message.role != "assistant":
        yield message
        return
    if message.content and not message.tool_calls:
        content = _json({ANSWER: message.content}) if is_structured else message.content
        yield Message(role="assistant", content=content)
    for call in message.tool_calls:
        yield Message(role="assistant", content=_call(call))
        result = results.get(call.id)
        yield Message(role="user", content=told_result(call.name, result.content if result else None))


def _call(call: ToolRequest) -> str:
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = {}  # the result says what was wrong with them
    return _json({TOOL: call.name, ARGUMENTS: arguments} if arguments else {TOOL: call.name})


def _append(told: list[Message], message: Message) -> None:
    # Several chat templates refuse two messages of one side in a row.
    if told and told[-1].role == message.role == "user":
        message = Message(role="user", content=f"{told.pop().content}\n\n{message.content}")
    told.append(message)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
