"""Which arguments a tool takes, and in which form they are kept."""

import logging
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import AfterValidator, BaseModel, Field, Json, SecretStr

from agentcore import canonical
from agentcore.exceptions import InvalidInput
from agentcore.tools.context import ToolContext
from agentcore.tools.decorators import tool
from agentcore.tools.json_text import MAX_DEPTH
from agentcore.tools.schema import InvalidArguments, parse_arguments, python_arguments, validate_arguments


class Colour(Enum):
    RED = "red"


class Address(BaseModel):
    street: str
    number: int = 1


@dataclass
class Money:
    amount: Decimal
    currency: str = "EUR"


@tool
def pay(amount: Annotated[int, Field(gt=0)], to: str, ctx: ToolContext, dry_run: bool = False) -> None: ...


@tool
def lookup(q: str = "") -> None: ...


def takes(hint: Any) -> Any:
    def sample(x: hint) -> None: ...

    return tool(sample).definition


def fields_refused(definition: Any, text: str) -> list[str]:
    with pytest.raises(InvalidArguments) as caught:
        parse_arguments(definition, text)
    return [error["field"] for error in caught.value.errors]


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("{}", ["amount", "to"]),
        ('{"amount":"5","to":"a"}', ["amount"]),
        ('{"amount":5,"to":"a","x":1}', ["x"]),
        ('{"amount":5,"to":"a","ctx":{}}', ["ctx"]),
        ('{"amount":5,"to":"a","dry_run":"false"}', ["dry_run"]),
        ('{"amount":5,"to":"a","dry_run":0}', ["dry_run"]),
        ('{"amount":5.5,"to":"a"}', ["amount"]),
        ('{"amount":1e400,"to":"a"}', ["amount"]),
        ('{"amount":NaN,"to":"a"}', ["amount"]),
        ('{"amount":true,"to":"a"}', ["amount"]),
        ('{"amount":5,"to":7}', ["to"]),
        ('{"amount":5,"to":null}', ["to"]),
        ('{"amount":%s,"to":"a"}' % ("9" * 5000), ["amount"]),
        ('{"amount":1e999999999999999999999,"to":"a"}', ["amount"]),
    ],
)
def test_prv_05_missing_extra_and_wrongly_typed_arguments_are_refused_by_name(text: str, fields: list[str]) -> None:
    assert fields_refused(pay.definition, text) == fields


@pytest.mark.parametrize("number", ["5", "5.0", "5e0"])
def test_prv_05_a_number_of_integral_value_is_the_integer(number: str) -> None:
    stored = parse_arguments(pay.definition, '{"amount":' + number + ',"to":"a"}')

    assert canonical.dumps(stored) == '{"amount":5,"dry_run":false,"to":"a"}'


@pytest.mark.parametrize("edit", [[], None, "text", 5])
def test_apr_03_an_edit_that_is_no_object_is_refused(edit: object) -> None:
    with pytest.raises(InvalidArguments, match="must be a JSON object"):
        validate_arguments(pay.definition, edit)


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        ({"amount": "ten", "to": "acme"}, "amount"),
        ({"amount": -1, "to": "acme"}, "amount"),
        ({"amount": 5, "to": "acme", "admin": True}, "admin"),
        ({"amount": float("inf"), "to": "acme"}, "amount"),
        ({"amount": 10**400, "to": "acme"}, "amount"),
        ({"amount": 5, "to": date(2024, 1, 1)}, "to"),
    ],
)
def test_apr_03_an_edit_that_does_not_fit_is_refused_by_field(edit: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        validate_arguments(pay.definition, edit)

    assert caught.value.code == "invalid_input"
    assert [error["field"] for error in caught.value.details["errors"]] == [field]


def test_apr_03_an_edit_that_is_no_json_is_refused() -> None:
    assert fields_refused(pay.definition, "{amount:5}") == ["arguments"]


@pytest.mark.parametrize("text", ["", "  \n", "null", "{}", None])
def test_prv_01_empty_text_and_null_are_no_arguments(text: str | None) -> None:
    assert parse_arguments(lookup.definition, text) == {"q": ""}


def test_prv_01_broken_json_is_named_with_a_bounded_excerpt() -> None:
    with pytest.raises(InvalidArguments, match="not JSON") as caught:
        parse_arguments(lookup.definition, '{"q": "' + "a" * 10_000)

    assert '{"q": "aaa' in caught.value.message
    assert len(caught.value.message) < 400


def test_broken_json_that_may_hold_a_secret_is_not_quoted() -> None:
    with pytest.raises(InvalidArguments) as caught:
        parse_arguments(lookup.definition, '{"password": "hunter2"')

    assert "hunter2" not in str(caught.value.as_dict())


def test_a_validators_own_words_do_not_quote_a_sensitive_value() -> None:
    def refuse(value: str) -> str:
        raise ValueError(f"{value} is no card")

    @tool(sensitive=["card"])
    def charge(card: Annotated[str, AfterValidator(refuse)]) -> None: ...

    with pytest.raises(InvalidArguments) as caught:
        parse_arguments(charge.definition, '{"card":"4111"}')

    assert caught.value.errors == [{"field": "card", "message": "is not valid"}]


@pytest.mark.parametrize("text", ['{"q":"a","q":"b"}', '{"q":"a","\\u0071":"b"}'])
def test_a_repeated_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidArguments, match="the key 'q' is there twice"):
        parse_arguments(lookup.definition, text)


