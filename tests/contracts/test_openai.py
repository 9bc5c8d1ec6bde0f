"""What only the OpenAI provider sends and reads: the fields of chat completions, and the habits of servers like it."""

import pytest

from agentcore.exceptions import ProviderAuthError, ProviderBadReply, ProviderConnectionError, ProviderContextTooLong
from agentcore.messages import Message, ModelDelta, ModelReply, ToolRequest, Usage
from agentcore.providers.openai import OpenAIProvider, wire
from tests.contracts import openai_server as server_side
from tests.contracts.local_server import whole
from tests.contracts.requests import CALL, HELLO, KEY, LOOKUP, QUESTION, RESULT, request


def test_the_least_request_holds_model_and_messages_only(server, openai):
    server.will_answer(server_side.text("Hi"))
    openai.complete(request(Message(role="system", content="Be kind."), HELLO))
    assert server.paths == ["/v1/chat/completions"]
    assert server.requests == [
        {
            "model": "test-model",
            "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}],
        }
    ]
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


def test_what_is_set_is_sent(server, openai):
    server.will_answer(server_side.text("Hi"))
    openai.complete(request(temperature=0.0, max_tokens=50, tools=(LOOKUP,), options={"top_p": 0.5}))
    (body,) = server.requests
    assert body["temperature"] == 0.0
    assert body["max_tokens"] == 50
    assert body["top_p"] == 0.5
    assert body["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "lookup_order",
                "description": "Look up an order",
                "parameters": LOOKUP.parameters,
            },
        }
    ]


def test_tool_calls_and_their_results_are_sent_back(server, openai):
    server.will_answer(server_side.text("Delivered."))
    second = ToolRequest(id="call_2", name="lookup_order", arguments="{not json")
    openai.complete(
        request(
            QUESTION,
            Message(role="assistant", tool_calls=(CALL, second)),
            RESULT,
            Message(role="tool", content="bad arguments", tool_call_id="call_2"),
            Message(role="assistant", content="One moment.", tool_calls=(CALL,)),
            Message(role="tool", content="", tool_call_id="call_1"),
        )
    )
    sent = server.requests[0]["messages"]
    wire_call = {"id": "call_1", "type": "function", "function": {"name": CALL.name, "arguments": CALL.arguments}}
    assert sent[1] == {
        "role": "assistant",
        "tool_calls": [
            wire_call,
            {"id": "call_2", "type": "function", "function": {"name": "lookup_order", "arguments": "{not json"}},
        ],
    }
    assert sent[2] == {"role": "tool", "content": RESULT.content, "tool_call_id": "call_1"}
    assert sent[4] == {"role": "assistant", "content": "One moment.", "tool_calls": [wire_call]}
    assert sent[5] == {"role": "tool", "content": "", "tool_call_id": "call_1"}


def test_a_stream_is_asked_for_with_its_usage(server, openai):
    server.will_answer(server_side.stream({"content": "Hi"}))
    list(openai.stream(request()))
    assert server.requests[0]["stream"] is True
    assert server.requests[0]["stream_options"] == {"include_usage": True}


def test_organization_project_and_headers_are_sent(server):
    provider = OpenAIProvider(
        base_url=server.url,
        api_key=KEY,
        organization="org-1",
        project="proj-1",
        default_headers={"X-Team": "support"},
        default_query={"version": "2"},
    )
    server.will_answer(server_side.text("Hi"))
    provider.complete(request())
    provider.close()
    sent = server.headers[0]
    assert (sent["openai-organization"], sent["openai-project"], sent["x-team"]) == ("org-1", "proj-1", "support")
    assert server.paths == ["/v1/chat/completions?version=2"]


def test_openai_itself_is_told_the_limit_by_its_newer_name():
    body = wire.request_body(request(max_tokens=5), max_tokens_name="max_completion_tokens")
    assert body["max_completion_tokens"] == 5
    assert "max_tokens" not in body


