"""What each provider of a model API reads, whole and streamed, from a server that speaks its format."""

import json
import threading

import pytest

from agentcore.exceptions import ProviderBadReply
from agentcore.messages import Message, ModelDelta, ModelReply, ToolRequest, Usage
from tests.contracts.local_server import held_frames, raw, whole
from tests.contracts.requests import CALL, HELLO, KEY, LOOKUP, QUESTION, RESULT, request
from tests.contracts.wire import Arguments, Begin, Text


def test_a_reply_holds_text_model_and_usage(api, streams):
    api.will_reply(Text("Hel"), Text("lo"), text="Hello", streams=streams)
    _, reply = api.ask(request(), streams=streams)
    assert reply == ModelReply(
        content="Hello",
        finish_reason="stop",
        usage=Usage(input_tokens=11, output_tokens=7),
        model="test-model-2026",
    )


def test_several_calls_keep_their_order(api, streams):
    api.will_reply(
        Text("Let me "),
        Text("see."),
        Begin(0, "a", "first"),
        Arguments(0, '{"order'),
        Arguments(0, '_id": "1"}'),
        Begin(1, "b", "second"),
        Arguments(1, '{"x": 2, "y'),
        Arguments(1, '": [1.5]}'),
        Begin(2, "c", "first"),
        Arguments(2, "{}"),
        text="Let me see.",
        calls=[("a", "first", {"order_id": "1"}), ("b", "second", {"x": 2, "y": [1.5]}), ("c", "first", {})],
        finish="tool_calls",
        streams=streams,
    )
    pieces, reply = api.ask(request(), streams=streams)
    assert pieces == (["Let me ", "see."] if streams else [])
    assert reply == ModelReply(
        content="Let me see.",
        tool_calls=(
            ToolRequest(id="a", name="first", arguments='{"order_id": "1"}'),
            ToolRequest(id="b", name="second", arguments='{"x": 2, "y": [1.5]}'),
            ToolRequest(id="c", name="first", arguments="{}"),
        ),
        finish_reason="tool_calls",
        usage=Usage(input_tokens=11, output_tokens=7),
        model="test-model-2026",
    )


def test_streamed_arguments_are_the_text_the_model_wrote(api):
    written = ['{ "x":1', '.0, "x":', "2}"]
    api.will_reply(Begin(0, "a", "f"), *(Arguments(0, text) for text in written), finish="tool_calls", streams=True)
    _, reply = api.ask(request(), streams=True)
    assert reply.tool_calls[0].arguments == '{ "x":1.0, "x":2}'


@pytest.mark.parametrize("finish", ["stop", "length", "other"])
def test_finish_reasons_are_read(api, streams, finish):
    api.will_reply(Text("Hello"), text="Hello", finish=finish, streams=streams)
    _, reply = api.ask(request(), streams=streams)
    assert reply.finish_reason == finish


@pytest.mark.parametrize(("given", "read"), [("stop", "tool_calls"), ("other", "tool_calls"), ("length", "length")])
def test_a_call_under_another_finish_reason_is_still_one_unless_it_was_cut(api, streams, given, read):
    api.will_reply(Begin(0, "a", "f"), Arguments(0, "{}"), calls=[("a", "f", {})], finish=given, streams=streams)
    _, reply = api.ask(request(), streams=streams)
    assert reply.finish_reason == read
    assert reply.tool_calls == (ToolRequest(id="a", name="f", arguments="{}"),)


def test_prv_10_half_a_call_stays_half_and_is_marked(api):
    half = (Begin(0, "a", "write"), Arguments(0, '{"path": "/a", "text": "ha'))
    api.will_reply(*half, finish="length", streams=True)
    _, reply = api.ask(request(), streams=True)
    assert reply.finish_reason == "length"
    assert reply.tool_calls[0].arguments == '{"path": "/a", "text": "ha'


def test_a_refusal_is_its_own_finish_reason(api, streams):
    if streams:
        api.will_send(*api.wire.begin(), *api.wire.refused("I cannot help ", "with that."))
    else:
        api.will_reply(text="I cannot help with that.", finish="refusal", streams=False)
    _, reply = api.ask(request(), streams=streams)
    assert (reply.finish_reason, reply.content) == ("refusal", "I cannot help with that.")
    assert reply.tool_calls == ()


def test_text_arrives_before_the_stream_ends(api):
    go_on = threading.Event()
    first, second = api.wire.part(Text("first")), api.wire.part(Text(" second"))
    begun = [*api.wire.begin(), *first]
    api.server.will_answer(held_frames(begun, [*second, *api.wire.end("stop")], until=go_on))
    stream = api.provider.stream(request())
    assert next(stream) == ModelDelta(text="first")
    go_on.set()
    *_, reply = stream
    assert reply.content == "first second"


def test_a_server_that_cannot_stream_is_read_as_a_whole(api):
    api.will_reply(text="Hello", streams=False)
    delta, reply = api.provider.stream(request())
    assert delta == ModelDelta(text="Hello")
    assert reply.content == "Hello"


# PRV-23


def test_prv_23_an_emoji_split_over_two_pieces_is_one(api):
    api.will_reply(Text("Done \ud83d"), Text("\ude00!"), streams=True)
    pieces, reply = api.ask(request(), streams=True)
    assert reply.content == "Done 😀!"
    assert pieces == ["Done ", "😀!"]


