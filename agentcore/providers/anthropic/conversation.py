"""Write a conversation as Anthropic wants it: instructions apart, user and assistant in turn, results from the user."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agentcore import canonical
from agentcore.messages import Message, ToolRequest
from agentcore.providers import names

Block = dict[str, Any]

# The API refuses a text without any letter, and a conversation cannot be sent without what its user said.
NO_TEXT = "(no text)"


def instructions(messages: Iterable[Message]) -> str:
    """Return the text of all system messages."""
    return "\n\n".join(message.content for message in messages if message.role == "system" and message.content)


def exchange(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the other messages, those of one side that follow each other as one."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        blocks = list(_blocks(message))
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"].extend(blocks)
        elif blocks:
            turns.append({"role": role, "content": blocks})
    return turns


def _blocks(message: Message) -> Iterator[Block]:
    if message.role == "tool":
        yield _result(message)
        return
    if message.content and message.content.strip():
        yield {"type": "text", "text": message.content}
    elif message.role == "user":
        yield {"type": "text", "text": NO_TEXT}
    for call in message.tool_calls:
        yield _call(call)


def _result(message: Message) -> Block:
    block = {"type": "tool_result", "tool_use_id": names.call_id(message.tool_call_id or "")}
    return {**block, "content": message.content} if message.content else block


def _call(call: ToolRequest) -> Block:
    return {
        "type": "tool_use",
        "id": names.call_id(call.id),
        "name": names.tool_name(call.name),
        "input": _input(call.arguments),
    }


def _input(arguments: str) -> dict[str, Any]:
    """Return the arguments as the object the API demands: {} for what is none, whose result says what was wrong."""
    try:
        value = json.loads(arguments)
        # NaN, infinity and lone surrogates pass Python's parser and cannot be sent.
        return canonical.clean(canonical.normalise(value)) if isinstance(value, dict) else {}
    except (ValueError, RecursionError):
        return {}
