"""What every model provider promises, with or without a network."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from agentcore.messages import Message, ModelDelta, ModelReply, ModelRequest
from agentcore.providers.base import ModelProvider
from agentcore.providers.demo import DemoProvider
from tests.contracts.conftest import WIRES
from tests.contracts.local_server import LocalServer
from tests.contracts.requests import CALL, HELLO, KEY, LOOKUP, QUESTION, RESULT, request
from tests.contracts.wire import API, Arguments, Begin, Part, Text, ask


class WholeTextProvider(ModelProvider):
    """Cannot stream: it inherits `stream`."""

    def complete(self, request: ModelRequest) -> ModelReply:
        return DemoProvider().complete(request)


@dataclass
class Subject:
    """A provider under test; `prepare` readies the far side, where there is one, for the next request."""

    provider: ModelProvider
    api: API | None = None

    def prepare(self, *parts: Part, streams: bool, **said: Any) -> None:
        if self.api is not None:
            self.api.will_reply(*parts, streams=streams, **said)

    def ask(self, request: ModelRequest, *, streams: bool) -> tuple[list[str], ModelReply]:
        return ask(self.provider, request, streams=streams)


@pytest.fixture(params=["demo", "whole text", *WIRES])
def subject(request: pytest.FixtureRequest, server: LocalServer) -> Iterator[Subject]:
    if request.param not in WIRES:
        yield Subject(DemoProvider() if request.param == "demo" else WholeTextProvider())
        return
    wire = WIRES[request.param]()
    provider = wire.make(server, api_key=KEY)
    yield Subject(provider, API(wire, server, provider))
    provider.close()


def test_a_text_is_answered_with_text_and_counted(subject, streams):
    subject.prepare(Text("Hello"), Text(", you"), text="Hello, you", streams=streams)
    pieces, reply = subject.ask(request(HELLO, tools=(LOOKUP,)), streams=streams)
    assert reply.content
    assert reply.tool_calls == ()
    assert reply.finish_reason == "stop"
    assert reply.usage.input_tokens > 0
    assert reply.usage.output_tokens > 0
    assert reply.model
    if streams:
        assert "".join(pieces) == reply.content


def test_a_tool_call_has_an_id_a_name_and_the_arguments_as_text(subject, streams):
    subject.prepare(
        Begin(0, "call_1", "lookup_order"),
        Arguments(0, '{"order_id": '),
        Arguments(0, '"12345"}'),
        calls=[("call_1", "lookup_order", {"order_id": "12345"})],
        finish="tool_calls",
        streams=streams,
    )
    pieces, reply = subject.ask(request(QUESTION, tools=(LOOKUP,)), streams=streams)
    assert reply.tool_calls == (CALL,)
    assert reply.content is None
    assert reply.finish_reason == "tool_calls"
    assert pieces == []


def test_a_tool_result_is_answered(subject, streams):
    subject.prepare(Text("It was delivered."), text="It was delivered.", streams=streams)
    asked = (QUESTION, Message(role="assistant", tool_calls=(CALL,)), RESULT)
    _, reply = subject.ask(request(*asked, tools=(LOOKUP,)), streams=streams)
    assert "delivered" in (reply.content or "")


def test_many_threads_may_ask_at_once(subject):
    for _ in range(8):
        subject.prepare(text="Hello", streams=False)
    replies: list[ModelReply] = []
    threads = [threading.Thread(target=lambda: replies.append(subject.provider.complete(request()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(replies) == 8
    assert len({reply.content for reply in replies}) == 1


def test_a_reader_may_stop_in_the_middle_of_a_stream(subject):
    subject.prepare(*[Text("word ")] * 50, streams=True)
    stream = subject.provider.stream(request())
    assert isinstance(next(stream), ModelDelta)
    stream.close()
    subject.prepare(text="Hello", streams=False)
    assert subject.provider.complete(request()).content


def test_closing_twice_is_harmless(subject):
    subject.provider.close()
    subject.provider.close()
