"""What every model API can say, before it is put into the words of one: parts of a stream, and the API under test."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agentcore.messages import ModelDelta, ModelReply, ModelRequest
from agentcore.providers.base import ModelProvider
from tests.contracts.local_server import Answer, LocalServer, cut_frames, frames, raw, whole


@dataclass(frozen=True)
class Text:
    """A piece of text."""

    text: str


@dataclass(frozen=True)
class Begin:
    """The beginning of a tool call."""

    index: int
    id: str
    name: str


@dataclass(frozen=True)
class Arguments:
    """A piece of a call's arguments."""

    index: int
    text: str


Part = Text | Begin | Arguments
Calls = Sequence[tuple[str, str, dict[str, Any]]]


class Wire(Protocol):
    """One API's format."""

    name: str
    path: str
    key_in_environment: str

    def make(self, server: LocalServer, **entry: Any) -> ModelProvider: ...
    def whole(self, *, text: str | None, calls: Calls, finish: str) -> dict[str, Any]: ...
    def begin(self) -> Iterator[bytes]: ...
    def part(self, part: Part) -> Iterator[bytes]: ...
    def end(self, finish: str) -> Iterator[bytes]: ...
    def refused(self, *pieces: str) -> Iterator[bytes]: ...
    def broken(self, code: str) -> bytes: ...
    def error(self, message: str, *, code: str | None = None) -> dict[str, Any]: ...
    def too_long(self) -> dict[str, Any]: ...
    def violations(self, body: dict[str, Any]) -> list[str]: ...


@dataclass
class API:
    """A provider, the server it talks to, and the format between them."""

    wire: Wire
    server: LocalServer
    provider: ModelProvider

    def will_reply(
        self, *parts: Part, streams: bool, text: str | None = None, calls: Calls = (), finish: str = "stop"
    ) -> None:
        """Prepare the next answer: whole of `text` and `calls`, or in `parts`, which say the same."""
        if streams:
            self.will_send(*self.stream(*parts, finish=finish))
        else:
            self.server.will_answer(whole(self.wire.whole(text=text, calls=calls, finish=finish)))

    def will_send(self, *sent: bytes) -> None:
        self.server.will_answer(frames(*sent))

    def will_break_off(self, *parts: Part) -> None:
        """Prepare a stream whose connection is dropped after these parts."""
        self.server.will_answer(cut_frames(*self.wire.begin(), *self.parts(*parts)))

    def will_fail(self, status: int, message: str = "some words", *, code: str | None = None, **headers: str) -> None:
        self.server.will_answer(self.failure(status, self.wire.error(message, code=code), **headers))

    def failure(self, status: int, error: dict[str, Any], **headers: str) -> Answer:
        return raw(status, json.dumps(error).encode(), **headers)

    def stream(self, *parts: Part, finish: str = "stop") -> list[bytes]:
        return [*self.wire.begin(), *self.parts(*parts), *self.wire.end(finish)]

    def parts(self, *parts: Part) -> list[bytes]:
        return [sent for part in parts for sent in self.wire.part(part)]

    def ask(self, request: ModelRequest, *, streams: bool) -> tuple[list[str], ModelReply]:
        return ask(self.provider, request, streams=streams)


def ask(provider: ModelProvider, request: ModelRequest, *, streams: bool) -> tuple[list[str], ModelReply]:
    """Return the pieces of text that were streamed, and the reply."""
    if not streams:
        return [], provider.complete(request)
    *deltas, reply = provider.stream(request)
    assert isinstance(reply, ModelReply)
    assert all(isinstance(delta, ModelDelta) for delta in deltas)
    return [delta.text for delta in deltas], reply