@pytest.mark.parametrize("text", ["[" * 200_000, '{"x":' * 200_000, '{"x":' + "[" * 30 + "]" * 30 + "}"])
def test_too_deep_a_nesting_is_refused(text: str) -> None:
    with pytest.raises(InvalidArguments, match="nested deeper than 24 levels"):
        parse_arguments(takes(Any), text)


def test_a_nesting_up_to_the_limit_is_taken() -> None:
    levels = MAX_DEPTH - 1

    assert parse_arguments(takes(Any), '{"x":' + "[" * levels + "]" * levels + "}")


def test_prv_22_nul_and_lone_surrogates_are_replaced_in_values_and_keys() -> None:
    stored = parse_arguments(takes(dict[str, str]), '{"x":{"a\\u0000":"\\ud83d","b":"\\ud83d\\ude00"}}')

    assert stored == {"x": {"a�": "�", "b": "😀"}}


@pytest.mark.parametrize(
    ("hint", "text", "stored", "typed"),
    [
        (Decimal, "49.90", "49.90", Decimal("49.90")),
        (Decimal, '"49.90"', "49.90", Decimal("49.90")),
        (Decimal, "100", "100", Decimal(100)),
        (Decimal, "0.1000000000000000055511151231", "0.1000000000000000055511151231", None),
        (list[Decimal], "[1.50, 2]", ["1.50", "2"], [Decimal("1.50"), Decimal(2)]),
        (Money, '{"amount": 1.50}', {"amount": "1.50", "currency": "EUR"}, Money(Decimal("1.50"))),
        (float, "5", 5, 5.0),
        (float, "5.5", 5.5, 5.5),
        (date, '"2024-05-01"', "2024-05-01", date(2024, 5, 1)),
        (datetime, '"2024-05-01T10:00:00+02:00"', "2024-05-01T10:00:00+02:00", None),
        (time, '"10:30"', "10:30:00", time(10, 30)),
        (timedelta, '"PT1H"', "PT1H", timedelta(hours=1)),
        (
            UUID,
            '"A8098C1A-F86E-11DA-BD1A-00112444BE1E"',
            "a8098c1a-f86e-11da-bd1a-00112444be1e",
            UUID("a8098c1a-f86e-11da-bd1a-00112444be1e"),
        ),
        (Colour, '"red"', "red", Colour.RED),
        (Literal["a", "b"], '"b"', "b", "b"),
        (int | None, "null", None, None),
        (int | str, '"5"', "5", "5"),
        (set[str], '["b", "a", "b"]', ["a", "b"], {"a", "b"}),
        (tuple[int, str], '[1, "a"]', [1, "a"], (1, "a")),
        (bytes, '"abc"', "abc", b"abc"),
        (Address, '{"street": "Low"}', {"street": "Low", "number": 1}, Address(street="Low")),
        (Json[list[int]], '"[1]"', "[1]", [1]),
        (Any, '{"a": [1.0, 1.5, "x"]}', {"a": [1, 1.5, "x"]}, {"a": [1, 1.5, "x"]}),
    ],
)
def test_what_is_stored_gives_the_same_values_back(hint: Any, text: str, stored: Any, typed: Any) -> None:
    definition = takes(hint)
    arguments = parse_arguments(definition, '{"x": ' + text + "}")

    assert arguments == {"x": stored}
    assert validate_arguments(definition, arguments) == arguments
    if typed is not None:
        assert python_arguments(definition, arguments) == {"x": typed}


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (Decimal, '"NaN"'),
        (Decimal, "true"),
        (Decimal, '"abc"'),
        (float, '"5"'),
        (date, "5"),
        (Colour, '"RED"'),
        (list[int], '["5"]'),
        (Address, '{"street": "Low", "number": "1"}'),
        (Annotated[Decimal, Field(decimal_places=2)], "1.005"),
    ],
)
def test_what_does_not_fit_the_hint_is_refused(hint: Any, text: str) -> None:
    assert fields_refused(takes(hint), '{"x": ' + text + "}")[0].startswith("x")


def test_an_edit_in_python_may_hold_decimals() -> None:
    assert validate_arguments(takes(Decimal), {"x": Decimal("49.90")}) == {"x": "49.90"}


@pytest.mark.parametrize("hint", [SecretStr, Annotated[str, AfterValidator(lambda text: text + "!")]])
def test_values_that_change_when_stored_are_refused(hint: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR), pytest.raises(InvalidArguments, match="do not give the same values back"):
        parse_arguments(takes(hint), '{"x": "a"}')

    assert "tool_arguments_unstable" in caplog.text


def test_a_validator_that_breaks_does_not_end_the_turn(caplog: pytest.LogCaptureFixture) -> None:
    def broken(value: int) -> int:
        raise ZeroDivisionError("hunter2")

    with pytest.raises(InvalidArguments, match="the tool's own check of them failed"):
        parse_arguments(takes(Annotated[int, AfterValidator(broken)]), '{"x": 1}')

    assert "tool_validator_failed" in caplog.text


def test_stored_arguments_that_a_changed_tool_no_longer_takes_are_refused() -> None:
    with pytest.raises(InvalidArguments, match="q: is not an argument of this tool"):
        python_arguments(takes(Any), {"q": 1, "x": 1})


def test_the_context_is_no_argument() -> None:
    assert python_arguments(pay.definition, {"amount": 1, "to": "a"}) == {"amount": 1, "to": "a", "dry_run": False}
