"""What only the Anthropic provider sends and reads: the fields of messages, and the habits of servers like it."""

import json

import pytest

from agentcore.exceptions import (
    ProviderAuthError,
    ProviderBadReply,
    ProviderBadRequest,
    ProviderConnectionError,
    ProviderTimeout,
)
from agentcore.messages import Message, ToolRequest, Usage
from agentcore.providers.anthropic import AnthropicProvider
from tests.contracts.anthropic_server import delta, event, message
from tests.contracts.local_server import frames, whole
from tests.contracts.requests import CALL, HELLO, KEY, LOOKUP, QUESTION, RESULT, request

HI = message(content=[{"type": "text", "text": "Hi"}], stop_reason="end_turn", usage={})


def sent(server, provider, *messages, **values):
    server.will_answer(whole(HI))
    provider.complete(request(*messages, **values))
    return server.requests[-1]


# What is sent


def test_the_least_request_holds_model_bound_and_messages(server, anthropic):
    body = sent(server, anthropic, Message(role="system", content="Be kind."), HELLO)
    assert body == {
        "model": "test-model",
        "max_tokens": 8192,
        "system": "Be kind.",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
    }
    assert server.headers[0]["anthropic-version"]


def test_the_bound_is_the_entrys_or_the_requests(server):
    provider = AnthropicProvider(base_url=server.root, api_key=KEY, max_tokens=1000)
    assert sent(server, provider)["max_tokens"] == 1000
    assert sent(server, provider, max_tokens=50)["max_tokens"] == 50
    provider.close()


def test_options_are_added_to_the_body(server, anthropic):
    body = sent(server, anthropic, temperature=0.5, options={"temperature": 1.0, "tool_choice": {"type": "any"}})
    assert (body["temperature"], body["tool_choice"]) == (1.0, {"type": "any"})


def test_a_tool_is_sent_with_its_schema(server, anthropic):
    body = sent(server, anthropic, tools=(LOOKUP,))
    assert body["tools"] == [
        {"name": "lookup_order", "description": "Look up an order", "input_schema": LOOKUP.parameters}
    ]


def test_instructions_stand_apart_wherever_they_were(server, anthropic):
    asked = (Message(role="system", content="Be kind."), HELLO, Message(role="system", content="Be brief."))
    body = sent(server, anthropic, *asked)
    assert body["system"] == "Be kind.\n\nBe brief."
    assert [item["role"] for item in body["messages"]] == ["user"]


def test_results_are_blocks_of_one_user_message_with_what_the_user_says_next(server, anthropic):
    second = ToolRequest(id="call_2", name="lookup_order", arguments="{not json")
    body = sent(
        server,
        anthropic,
        QUESTION,
        Message(role="assistant", content="One moment.", tool_calls=(CALL, second)),
        RESULT,
        Message(role="tool", content="", tool_call_id="call_2"),
        Message(role="user", content="And?"),
    )
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": QUESTION.content}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "One moment."},
                {"type": "tool_use", "id": "call_1", "name": "lookup_order", "input": {"order_id": "12345"}},
                {"type": "tool_use", "id": "call_2", "name": "lookup_order", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_1", "content": RESULT.content},
                {"type": "tool_result", "tool_use_id": "call_2"},
                {"type": "text", "text": "And?"},
            ],
        },
    ]


def test_messages_of_one_side_in_a_row_are_one(server, anthropic):
    asked = (
        HELLO,
        QUESTION,
        Message(role="assistant", content="One."),
        Message(role="assistant", content="Two."),
        HELLO,
    )
    body = sent(server, anthropic, *asked)
    assert [item["role"] for item in body["messages"]] == ["user", "assistant", "user"]
    assert [block["text"] for block in body["messages"][1]["content"]] == ["One.", "Two."]


@pytest.mark.parametrize("blank", ["", "  \n", None])
def test_a_text_without_a_letter_is_never_sent(server, anthropic, blank):
    asked = (Message(role="user", content=blank), Message(role="assistant", content=blank, tool_calls=(CALL,)), RESULT)
    body = sent(server, anthropic, *asked)
    assert body["messages"][0]["content"] == [{"type": "text", "text": "(no text)"}]
    assert [block["type"] for block in body["messages"][1]["content"]] == ["tool_use"]