def test_several_calls_keep_their_order_and_raw_arguments(server, openai):
    server.will_answer(
        server_side.calls(
            server_side.call("a", "first", '{ "x":1.0 }'),
            server_side.call("", "second", ""),
            server_side.call(None, "third", '{"cut'),
            server_side.call("a", "fourth", {"sent": "as an object"}),
            content="Let me see.",
        )
    )
    reply = openai.complete(request())
    assert reply.content == "Let me see."
    assert reply.tool_calls == (
        ToolRequest(id="a", name="first", arguments='{ "x":1.0 }'),
        ToolRequest(id="", name="second", arguments=""),
        ToolRequest(id="", name="third", arguments='{"cut'),
        ToolRequest(id="a", name="fourth", arguments='{"sent": "as an object"}'),
    )


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("function_call", "tool_calls"),
        ("eos", "other"),
        (None, "other"),
    ],
)
def test_finish_reasons_are_read(server, openai, given, read):
    server.will_answer(server_side.text("Hello", finish_reason=given))
    assert openai.complete(request()).finish_reason == read


def test_text_in_parts_is_joined(server, openai):
    parts = [{"type": "text", "text": "Hel"}, {"type": "thinking"}, {"type": "text", "text": "lo"}]
    server.will_answer(server_side.completion({"role": "assistant", "content": parts}))
    assert openai.complete(request()).content == "Hello"


def test_usage_that_is_not_told_is_zero(server, openai):
    message = {"role": "assistant", "content": "Hello"}
    server.will_answer(whole({"choices": [{"message": message, "finish_reason": "stop"}]}))
    reply = openai.complete(request())
    assert (reply.usage, reply.model) == (Usage(), "")


def test_streamed_calls_are_put_together_from_their_parts(server, openai):
    server.will_answer(
        server_side.stream(
            {"role": "assistant", "content": None},
            {"content": "Let me "},
            {"content": "see."},
            server_side.call_piece(0, id="a", name="first", arguments=""),
            server_side.call_piece(0, arguments='{"order'),
            server_side.call_piece(1, id="b", name="second", arguments='{"x"'),
            server_side.call_piece(0, arguments='_id": "1"}'),
            server_side.call_piece(1, arguments=": 2}"),
            finish_reason="tool_calls",
        )
    )
    *deltas, reply = openai.stream(request())
    assert deltas == [ModelDelta(text="Let me "), ModelDelta(text="see.")]
    assert reply == ModelReply(
        content="Let me see.",
        tool_calls=(
            ToolRequest(id="a", name="first", arguments='{"order_id": "1"}'),
            ToolRequest(id="b", name="second", arguments='{"x": 2}'),
        ),
        finish_reason="tool_calls",
        usage=Usage(input_tokens=11, output_tokens=7),
        model="test-model-2026",
    )


@pytest.mark.parametrize("index", [0, None])
def test_streamed_calls_of_a_server_that_does_not_number_them_stay_apart(server, openai, index):
    server.will_answer(
        server_side.stream(
            server_side.call_piece(index, id="a", name="first", arguments="{}"),
            server_side.call_piece(index, id="b", name="second", arguments='{"x": '),
            server_side.call_piece(index, arguments="2}"),
        )
    )
    *_, reply = openai.stream(request())
    assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [
        ("a", "first", "{}"),
        ("b", "second", '{"x": 2}'),
    ]


def test_a_used_up_budget_is_no_reason_to_try_again(server, openai):
    server.will_answer(server_side.failure(429, "You exceeded your quota", code="insufficient_quota"))
    with pytest.raises(ProviderAuthError, match="insufficient_quota"):
        openai.complete(request())


@pytest.mark.parametrize(
    "answer",
    [
        whole({"choices": []}),
        whole({"choices": None}),
        whole({"choices": [{"finish_reason": "stop"}]}),
        server_side.calls({"id": "a", "type": "custom"}),
    ],
)
def test_an_answer_that_is_no_reply_is_a_bad_reply(server, openai, answer):
    server.will_answer(answer)
    with pytest.raises(ProviderBadReply):
        openai.complete(request())


@pytest.mark.parametrize("done", [True, False])
def test_a_stream_that_says_it_is_done_without_a_reason_was_cut(server, openai, done):
    server.will_answer(server_side.stream({"content": "The answer is 4"}, finish_reason=None, done=done))
    with pytest.raises(ProviderConnectionError):
        list(openai.stream(request()))


def test_a_conversation_found_too_long_inside_a_stream_is_no_passing_trouble(server, openai):
    server.will_answer(server_side.events('{"error": {"message": "oh", "code": "context_length_exceeded"}}'))
    with pytest.raises(ProviderContextTooLong):
        list(openai.stream(request()))
