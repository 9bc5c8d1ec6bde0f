"""What is masked, and what an edit that sends the mask keeps."""

import time
import timeit
from typing import Any

import pytest

from agentcore.exceptions import InvalidInput
from agentcore.tools.masking import MASK, is_secret, mask, mask_prose, mentions_secret, unmask


@pytest.mark.parametrize(
    "key",
    [
        "password",
        "PASSWORD",
        "db_password",
        "secret",
        "client-secret",
        "clientSecret",
        "token",
        "access_token",
        "csrf token",
        "api_key",
        "api-key",
        "apiKey",
        "APIKey",
        "apikey",
        "X-Api-Key",
        "Authorization",
        "proxy-authorization",
        "Set-Cookie",
    ],
)
def test_a_key_whose_last_word_is_secret_is_masked(key: str) -> None:
    assert mask({key: "hunter2"}) == {key: MASK}


@pytest.mark.parametrize("key", ["max_tokens", "token_count", "secretary", "cookies", "key", "passwordless", "", 5])
def test_other_keys_are_shown(key: Any) -> None:
    assert not is_secret(key)


def test_secrets_are_masked_at_any_depth_and_whole() -> None:
    value = {"a": [{"token": {"deep": 1}}, "text"], "card": "4111", "rest": {"card": 5}}

    assert mask(value, ["card"]) == {"a": [{"token": MASK}, "text"], "card": MASK, "rest": {"card": MASK}}
    assert value["card"] == "4111"


def test_an_edit_that_sends_the_mask_keeps_the_real_value() -> None:
    original = {"to": "acme", "password": "hunter2", "login": {"api_key": "k", "user": "u"}, "card": "4111"}
    edited = {"to": "other", "password": MASK, "login": {"api_key": MASK, "user": "v"}, "card": MASK}

    assert unmask(edited, original, ["card"]) == {
        "to": "other",
        "password": "hunter2",
        "login": {"api_key": "k", "user": "v"},
        "card": "4111",
    }


def test_an_edit_may_replace_a_secret() -> None:
    assert unmask({"password": "new"}, {"password": "old"}) == {"password": "new"}


def test_the_mask_is_plain_text_where_nothing_was_masked() -> None:
    assert unmask({"to": MASK}, {"to": "acme"}) == {"to": MASK}


ANN = {"name": "ann", "token": "1"}
BOB = {"name": "bob", "token": "2"}


@pytest.mark.parametrize(
    ("edited", "kept"),
    [
        ([mask(ANN), mask(BOB)], [ANN, BOB]),
        ([mask(BOB)], [BOB]),
        ([mask(BOB), mask(ANN)], [BOB, ANN]),
        ([{"name": "eve", "token": MASK}, mask(BOB)], [{"name": "eve", "token": "1"}, BOB]),
        ([mask(ANN), mask(BOB), {"name": "eve", "token": "3"}], [ANN, BOB, {"name": "eve", "token": "3"}]),
    ],
)
def test_items_of_a_list_keep_their_own_secrets(edited: Any, kept: Any) -> None:
    assert unmask(edited, [ANN, BOB]) == kept


@pytest.mark.parametrize(
    ("edited", "original"),
    [
        ({"token": MASK}, {}),
        ({"login": {"token": MASK}}, {"login": "x"}),
        ([{"name": "eve", "token": MASK}], [ANN, BOB]),
        ([{"name": "eve", "token": MASK}, mask(ANN)], [ANN, BOB]),
        ([{"token": MASK}], [{"token": "1"}, {"token": "2"}]),
    ],
)
def test_the_mask_itself_never_becomes_a_value(edited: Any, original: Any) -> None:
    with pytest.raises(InvalidInput, match="token has no earlier value"):
        unmask(edited, original)


@pytest.mark.parametrize(
    "text",
    [
        "The PIN is 4711.",
        "my pins are 1 and 2",
        "passphrase: correct horse",
        "her CVV is 123",
        "the private key",
        "card 4111 1111 1111 1111",
        "5500-0000-0000-0004",
        "send it to DE02 1203 0000 0000 2020 51",
        "GB33BUKB20201555555555",
        "passwd=x",
        "pwd hunter2",
        "db_pwd hunter2",
        "userPin 4711",
        "PINCode 4711",
        "one-time code 123456",
        "security code 123",
        "her 2FA code is 99",
        "4111.1111.1111.1111",
        "card no.3782.822463.10005",
        "de89370400440532013000",
        "pay ab12 to de89 3704 0044 0532 0130 00 please",
        "no93 8601 1117 947 this week",
        "use sk-abcdEFGH1234567890abcdEFGH",
        "sk-proj-abcdefghijklmnopqrs7",
        "sk_live_abcdefghijklmnop",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
        "postgres://u:pw@h/db",
        '{"at": "redis://:pw@h:6379/0"}',
    ],
)
def test_prose_that_holds_a_secret_is_masked_whole(text: str) -> None:
    assert mentions_secret(text)
    assert mask_prose(text) == MASK


@pytest.mark.parametrize(
    "value",
    [
        {"name": "PIN", "attributes": {"value": "88002"}},
        {"said": ["it is 88002", {"db_pwd": 88002}]},
        ["88002", {"userPin": "x"}],
        {"card": 4111111111111111},
    ],
)
def test_what_holds_a_secret_in_any_part_is_masked_with_all_its_parts(value: Any) -> None:
    assert mask_prose(value) == MASK


@pytest.mark.parametrize(
    "part",
    ["sk-", "sk-a", "eyJ", "eyJaaaaaaaa.", "://", "://:", "a:", "aa11", "aa11 ", "1 ", "1111.", "aA", "a_", "one-time"],
)
def test_a_text_is_read_in_time_that_grows_with_its_length(part: str) -> None:
    def seconds(length: int) -> float:
        text = "://" + (part * length)[:length]
        return min(timeit.repeat(lambda: mentions_secret(text), timer=time.process_time, number=1, repeat=3))

    # Eight times the text takes about eight times as long, and would take 64 times as long were each part read anew.
    assert seconds(64_000) < 28 * max(seconds(8_000), 0.001)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "She spins and opines in Berlin.",
        "order 4111 1111 1111 1112",
        "call +49 30 1234567",
        "2026-11-30 10:00:00",
        "order 12345678901234567890123",
        "AB12 is a seat",
        "the code review of order 12345",
        "a security code review",
        "order 4111",
        "4111.1111.1111.1112",
        "hosts 10.0.0.1 and 192.168.100.100",
        "ab12 this that then there",
        "de89370400440532013001",
        "sk-abc",
        "sk-learn-based-classifier",
        "task-force of risk-averse-people-12345678",
        "eyJ",
        "eyJhbGciOiJIUzI1NiJ9",
        "https://example.com:8080/a?mail=x:y@example.com",
        "https://ada@example.com/",
    ],
)
def test_other_prose_is_shown(text: str) -> None:
    assert mask_prose([text]) == [text]


@pytest.mark.parametrize("value", [{"name": "77", "attributes": {"count": 3, "paid": True}}, 5, 2.5, None])
def test_other_values_are_shown(value: Any) -> None:
    assert mask_prose(value) == value
