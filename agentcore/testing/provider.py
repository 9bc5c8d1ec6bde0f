"""A model that says what a test tells it to, and checks each request as strictly as the strictest API."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from agentcore.messages import Message, ModelDelta, ModelReply, ModelRequest, ToolRequest, Usage
from agentcore.providers import registry
from agentcore.providers.base import ModelProvider

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

# A piece of a scripted stream: text, a whole delta, something to do first, or what breaks it off.
Piece = str | ModelDelta | Callable[[], object] | BaseException


@dataclass(frozen=True, kw_only=True)
class ScriptedStream:
    """An answer that comes in pieces; made by `stream`. `reply` is None when it breaks off."""

    pieces: tuple[Piece, ...]
    reply: ModelReply | None


Scripted = ModelReply | str | BaseException | ScriptedStream
Script = Sequence[Scripted] | Callable[[ModelRequest], Scripted]


def text(content: str, **fields: Any) -> ModelReply:
    """Return a reply that is an answer."""
    return ModelReply(content=content, finish_reason="stop", usage=Usage(input_tokens=7, output_tokens=3), **fields)


def calls(*requests: tuple[str, dict[str, Any] | str], content: str | None = None, **fields: Any) -> ModelReply:
    """Return a reply that asks for tools: `calls(("pay", {"amount": 10, "to": "acme"}))`.

    Arguments given as text are sent as they are.
    """
    return ModelReply(
        content=content,
        tool_calls=tuple(
            ToolRequest(
                id=f"c{number}",
                name=name,
                arguments=arguments if isinstance(arguments, str) else json.dumps(arguments),
            )
            for number, (name, arguments) in enumerate(requests, start=1)
        ),
        finish_reason="tool_calls",
        usage=Usage(input_tokens=7, output_tokens=3),
        **fields,
    )


def stream(*pieces: Piece, reply: ModelReply | None = None) -> ScriptedStream:
    """Return an answer in pieces: `stream("The answer ", "is 42.")`, or `stream("The", ProviderOverloaded("busy"))`.

    A function among the pieces is called when its turn comes. `reply` is what the stream ends with, an answer of all
    the text if it is not given; a stream with an exception in it ends there.
    """
    broken = any(isinstance(piece, BaseException) for piece in pieces)
    said = "".join(text_of for piece in pieces if (text_of := _text_of(piece)))
    return ScriptedStream(pieces=pieces, reply=None if broken else reply or text(said))


def _text_of(piece: Piece) -> str:
    return piece.text if isinstance(piece, ModelDelta) else piece if isinstance(piece, str) else ""


class ScriptedProvider(ModelProvider):
    """Replays `replies` (texts, ModelReplies, streams, exceptions to raise), or asks a function of the request.

    `requests` holds every request, `call_count` their number. A request that a strict API would refuse
    raises AssertionError, and is told again by `assert_valid`. Past the end of the list it raises.
    """

    def __init__(self, replies: Script = ()) -> None:
        self._replies = replies
        self._lock = threading.Lock()
        self.requests: list[ModelRequest] = []
        self.violations: list[str] = []

    @property
    def call_count(self) -> int:
        return len(self.requests)

    def complete(self, request: ModelRequest) -> ModelReply:
        """Return the next reply of the script."""
        scripted = self._next(request)
        if isinstance(scripted, ScriptedStream):
            *_, last = self._played(scripted)
            scripted = last if isinstance(last, ModelReply) else text("")
        return text(scripted) if isinstance(scripted, str) else scripted

    def stream(self, request: ModelRequest) -> Iterator[ModelDelta | ModelReply]:
        """Yield the next reply of the script, in its pieces if it has some."""
        if type(self).complete is not ScriptedProvider.complete:
            # A subclass that answers in its own way does so however it is asked.
            yield from super().stream(request)
            return
        scripted = self._next(request)
        if isinstance(scripted, ScriptedStream):
            yield from self._played(scripted)
            return
        reply = text(scripted) if isinstance(scripted, str) else scripted
        if reply.content:
            yield ModelDelta(text=reply.content)
        yield reply

    def _next(self, request: ModelRequest) -> ModelReply | str | ScriptedStream:
        with self._lock:
            self.requests.append(request)
            number = len(self.requests)
            found = list(violations(request))
            self.violations.extend(found)
        if found:
            raise AssertionError(f"Request {number} is not valid: {'; '.join(found)}")
        reply = self._reply(request, number)
        if isinstance(reply, BaseException):
            raise reply
        return reply

    @staticmethod
    def _played(scripted: ScriptedStream) -> Iterator[ModelDelta | ModelReply]:
        for piece in scripted.pieces:
            if isinstance(piece, BaseException):
                raise piece
            if isinstance(piece, str | ModelDelta):
                yield piece if isinstance(piece, ModelDelta) else ModelDelta(text=piece)
            else:
                piece()
        if scripted.reply is not None:
            yield scripted.reply

    def assert_valid(self) -> None:
        """Raise AssertionError when a request was not valid."""
        if self.violations:
            raise AssertionError("; ".join(self.violations))

    @contextmanager
    def installed(self, name: str = "scripted") -> Iterator[ScriptedProvider]:
        """Be the provider `name` of this process: agents reach it with the model `name:anything`."""
        with registry.override(name, self):
            yield self

    def _reply(self, request: ModelRequest, number: int) -> Scripted:
        if callable(self._replies):
            return self._replies(request)
        if number > len(self._replies):
            raise AssertionError(f"The script has {len(self._replies)} replies; this is request {number}.")
        return self._replies[number - 1]


def violations(request: ModelRequest) -> Iterator[str]:
    """Yield what a strict API would refuse a request for."""
    messages = list(request.messages)
    if not messages or messages[-1].role not in ("user", "tool"):
        yield "the last message is not a user's or a tool's"
    used: set[str] = set()
    for index, message in enumerate(messages):
        yield from _of_message(index, message)
        if message.tool_calls:
            yield from _of_results(index, message, messages[index + 1 :])
            yield from _of_ids(index, message, used)
        elif message.role == "tool" and not _follows_calls(messages[:index]):
            yield f"message {index} is a result without a call"
    names = [spec.name.lower() for spec in request.tools]
    if len(names) != len(set(names)):
        yield f"tools share a name: {names}"


def _of_message(index: int, message: Message) -> Iterator[str]:
    if message.content is None and not message.tool_calls:
        yield f"message {index} ({message.role}) has null content"
    if message.role == "assistant" and message.content == "" and not message.tool_calls:
        yield f"message {index} is an empty answer"
    if message.role == "tool" and not message.tool_call_id:
        yield f"message {index} is a result without tool_call_id"
    try:
        "".join([message.content or "", *(call.arguments for call in message.tool_calls)]).encode()
    except UnicodeEncodeError:
        yield f"message {index} cannot be encoded"


def _of_results(index: int, message: Message, following: list[Message]) -> Iterator[str]:
    asked = [call.id for call in message.tool_calls]
    if len(asked) != len(set(asked)) or not all(asked):
        yield f"message {index} repeats or leaves out call ids: {asked}"
    answered = []
    for result in following:
        if result.role != "tool":
            break
        answered.append(result.tool_call_id)
    if answered != asked:
        yield f"message {index} asks for {asked}, and right after it come results of {answered}"


def _of_ids(index: int, message: Message, used: set[str]) -> Iterator[str]:
    ids = {call.id for call in message.tool_calls}
    for call in message.tool_calls:
        if not _NAME.fullmatch(call.name):
            yield f"message {index} calls a tool by the name {call.name!r}"
        if not _is_object(call.arguments):
            yield f"message {index} has arguments that are no JSON object"
    if ids & used:
        yield f"message {index} asks with ids that were used before: {sorted(ids & used)}"
    used |= ids


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _follows_calls(before: list[Message]) -> bool:
    for message in reversed(before):
        if message.role != "tool":
            return bool(message.tool_calls)
    return False
