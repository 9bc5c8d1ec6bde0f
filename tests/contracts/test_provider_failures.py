"""What each provider of a model API makes of errors, cut streams and servers that take for ever."""

import re
import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from agentcore.exceptions import (
    ConfigurationError,
    ProviderAuthError,
    ProviderBadRequest,
    ProviderConnectionError,
    ProviderContextTooLong,
    ProviderError,
    ProviderOverloaded,
    ProviderRateLimited,
    ProviderTimeout,
)
from agentcore.messages import ModelReply
from tests.contracts import local_server
from tests.contracts.requests import KEY, request
from tests.contracts.wire import Arguments, Begin, Text, ask


@pytest.mark.parametrize(
    ("status", "error", "retryable"),
    [
        (400, ProviderBadRequest, False),
        (404, ProviderBadRequest, False),
        (413, ProviderBadRequest, False),
        (422, ProviderBadRequest, False),
        (401, ProviderAuthError, False),
        (403, ProviderAuthError, False),
        (408, ProviderTimeout, True),
        (409, ProviderOverloaded, True),
        (429, ProviderRateLimited, True),
        (500, ProviderOverloaded, True),
        (503, ProviderOverloaded, True),
        (529, ProviderOverloaded, True),
    ],
)
def test_prv_14_a_bad_status_is_the_error_for_it_after_one_attempt(api, streams, status, error, retryable):
    api.will_fail(status)
    with pytest.raises(ProviderError) as raised:
        api.ask(request(), streams=streams)
    assert type(raised.value) is error
    assert raised.value.retryable is retryable
    assert str(status) in raised.value.message
    assert len(api.server.requests) == 1


def test_prv_14_a_conversation_that_is_too_long_is_an_error_of_its_own(api, streams):
    api.server.will_answer(api.failure(400, api.wire.too_long()))
    with pytest.raises(ProviderContextTooLong) as raised:
        api.ask(request(), streams=streams)
    assert raised.value.retryable is False
    assert len(api.server.requests) == 1


@pytest.mark.parametrize(
    "words",
    [
        "the request exceeds the available context size, try increasing it",
        "Input length 9000 exceeds the maximum context length 8192",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
    ],
)
def test_servers_say_in_many_ways_that_it_is_too_long(api, words):
    api.will_fail(400, words)
    with pytest.raises(ProviderContextTooLong, match=re.escape(words[:20])):
        api.provider.complete(request())


def test_a_bad_request_says_why(api):
    api.will_fail(400, "tools.0: no such field.", code="invalid_request_error")
    with pytest.raises(ProviderBadRequest) as raised:
        api.provider.complete(request())
    assert raised.value.message == "The model API answered 400 (invalid_request_error): tools.0: no such field."


def test_an_error_that_is_no_json_is_read_all_the_same(api, streams):
    api.server.will_answer(local_server.raw(503, b"<html>upstream</html>", content_type="text/html", Retry_After="3"))
    with pytest.raises(ProviderOverloaded) as raised:
        api.ask(request(), streams=streams)
    assert raised.value.retry_after == 3


# PRV-13: how long to wait


def in_seconds(seconds: int) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


YEAR = 366 * 86_400


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [
        ("20", 20, 20),
        ("0.5", 0.5, 0.5),
        ("86400", 86_400, 86_400),
        ("-3", 0, 0),
        (in_seconds(86_400), 86_000, 86_401),
        (in_seconds(-86_400), 0, 0),
        ("1e30", YEAR, YEAR),
        ("9" * 40, YEAR, YEAR),
        ("Fri, 31 Dec 9999 23:59:59 GMT", YEAR, YEAR),
    ],
    ids=["seconds", "part of one", "a day", "negative", "date", "past date", "huge", "many digits", "far date"],
)
@pytest.mark.parametrize("status", [429, 503, 529])
def test_prv_13_retry_after_is_read_in_seconds_and_as_a_date(api, status, header, least, most):
    api.will_fail(status, "slow down", Retry_After=header)
    with pytest.raises(ProviderError) as raised:
        api.provider.complete(request())
    assert least <= raised.value.retry_after <= most


@pytest.mark.parametrize(
    "header",
    ["soon", "", "nan", "inf", "1e999", "Wed, 99 Foo 2099 07:28:00 GMT", f"Wed, 01 Jan {'9' * 30} 00:00:00 GMT"],
)
def test_prv_13_a_retry_after_that_cannot_be_read_is_none(api, header):
    api.will_fail(429, "slow down", Retry_After=header)
    with pytest.raises(ProviderRateLimited) as raised:
        api.provider.complete(request())
    assert raised.value.retry_after is None


def test_prv_13_retry_after_in_milliseconds_is_the_more_exact(api):
    api.will_fail(429, "slow down", Retry_After="1", retry_after_ms="250")
    with pytest.raises(ProviderRateLimited) as raised:
        api.provider.complete(request())
    assert raised.value.retry_after == 0.25


# PRV-12: streams that end early


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (Text("The answer is 4"),),
        (Begin(0, "a", "pay"), Arguments(0, '{"amount": 1')),
        (Text("Let me see."), Begin(0, "a", "pay"), Arguments(0, '{"amount": 1}')),
    ],
    ids=["at once", "in text", "in arguments", "after arguments"],
)
@pytest.mark.parametrize("is_dropped", [True, False], ids=["dropped", "ended without a reason"])
def test_prv_12_a_cut_stream_is_a_connection_error_and_no_reply(api, parts, is_dropped):
    if is_dropped:
        api.will_break_off(*parts)
    else:
        api.will_send(*api.wire.begin(), *api.parts(*parts))
    received = []
    with pytest.raises(ProviderConnectionError) as raised:
        received.extend(api.provider.stream(request()))
    assert raised.value.retryable
    assert not any(isinstance(item, ModelReply) for item in received)


