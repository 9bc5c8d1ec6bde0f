"""Anthropic's messages API as it travels: answers, streams of named events, and errors in its wire format."""

import json
import re
from collections.abc import Iterator
from typing import Any

from agentcore.providers.anthropic import AnthropicProvider
from tests.contracts.local_server import LocalServer
from tests.contracts.wire import Arguments, Begin, Calls, Part, Text

FIT = re.compile(r"[a-zA-Z0-9_-]{1,128}")
MODEL = "test-model-2026"
FINISH = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "refusal": "refusal", "other": "eos"}
# What an error inside a stream is called.
CODES = {"overloaded": "overloaded_error", "rate limited": "rate_limit_error", "bad request": "invalid_request_error"}


class AnthropicWire:
    """Says in Anthropic's words what every model API can say."""

    name = "anthropic"
    path = "/v1/messages"
    key_in_environment = "ANTHROPIC_API_KEY"

    def __init__(self) -> None:
        self._open: int | None = None

    def make(self, server: LocalServer, **entry: Any) -> AnthropicProvider:
        return AnthropicProvider(**{"base_url": server.root, **entry})

    def whole(self, *, text: str | None, calls: Calls, finish: str) -> dict[str, Any]:
        blocks = [] if text is None else [{"type": "text", "text": text, "citations": None}]
        blocks += [{"type": "tool_use", "id": id, "name": name, "input": value} for id, name, value in calls]
        return message(content=blocks, stop_reason=FINISH[finish], usage={"input_tokens": 11, "output_tokens": 7})

    def begin(self) -> Iterator[bytes]:
        self._open = None
        started = message(content=[], stop_reason=None, usage={"input_tokens": 11, "output_tokens": 1})
        yield event("message_start", message=started)
        yield event("ping")

    def part(self, part: Part) -> Iterator[bytes]:
        match part:
            case Text(text=text):
                yield from self._opened(0, {"type": "text", "text": ""})
                yield delta(0, type="text_delta", text=text)
            case Begin(index=index, id=id, name=name):
                yield from self._opened(index + 1, {"type": "tool_use", "id": id, "name": name, "input": {}})
                yield delta(index + 1, type="input_json_delta", partial_json="")
            case Arguments(index=index, text=text):
                yield delta(index + 1, type="input_json_delta", partial_json=text)

    def end(self, finish: str) -> Iterator[bytes]:
        yield from self._closed()
        stop = {"stop_reason": FINISH[finish], "stop_sequence": None}
        yield event("message_delta", delta=stop, usage={"output_tokens": 7})
        yield event("message_stop")

    def refused(self, *pieces: str) -> Iterator[bytes]:
        for text in pieces:
            yield from self.part(Text(text))
        yield from self.end("refusal")

    def broken(self, code: str) -> bytes:
        return event("error", error={"type": CODES[code], "message": "oh"})

    def error(self, message: str, *, code: str | None = None) -> dict[str, Any]:
        return {"type": "error", "error": {"type": code or "some_error", "message": message}, "request_id": "req_1"}

    def too_long(self) -> dict[str, Any]:
        message = "prompt is too long: 208310 tokens > 200000 maximum"
        return self.error(message, code="invalid_request_error")

    def violations(self, body: dict[str, Any]) -> list[str]:
        return violations(body)

    def _opened(self, index: int, block: dict[str, Any]) -> Iterator[bytes]:
        if self._open == index:
            return
        yield from self._closed()
        self._open = index
        yield event("content_block_start", index=index, content_block=block)

    def _closed(self) -> Iterator[bytes]:
        if self._open is not None:
            yield event("content_block_stop", index=self._open)
        self._open = None


def violations(body: dict[str, Any]) -> list[str]:
    """Return what the API would refuse a request for."""
    turns = body["messages"]
    found = [] if body["max_tokens"] >= 1 else ["no max_tokens"]
    if [turn["role"] for turn in turns] != ["user" if index % 2 == 0 else "assistant" for index in range(len(turns))]:
        found.append("user and assistant do not take turns")
    blocks = [block for turn in turns for block in turn["content"]]
    found += ["a text without a letter" for block in blocks if block["type"] == "text" and not block["text"].strip()]
    for block in (block for block in blocks if block["type"] == "tool_use"):
        if not (FIT.fullmatch(block["id"]) and FIT.fullmatch(block["name"]) and isinstance(block["input"], dict)):
            found.append(f"a call that is not fit: {block}")
    for turn, following in zip(turns, [*turns[1:], {"content": []}], strict=True):
        called = [block["id"] for block in turn["content"] if block["type"] == "tool_use"]
        answered = [block["tool_use_id"] for block in following["content"][: len(called)] if "tool_use_id" in block]
        if called != answered:
            found.append(f"{called} are called, and right after it come results of {answered}")
    return found


def message(*, content: list[dict[str, Any]], stop_reason: str | None, usage: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": usage,
    }


def event(type: str, **data: Any) -> bytes:
    return f"event: {type}\ndata: {json.dumps({'type': type, **data})}\n\n".encode()


def delta(index: int, **data: Any) -> bytes:
    return event("content_block_delta", index=index, delta=data)