@pytest.mark.parametrize(
    ("arguments", "input"),
    [
        ('{"a": [1, 2.5, "x"]}', {"a": [1, 2.5, "x"]}),
        ("", {}),
        ("null", {}),
        ("[1]", {}),
        ('{"cut', {}),
        ('{"n": NaN}', {}),
        ('{"n": 1e999}', {}),
        ('{"q": "\\ud83d"}', {"q": "\ufffd"}),
        ("[" * 100_000, {}),
    ],
)
def test_arguments_are_sent_as_an_object_whatever_the_model_wrote(server, anthropic, arguments, input):
    call = ToolRequest(id="c1", name="f", arguments=arguments)
    results = Message(role="tool", content="x", tool_call_id="c1")
    body = sent(server, anthropic, HELLO, Message(role="assistant", tool_calls=(call,)), results)
    assert body["messages"][1]["content"][0]["input"] == input


def test_ids_of_another_api_are_made_fit_and_stay_different(server, anthropic):
    calls = tuple(ToolRequest(id=id, name="f", arguments="{}") for id in ("a.1", "a:1", "a_1"))
    results = (Message(role="tool", content="x", tool_call_id=call.id) for call in calls)
    body = sent(server, anthropic, HELLO, Message(role="assistant", tool_calls=calls), *results)
    used = [block["id"] for block in body["messages"][1]["content"]]
    assert len(set(used)) == 3
    assert all(id.replace("_", "").isalnum() for id in used)
    assert [block["tool_use_id"] for block in body["messages"][2]["content"]] == used


def test_headers_of_the_environment_are_not_sent_to_another_server(server, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", f"X-Gateway-Key: {KEY}-secret\nX-Team: other")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", f"{KEY}-secret")
    provider = AnthropicProvider(base_url=server.root, default_headers={"X-Team": "support"})
    sent(server, provider)
    provider.close()
    assert "secret" not in str(server.headers)
    assert server.headers[0]["x-team"] == "support"


# What is read


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "tool_calls"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refusal"),
        ("pause_turn", "other"),
        ("new_reason", "other"),
        (None, "other"),
    ],
)
def test_stop_reasons_are_read(server, anthropic, given, read):
    server.will_answer(whole({**HI, "stop_reason": given}))
    assert anthropic.complete(request()).finish_reason == read


def test_a_refusal_without_words_is_told_in_the_apis_words_and_asks_for_nothing(server, anthropic):
    details = {"type": "refusal", "category": "cyber", "explanation": "Not allowed."}
    blocks = [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]
    server.will_answer(whole({**HI, "content": blocks, "stop_reason": "refusal", "stop_details": details}))
    reply = anthropic.complete(request())
    assert (reply.content, reply.tool_calls, reply.finish_reason) == ("Not allowed.", (), "refusal")


def test_a_streamed_refusal_in_the_apis_words(server, anthropic):
    stop = {"stop_reason": "refusal", "stop_details": {"type": "refusal", "explanation": "Not allowed."}}
    server.will_answer(frames(event("message_start", message=HI), event("message_delta", delta=stop)))
    *_, reply = anthropic.stream(request())
    assert (reply.content, reply.finish_reason) == ("Not allowed.", "refusal")


def test_what_came_from_the_prompt_cache_counts_as_input(server, anthropic):
    usage = {"input_tokens": 10, "cache_read_input_tokens": 500, "cache_creation_input_tokens": 20, "output_tokens": 3}
    server.will_answer(whole({**HI, "usage": usage}))
    assert anthropic.complete(request()).usage == Usage(input_tokens=530, output_tokens=3)


def test_usage_that_is_not_told_is_zero(server, anthropic):
    server.will_answer(whole({"content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn"}))
    reply = anthropic.complete(request())
    assert (reply.usage, reply.model) == (Usage(), "")


def test_streamed_usage_is_what_was_told_last(server, anthropic):
    server.will_answer(
        frames(
            event("message_start", message={**HI, "usage": {"input_tokens": 10, "cache_read_input_tokens": 90}}),
            event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 30}),
            event("message_stop"),
        )
    )
    *_, reply = anthropic.stream(request())
    assert reply.usage == Usage(input_tokens=100, output_tokens=30)


