"""OpenAI's chat completions as they travel: answers, streams and errors in its wire format."""

import json
import re
from collections.abc import Iterator
from typing import Any

from agentcore.providers.openai import OpenAIProvider
from tests.contracts.local_server import Answer, LocalServer, frames, raw, whole
from tests.contracts.wire import Arguments, Begin, Calls, Part, Text

FIT = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MODEL = "test-model-2026"
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
FINISH = {"stop": "stop", "tool_calls": "tool_calls", "length": "length", "refusal": "stop", "other": "eos"}
# What an error inside a stream is called.
CODES: dict[str, Any] = {"overloaded": "server_error", "rate limited": 429, "bad request": 400}


class OpenAIWire:
    """Says in OpenAI's words what every model API can say."""

    name = "openai"
    path = "/v1/chat/completions"
    key_in_environment = "OPENAI_API_KEY"

    def make(self, server: LocalServer, **entry: Any) -> OpenAIProvider:
        return OpenAIProvider(**{"base_url": server.url, **entry})

    def whole(self, *, text: str | None, calls: Calls, finish: str) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if finish == "refusal":
            message = {"role": "assistant", "content": None, "refusal": text}
        if calls:
            message["tool_calls"] = [call(id, name, json.dumps(arguments)) for id, name, arguments in calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": FINISH[finish]}
        return {"id": "chatcmpl-1", "object": "chat.completion", "model": MODEL, "choices": [choice], "usage": USAGE}

    def begin(self) -> Iterator[bytes]:
        yield frame(piece({"delta": {"role": "assistant", "content": ""}, "finish_reason": None}))

    def part(self, part: Part) -> Iterator[bytes]:
        yield frame(piece({"delta": self._delta(part), "finish_reason": None}))

    def end(self, finish: str) -> Iterator[bytes]:
        yield frame(piece({"delta": {}, "finish_reason": FINISH[finish]}))
        yield frame(piece(None, usage=USAGE))
        yield b"data: [DONE]\n\n"

    def refused(self, *pieces: str) -> Iterator[bytes]:
        for text in pieces:
            yield frame(piece({"delta": {"refusal": text}, "finish_reason": None}))
        yield from self.end("refusal")

    def broken(self, code: str) -> bytes:
        return frame({"error": {"message": "oh", "code": CODES[code]}})

    def error(self, message: str, *, code: str | None = None) -> dict[str, Any]:
        return {"error": {"message": message, "type": "some_error", "param": None, "code": code}}

    def too_long(self) -> dict[str, Any]:
        message = "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens."
        return self.error(message, code="context_length_exceeded")

    def violations(self, body: dict[str, Any]) -> list[str]:
        return violations(body)

    def _delta(self, part: Part) -> dict[str, Any]:
        match part:
            case Text(text=text):
                return {"content": text}
            case Begin(index=index, id=id, name=name):
                return call_piece(index, id=id, name=name, arguments="")
            case Arguments(index=index, text=text):
                return call_piece(index, arguments=text)


def violations(body: dict[str, Any]) -> list[str]:
    """Return what the API would refuse a request for."""
    found, open_calls = [], []
    for sent in body["messages"]:
        if sent["role"] == "tool" and sent["tool_call_id"] in open_calls:
            open_calls.remove(sent["tool_call_id"])
        elif sent["role"] == "tool" or open_calls:
            found.append(f"{sent} comes while results of {open_calls} are missing")
        calls = sent.get("tool_calls", [])
        open_calls += [call["id"] for call in calls]
        found += [f"{name} is no name" for call in calls if not FIT.fullmatch(name := call["function"]["name"])]
        if sent.get("content") is None and not calls:
            found.append(f"{sent} has no content")
    return found + [f"results of {open_calls} are missing"] * bool(open_calls)


def frame(data: Any) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


def text(content: str, **choice: Any) -> Answer:
    return completion({"role": "assistant", "content": content}, **choice)


def calls(*tool_calls: dict[str, Any], content: str | None = None, **choice: Any) -> Answer:
    message = {"role": "assistant", "content": content, "tool_calls": list(tool_calls)}
    return completion(message, **{"finish_reason": "tool_calls", **choice})


def call(id: str | None, name: str, arguments: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def completion(message: dict[str, Any], *, finish_reason: str | None = "stop") -> Answer:
    return whole(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": MODEL,
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}],
            "usage": USAGE,
        }
    )


def failure(status: int, message: str, *, code: str | None = None, **headers: str) -> Answer:
    error = {"error": {"message": message, "type": "some_error", "param": None, "code": code}}
    return raw(status, json.dumps(error).encode(), **headers)


def stream(*deltas: dict[str, Any], finish_reason: str | None = "stop", done: bool = True) -> Answer:
    """Stream one event per delta, then the finish reason, then the usage, as OpenAI does."""
    pieces = [piece({"delta": delta, "finish_reason": None}) for delta in deltas]
    if finish_reason:
        pieces.append(piece({"delta": {}, "finish_reason": finish_reason}))
        pieces.append(piece(None, usage=USAGE))
    return events(*[json.dumps(item) for item in pieces], *(["[DONE]"] if done else []))


def piece(choice: dict[str, Any] | None, **extra: Any) -> dict[str, Any]:
    choices = [] if choice is None else [{"index": 0, **choice}]
    return {"object": "chat.completion.chunk", "model": MODEL, "choices": choices, **extra}


def call_piece(index: int | None, *, id: str | None = None, name: str | None = None, arguments: str) -> dict[str, Any]:
    """One piece of a streamed tool call: only the first of a call has id and name."""
    named = {"id": id, "type": "function"} if id else {}
    function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
    numbered = {} if index is None else {"index": index}
    return {"tool_calls": [{**numbered, **named, "function": function}]}


def events(*data: str) -> Answer:
    """Stream these texts, one event each."""
    return frames(*(f"data: {item}\n\n".encode() for item in data))
