"""Tool calls through the response format: what a small local model is told, and how its JSON is read."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from agentcore.exceptions import ProviderConnectionError
from agentcore.messages import Message, ModelDelta, ModelReply, ModelRequest, ToolRequest, ToolSpec
from agentcore.providers.openai import OpenAIProvider
from agentcore.providers.structured import as_text
from agentcore.providers.structured.answer import AnswerText
from agentcore.providers.structured.examples import example_arguments
from agentcore.providers.structured.schema import reply_schema
from tests.contracts.local_server import LocalServer
from tests.contracts.openai_server import OpenAIWire, stream, text
from tests.contracts.requests import CALL, HELLO, KEY, LOOKUP, QUESTION, RESULT, request
from tests.contracts.wire import API

NOW = ToolSpec(name="now", description="Tell the time", parameters={"type": "object", "properties": {}})
PAY = ToolSpec(
    name="pay",
    description="Pay somebody.\nMoney leaves the account.",
    parameters={
        "type": "object",
        "properties": {
            "amount": {"anyOf": [{"type": "number"}, {"type": "string", "pattern": "^\\d+$"}]},
            "to": {"$ref": "#/$defs/Payee"},
            "on": {"type": "string", "format": "date", "description": "The day"},
            "kind": {"enum": ["once", "monthly"], "default": "once"},
        },
        "required": ["amount", "to"],
        "additionalProperties": False,
        "$defs": {"Payee": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}},
    },
)
SYSTEM = Message(role="system", content="You are the help desk.")


@pytest.fixture
def structured(server: LocalServer) -> Iterator[API]:
    wire = OpenAIWire()
    provider = OpenAIProvider(base_url=server.url, api_key=KEY, tool_mode="json_schema")
    yield API(wire, server, provider)
    provider.close()


def asked(*messages: Message) -> ModelRequest:
    return request(*(messages or (QUESTION,)), tools=(LOOKUP, NOW))


def in_pieces(said: str, size: int = 3) -> list[dict[str, str]]:
    return [{"content": said[at : at + size]} for at in range(0, len(said), size)]


def say(api: API, said: str, *, streams: bool, finish: str = "stop") -> tuple[list[str], ModelReply]:
    pieces = stream(*in_pieces(said), finish_reason=finish)
    api.server.will_answer(pieces if streams else text(said, finish_reason=finish))
    return api.ask(asked(), streams=streams)


# What comes back


def test_an_answer_is_its_text(structured, streams):
    pieces, reply = say(structured, '{"answer": "It is \\"here\\", 😀\\nsoon \\ud83d\\ude00"}', streams=streams)
    assert reply.content == 'It is "here", 😀\nsoon 😀'
    assert (reply.tool_calls, reply.finish_reason) == ((), "stop")
    assert reply.usage.input_tokens == 11
    if streams:
        assert "".join(pieces) == reply.content
        assert len(pieces) > 5


def test_a_call_is_a_call_and_none_of_its_json_is_shown(structured, streams):
    said = '{"tool": "lookup_order", "arguments": {"order_id": "12345"}}'
    pieces, reply = say(structured, said, streams=streams)
    assert pieces == []
    (call,) = reply.tool_calls
    assert call == replace(CALL, id=call.id)
    assert call.id
    assert (reply.content, reply.finish_reason) == (None, "tool_calls")


@pytest.mark.parametrize(
    "said", ['{"tool": "now"}', '{ "tool":"now","arguments":null }', '```json\n{"tool": "now"}\n```']
)
def test_a_tool_without_parameters_is_called_with_none(structured, streams, said):
    pieces, reply = say(structured, said, streams=streams)
    assert pieces == []
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("now", "{}")]


def test_each_call_has_an_id_of_its_own(structured):
    ids = {say(structured, '{"tool": "now"}', streams=False)[1].tool_calls[0].id for _ in range(3)}
    assert len(ids) == 3


def test_prv_10_half_a_call_stays_half_and_is_never_shown(structured, streams):
    said = '{"tool": "lookup_order", "arguments": {"order_id": "123'
    pieces, reply = say(structured, said, streams=streams, finish="length")
    assert pieces == []
    assert reply.finish_reason == "length"
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("lookup_order", '{"order_id": "123')]


def test_half_an_answer_is_shown_as_what_there_is(structured, streams):
    pieces, reply = say(structured, '{"answer": "It was deliv', streams=streams, finish="length")
    assert (reply.content, reply.finish_reason) == ("It was deliv", "length")
    if streams:
        assert "".join(pieces) == "It was deliv"


@pytest.mark.parametrize("said", ["Hello, you!", '{"answer": 3}', "[1]", "{}"])
def test_what_is_neither_is_an_answer_as_it_stands(structured, streams, said):
    pieces, reply = say(structured, said, streams=streams)
    assert (reply.content, reply.tool_calls) == (said, ())
    if streams:
        assert pieces == [said]


def test_an_empty_answer_is_none(structured, streams):
    pieces, reply = say(structured, '{"answer": ""}', streams=streams)
    assert (pieces, reply.content, reply.finish_reason) == ([], None, "stop")


def test_a_refusal_stays_one(structured, streams):
    structured.will_reply(text="No.", finish="refusal", streams=False)
    _, reply = structured.ask(asked(), streams=streams)
    assert (reply.content, reply.finish_reason) == ("No.", "refusal")


def test_a_call_that_the_server_understood_by_itself_is_taken(structured):
    structured.will_reply(calls=[("a", "now", {})], finish="tool_calls", streams=False)
    assert structured.ask(asked(), streams=False)[1].tool_calls == (ToolRequest(id="a", name="now", arguments="{}"),)


def test_prv_12_a_stream_cut_in_an_answer_is_an_error_and_no_reply(structured):
    structured.server.will_answer(stream(*in_pieces('{"answer": "The answer is 4'), finish_reason=None, done=False))
    received = []
    with pytest.raises(ProviderConnectionError):
        received.extend(structured.provider.stream(asked()))
    assert "".join(item.text for item in received) == "The answer is 4"


def test_a_reader_may_stop_in_the_middle(structured):
    structured.server.will_answer(stream(*in_pieces(json.dumps({"answer": "word " * 50}))))
    items = structured.provider.stream(asked())
    assert isinstance(next(items), ModelDelta)
    items.close()
    assert say(structured, '{"answer": "Hi"}', streams=False)[1].content == "Hi"


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 100])
@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ('{"answer": "plain"}', "plain"),
        ('\n{\n  "answer" : "a\\\\b\\"c\\/\\t"\n}', 'a\\b"c/\t'),
        ('{"answer": "\\u00e9\\ud83d\\ude00é😀"}', "é😀é😀"),
        ('{"answer": "half \\ud83d done"}', "half \ufffd done"),
        ('{"answer": "line\nbreak"}', "line\nbreak"),
        ('{"tool": "answer"}', ""),
        ('{"tool": "x", "answer": "y"}', ""),
    ],
)
def test_an_answer_is_read_while_it_is_written(written, shown, size):
    answer = AnswerText()
    pieces = [answer.add(written[at : at + size]) for at in range(0, len(written), size)]
    assert "".join(pieces) == shown == answer.shown
    assert "\\" not in shown or any("\\" in piece for piece in pieces)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_an_escape_that_is_none_does_not_hold_up_the_rest(size):
    written = '{"answer": "C:\\users and \\q more"}'
    answer = AnswerText()
    pieces = [answer.add(written[at : at + size]) for at in range(0, len(written), size)]
    assert "".join(pieces) == answer.shown
    assert answer.shown.endswith("more")


# What is asked


def test_the_response_format_is_an_answer_or_one_of_the_calls(structured):
    say(structured, '{"answer": "Hi"}', streams=False)
    (body,) = structured.server.requests
    assert "tools" not in body
    assert body["response_format"]["type"] == "json_schema"
    answer, lookup, now = body["response_format"]["json_schema"]["schema"]["anyOf"]
    assert list(answer["properties"]) == ["answer"]
    assert lookup["properties"]["tool"]["enum"] == ["lookup_order"]
    assert lookup["properties"]["arguments"] == LOOKUP.parameters
    assert now["properties"] == {"tool": {"type": "string", "enum": ["now"]}}
    assert all(form["required"] == list(form["properties"]) for form in (answer, lookup, now))
    assert all(form["additionalProperties"] is False for form in (answer, lookup, now))


def test_a_schema_keeps_what_a_grammar_can_hold_and_its_references():
    schema = reply_schema((PAY, replace(PAY, name="pay_later")))
    arguments = schema["anyOf"][1]["properties"]["arguments"]
    assert arguments["properties"]["amount"] == {"anyOf": [{"type": "number"}, {"type": "string"}]}
    assert arguments["properties"]["on"] == {"type": "string", "description": "The day"}
    assert arguments["properties"]["kind"] == {"enum": ["once", "monthly"]}
    assert arguments["properties"]["to"] == {"$ref": "#/$defs/pay.Payee"}
    assert set(schema["$defs"]) == {"pay.Payee", "pay_later.Payee"}
    assert "$defs" not in arguments


def test_the_system_prompt_describes_tools_and_shows_real_values():
    first, *rest = as_text(request(SYSTEM, QUESTION, tools=(LOOKUP, NOW, PAY))).messages
    assert first.content.startswith("You are the help desk.\n\nReply with one JSON object")
    assert "- pay: Pay somebody. Money leaves the account." in first.content
    assert "on (date, optional): The day" in first.content
    assert 'kind ("once" or "monthly", optional)' in first.content
    assert 'Assistant: {"tool": "lookup_order", "arguments": {"order_id": "48213"}}' in first.content
    assert "User: Please look up an order: order id 77304." in first.content
    assert 'Assistant: {"tool": "now"}' in first.content
    assert rest == [QUESTION]


def test_many_tools_are_shown_once_each():
    tools = tuple(replace(LOOKUP, name=f"lookup_{number}") for number in range(12))
    prompt = as_text(request(HELLO, tools=tools)).messages[0].content
    assert prompt.count('Assistant: {"tool"') == 12


def test_without_a_system_prompt_there_is_one():
    first, second = as_text(request(HELLO, tools=(NOW,))).messages
    assert first.role == "system"
    assert second == HELLO


def test_examples_look_like_real_values():
    assert example_arguments(PAY.parameters) == {"amount": 24.9, "to": {"name": "Kim Berg"}}
    assert example_arguments(PAY.parameters, second=True) == {"amount": 7.5, "to": {"name": "Lena Ortiz"}}
    properties = {
        "customer_email": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "is_urgent": {"type": "boolean"},
        "count": {"type": "integer"},
        "when": {"type": "string", "format": "date"},
        "size": {"enum": ["S", "M"]},
        "colour": {"type": "string", "examples": ["teal"]},
        "deep": {"$ref": "#/$defs/Deep"},
    }
    deep = {"type": "object", "properties": {"deep": {"$ref": "#/$defs/Deep"}}}
    shown = example_arguments({"properties": properties, "$defs": {"Deep": deep}})
    assert shown["customer_email"] == "kim.berg@example.com"
    assert (shown["tags"], shown["is_urgent"], shown["count"], shown["when"]) == (["Tag"], True, 3, "2026-03-14")
    assert (shown["size"], shown["colour"]) == ("S", "teal")
    assert json.dumps(shown["deep"]).count("deep") == 3


def test_calls_and_results_of_earlier_are_told_as_text():
    second = ToolRequest(id="call_2", name="now", arguments="")
    broken = ToolRequest(id="call_3", name="pay", arguments="{cut")
    told = as_text(
        asked(
            QUESTION,
            Message(role="assistant", content="One moment.", tool_calls=(CALL, second)),
            RESULT,
            Message(role="tool", content="12:00", tool_call_id="call_2"),
            Message(role="assistant", content="It was delivered."),
            HELLO,
            Message(role="assistant", tool_calls=(broken,)),
            Message(role="tool", content="no JSON", tool_call_id="call_3"),
            Message(role="user", content="And now?"),
        )
    ).messages[1:]
    assert [(message.role, message.content) for message in told] == [
        ("user", QUESTION.content),
        ("assistant", '{"tool": "lookup_order", "arguments": {"order_id": "12345"}}'),
        ("user", f"Result of lookup_order: {RESULT.content}"),
        ("assistant", '{"tool": "now"}'),
        ("user", "Result of now: 12:00"),
        ("assistant", '{"answer": "It was delivered."}'),
        ("user", "Hello"),
        ("assistant", '{"tool": "pay"}'),
        ("user", "Result of pay: no JSON\n\nAnd now?"),
    ]
    assert not any(message.tool_calls for message in told)


def test_without_tools_nothing_is_asked_but_the_text(structured, streams):
    structured.will_reply(text="Hi", streams=False)
    said = Message(role="assistant", content="It was delivered.")
    _, reply = structured.ask(request(SYSTEM, QUESTION, said, HELLO), streams=streams)
    assert reply.content == "Hi"
    (body,) = structured.server.requests
    assert "response_format" not in body
    assert [message["content"] for message in body["messages"]] == [
        SYSTEM.content,
        QUESTION.content,
        said.content,
        "Hello",
    ]


def test_options_of_the_request_stay(structured):
    structured.server.will_answer(text('{"answer": "Hi"}'))
    structured.provider.complete(replace(asked(), options={"top_p": 0.5}, temperature=0.0))
    (body,) = structured.server.requests
    assert (body["top_p"], body["temperature"]) == (0.5, 0.0)
    assert "response_format" in body