def test_blocks_of_other_kinds_are_passed_over(server, anthropic, streams):
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "x"}
    server.will_answer(
        frames(
            event("message_start", message=HI),
            event("content_block_start", index=0, content_block={**thought, "thinking": ""}),
            delta(0, type="thinking_delta", thinking="Hm."),
            delta(0, type="signature_delta", signature="x"),
            event("content_block_start", index=1, content_block={"type": "text", "text": ""}),
            delta(1, type="text_delta", text="Hi"),
            delta(1, type="citations_delta", citation={}),
            event("some_new_event"),
            event("message_delta", delta={"stop_reason": "end_turn"}),
        )
        if streams
        else whole({**HI, "content": [thought, *HI["content"]]})
    )
    reply = list(anthropic.stream(request()))[-1] if streams else anthropic.complete(request())
    assert (reply.content, reply.tool_calls) == ("Hi", ())


def test_calls_that_are_streamed_side_by_side_stay_apart(server, anthropic):
    def begun(index, id):
        return event("content_block_start", index=index, content_block={"type": "tool_use", "id": id, "name": "f"})

    server.will_answer(
        frames(
            event("message_start", message=HI),
            begun(0, "a"),
            begun(1, "b"),
            delta(0, type="input_json_delta", partial_json='{"x":'),
            delta(1, type="input_json_delta", partial_json='{"y":'),
            delta(0, type="input_json_delta", partial_json=" 1}"),
            delta(1, type="input_json_delta", partial_json=" 2}"),
            event("message_delta", delta={"stop_reason": "tool_use"}),
        )
    )
    *_, reply = anthropic.stream(request())
    assert [(call.id, call.arguments) for call in reply.tool_calls] == [("a", '{"x": 1}'), ("b", '{"y": 2}')]


@pytest.mark.parametrize(("input", "arguments"), [({}, "{}"), ({"x": 1}, '{"x": 1}'), ("{cut", "{cut"), (None, "")])
def test_a_call_that_arrives_whole_in_a_stream_is_taken(server, anthropic, input, arguments):
    block = {"type": "tool_use", "id": "a", "name": "f", "input": input}
    server.will_answer(
        frames(
            event("message_start", message=HI),
            event("content_block_start", index=0, content_block=block),
            event("message_delta", delta={"stop_reason": "tool_use"}),
        )
    )
    *_, reply = anthropic.stream(request())
    assert reply.tool_calls == (ToolRequest(id="a", name="f", arguments=arguments),)


# What goes wrong


@pytest.mark.parametrize("data", [{"content": None}, {"content": "Hi"}, {"type": "error", "error": {"message": "x"}}])
def test_an_answer_without_content_is_a_bad_reply(server, anthropic, data):
    server.will_answer(whole(data))
    with pytest.raises(ProviderBadReply):
        anthropic.complete(request())


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("authentication_error", ProviderAuthError),
        ("permission_error", ProviderAuthError),
        ("timeout_error", ProviderTimeout),
        ("request_too_large", ProviderBadRequest),
    ],
)
def test_errors_inside_a_stream_are_known_by_their_names(server, anthropic, name, error):
    server.will_answer(frames(event("error", error={"type": name, "message": "oh"})))
    with pytest.raises(error, match=name):
        list(anthropic.stream(request()))


def test_a_stream_that_stops_without_a_reason_was_cut(server, anthropic):
    server.will_answer(frames(event("message_start", message={**HI, "stop_reason": None}), event("message_stop")))
    with pytest.raises(ProviderConnectionError):
        list(anthropic.stream(request()))


def test_an_error_event_that_is_no_json_is_an_error_all_the_same(server, anthropic):
    server.will_answer(frames(b"event: error\ndata: gone\n\n"))
    with pytest.raises(Exception, match="broke off its stream"):
        list(anthropic.stream(request()))


def test_the_sdk_takes_no_temperature_which_is_why_it_goes_beside(server, anthropic):
    assert json.dumps(sent(server, anthropic, temperature=0.25)["temperature"]) == "0.25"