@pytest.mark.parametrize(
    ("code", "error"),
    [("rate limited", ProviderRateLimited), ("bad request", ProviderBadRequest), ("overloaded", ProviderOverloaded)],
)
def test_an_error_inside_a_stream_is_the_error_its_code_says(api, code, error):
    api.will_send(*api.wire.begin(), *api.parts(Text("The answer")), api.wire.broken(code))
    received = []
    with pytest.raises(error):
        received.extend(api.provider.stream(request()))
    assert [item.text for item in received] == ["The answer"]


# PRV-16: servers that take for ever


@pytest.mark.parametrize(
    "answer",
    [local_server.silence, local_server.trickle, local_server.trickled_headers, None],
    ids=["silence", "a byte now and then", "headers now and then", "a word now and then"],
)
def test_prv_16_a_request_ends_at_its_timeout_whatever_the_server_does(api, streams, answer):
    (word,) = api.parts(Text("word "))[-1:]
    api.server.will_answer(answer or local_server.trickled_frames(word))
    began = datetime.now(UTC)
    with pytest.raises(ProviderTimeout):
        api.ask(request(timeout=0.3), streams=streams)
    assert datetime.now(UTC) - began < timedelta(seconds=10)


def test_prv_16_the_entrys_own_timeout_is_the_shorter_bound(api):
    provider = api.wire.make(api.server, api_key=KEY, timeout=0.2)
    api.server.will_answer(local_server.silence)
    with pytest.raises(ProviderTimeout):
        provider.complete(request(timeout=60))
    provider.close()


@pytest.mark.parametrize(
    "entry", [{"timeout": 0}, {"timeout": "60"}, {"connect_timeout": -1}, {"connect_timeout": None}]
)
def test_a_bound_that_is_none_is_a_mistake(api, entry):
    with pytest.raises(ConfigurationError, match="timeout must be seconds, a number above 0"):
        api.wire.make(api.server, **entry)


# Connections


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_refused_connection_is_a_connection_error(api, streams):
    provider = api.wire.make(api.server, base_url=f"http://127.0.0.1:{unused_port()}/v1", api_key=KEY)
    with pytest.raises(ProviderConnectionError):
        ask(provider, request(), streams=streams)
    provider.close()


def test_a_dropped_connection_is_a_connection_error(api, streams):
    api.server.will_answer(local_server.dropped())
    with pytest.raises(ProviderConnectionError):
        api.ask(request(), streams=streams)
    assert len(api.server.requests) == 1


# Secrets


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500])
def test_no_error_repeats_the_key(api, status):
    echo = f"Incorrect key provided: {KEY}, sk-other-12345678, Authorization: Bearer {KEY}"
    api.will_fail(status, echo, code=KEY)
    with pytest.raises(ProviderError) as raised:
        api.provider.complete(request())
    shown = f"{raised.value} {raised.value.__cause__}"
    assert KEY not in shown
    assert "sk-other" not in shown


def test_a_key_of_any_form_is_masked(api):
    key = "4711-unlike-any-other"
    provider = api.wire.make(api.server, api_key=key)
    api.will_fail(400, f"no such field for {key}")
    with pytest.raises(ProviderBadRequest, match=r"\*{8}") as raised:
        provider.complete(request())
    provider.close()
    assert key not in raised.value.message


def test_a_connection_error_names_the_host_without_its_password(api):
    provider = api.wire.make(api.server, base_url=f"http://user:hidden@127.0.0.1:{unused_port()}/v1", api_key=KEY)
    with pytest.raises(ProviderConnectionError, match=re.escape("127.0.0.1:")) as raised:
        provider.complete(request())
    provider.close()
    assert "hidden" not in raised.value.message


def test_the_key_in_the_environment_is_not_sent_to_another_server(api, monkeypatch):
    monkeypatch.setenv(api.wire.key_in_environment, KEY)
    provider = api.wire.make(api.server)
    api.will_reply(text="Hi", streams=False)
    provider.complete(request())
    provider.close()
    assert KEY not in str(api.server.headers)


def test_a_key_is_not_sent_on_to_where_a_server_points(api):
    elsewhere = local_server.LocalServer()
    with elsewhere.running():
        elsewhere.will_answer(local_server.whole(api.wire.whole(text="Hi", calls=(), finish="stop")))
        there = elsewhere.root.replace("127.0.0.1", "localhost")
        api.server.will_answer(local_server.raw(307, b"", Location=f"{there}{api.wire.path}"))
        api.provider.complete(request())
    assert len(elsewhere.requests) == 1
    assert KEY not in str(elsewhere.headers)


@pytest.mark.usefixtures("_no_credentials")
def test_without_any_key_the_makers_own_server_is_a_mistake_in_the_settings(api):
    with pytest.raises(ConfigurationError, match=api.wire.key_in_environment):
        api.wire.make(api.server, base_url=None).complete(request())


@pytest.fixture
def _no_credentials(monkeypatch, tmp_path):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path))