def test_prv_23_an_emoji_whose_bytes_arrive_apart_is_one(api):
    sent = b"".join(api.stream(Text("Done 😀!"))).replace(b"\\ud83d\\ude00", "😀".encode())
    at = sent.index("😀".encode())
    api.will_send(sent[: at + 2], sent[at + 2 :])
    pieces, reply = api.ask(request(), streams=True)
    assert reply.content == "Done 😀!"
    assert pieces == ["Done 😀!"]


def test_prv_23_an_emoji_split_in_arguments_is_one(api):
    parts = (Begin(0, "a", "say"), Arguments(0, '{"q": "\ud83d'), Arguments(0, '\ude00"}'))
    api.will_reply(*parts, finish="tool_calls", streams=True)
    _, reply = api.ask(request(), streams=True)
    assert json.loads(reply.tool_calls[0].arguments) == {"q": "😀"}


@pytest.mark.parametrize("pieces", [["a\ud83d", "b"], ["\ude00", "x"], ["x", "\ud83d"], ["\ud83d", "\ud83d"], ["\x00"]])
def test_prv_23_what_cannot_be_stored_is_never_shown(api, pieces):
    api.will_reply(*(Text(piece) for piece in pieces), streams=True)
    shown, reply = api.ask(request(), streams=True)
    assert "".join(shown) == reply.content
    assert "\ufffd" in reply.content
    "".join(shown).encode()


def test_prv_23_a_lone_surrogate_in_the_history_is_sent_as_something_that_can_be(api):
    call = ToolRequest(id="c1", name="say", arguments='{"q": "\\ud83d", "n": 1e999}')
    api.will_reply(text="Hello", streams=False)
    asked = (HELLO, Message(role="assistant", tool_calls=(call,)), Message(role="tool", content="x", tool_call_id="c1"))
    assert api.ask(request(*asked), streams=False)[1].content == "Hello"


# What is no reply


@pytest.mark.parametrize(
    "answer",
    [
        raw(200, b"<html>Bad gateway</html>", content_type="text/html"),
        raw(200, b'{"choices": [{"content": ['),
        raw(200, b"\xff\xfe"),
        raw(200, b""),
        whole([]),
        whole("words"),
        whole({"error": {"message": "no credit", "code": 402}}),
    ],
)
def test_an_answer_that_is_no_reply_is_a_bad_reply(api, answer):
    api.server.will_answer(answer)
    with pytest.raises(ProviderBadReply):
        api.provider.complete(request())


@pytest.mark.parametrize("sent", [b"event: message_start\ndata: {nonsense\n\n", b"event: message_start\ndata: [1]\n\n"])
def test_a_stream_of_garbage_is_a_bad_reply(api, sent):
    api.will_send(sent)
    with pytest.raises(ProviderBadReply):
        list(api.provider.stream(request()))


# What is sent


def test_the_request_goes_to_the_apis_path_with_the_key(api):
    api.will_reply(text="Hi", streams=False)
    api.provider.complete(request())
    assert api.server.paths == [api.wire.path]
    assert KEY in api.server.headers[0]["authorization"]
    assert api.server.requests[0]["model"] == "test-model"


def test_what_is_set_is_sent(api):
    api.will_reply(text="Hi", streams=False)
    api.provider.complete(request(temperature=0.0, max_tokens=50, tools=(LOOKUP,), options={"top_p": 0.5}))
    (body,) = api.server.requests
    assert (body["temperature"], body["max_tokens"], body["top_p"]) == (0.0, 50, 0.5)
    assert len(body["tools"]) == 1


def test_what_is_not_set_is_left_to_the_model(api):
    api.will_reply(text="Hi", streams=False)
    api.provider.complete(request())
    assert not {"temperature", "tools", "stream", "top_p"} & set(api.server.requests[0])


def test_a_stream_is_asked_for(api):
    api.will_reply(Text("Hi"), streams=True)
    list(api.provider.stream(request()))
    assert api.server.requests[0]["stream"] is True


def test_a_tool_that_a_model_invented_does_not_spoil_the_next_request(api):
    invented = ToolRequest(id="c1", name="functions.look up!", arguments="{}")
    nameless = ToolRequest(id="c2", name="", arguments="{}")
    results = (Message(role="tool", content="no such tool", tool_call_id=id) for id in ("c1", "c2"))
    api.will_reply(text="Hi", streams=False)
    api.provider.complete(request(QUESTION, Message(role="assistant", tool_calls=(invented, nameless)), *results))
    sent = json.dumps(api.server.requests[0])
    assert '"functions_look_up_"' in sent
    assert '"unnamed"' in sent


def test_headers_and_query_of_the_entry_are_sent(api):
    provider = api.wire.make(
        api.server, api_key=KEY, default_headers={"X-Team": "support"}, default_query={"version": "2"}
    )
    api.will_reply(text="Hi", streams=False)
    provider.complete(request())
    provider.close()
    assert api.server.headers[0]["x-team"] == "support"
    assert api.server.paths == [f"{api.wire.path}?version=2"]


def test_a_call_and_its_result_are_sent_back(api):
    api.will_reply(text="Delivered.", streams=False)
    api.provider.complete(request(QUESTION, Message(role="assistant", tool_calls=(CALL,)), RESULT))
    sent = api.server.requests[0]["messages"]
    assert [message["role"] for message in sent][:2] == ["user", "assistant"]
    assert json.dumps(sent).count("call_1") == 2
    assert "delivered" in json.dumps(sent[2])
