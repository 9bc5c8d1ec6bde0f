"""Check the arguments of a tool call: raw text or a parsed value in, normalised JSON or typed values out.

The rules: extra arguments are refused. Nothing is taken for something else: no text for numbers, no numbers for
text, no text or numbers for booleans. A number of integral value is an integer (5.0 is 5, 5.5 is none). Decimals
are written as numbers or text and keep their digits; dates, times, UUIDs and enums are written as in JSON Schema.
What is stored is what is shown and what is run: defaults filled in, in the one form that gives the same values back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, ValidationError

from agentcore import canonical
from agentcore.exceptions import InvalidInput
from agentcore.tools import json_text, masking
from agentcore.tools.definition import ToolDefinition

MAX_EXCERPT = 200
MAX_ERRORS = 20

logger = logging.getLogger("agentcore.tools")

_WORDS = {
    "missing": "is required",
    "extra_forbidden": "is not an argument of this tool",
}


class InvalidArguments(InvalidInput):
    """A call's arguments do not fit the tool. `errors` names each field: [{"field", "message"}].

    `is_cut` says that their text breaks off in the middle.
    """

    def __init__(self, message: str, *, errors: list[dict[str, str]] | None = None, is_cut: bool = False) -> None:
        super().__init__(message, errors=errors or [])
        self.is_cut = is_cut

    @property
    def errors(self) -> list[dict[str, str]]:
        found: list[dict[str, str]] = self.details["errors"]
        return found


def parse_arguments(definition: ToolDefinition, raw_text: str | None) -> dict[str, Any]:
    """Return the validated arguments, as plain JSON, of the text a model wrote.

    Empty text and null count as no arguments. Raises InvalidArguments.
    """
    text = canonical.clean_text(raw_text or "").strip()
    if text in ("", "null"):
        return validate_arguments(definition, {})
    try:
        value = json_text.read(text)
    except json_text.NotJson as error:
        broken = "they are not JSON but were cut off before their end" if error.is_cut else "they are not JSON"
        reason = f"{broken} ({error}){_excerpt(definition, text)}"
        raise _refusal(definition, reason, is_cut=error.is_cut) from error
    except ValueError as error:
        raise _refusal(definition, str(error)) from error
    return validate_arguments(definition, value)


def validate_arguments(definition: ToolDefinition, value: Any) -> dict[str, Any]:
    """Return the validated arguments, as plain JSON, of a parsed value such as a reviewer's edit.

    NUL and lone surrogates are replaced; who must refuse them instead asks canonical.has_unstorable_text first.
    Raises InvalidArguments.
    """
    if not isinstance(value, Mapping):
        raise _refusal(definition, f"they must be a JSON object, not {_json_type(value)}")
    given = _plain(definition, value, path="", depth=1)
    with _guarding_user_code(definition):
        typed = _validate(definition, given)
        typed = _validate(definition, _with_decimals_quoted(given, typed.model_dump(by_alias=True)))
        return _stored_form(definition, typed)


def python_arguments(definition: ToolDefinition, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the typed values, by parameter name, that stored `arguments` stand for.

    Raises InvalidArguments when the tool has changed and no longer takes them.
    """
    with _guarding_user_code(definition):
        typed = _validate(definition, arguments)
    fields = definition.arguments_model.model_fields
    return {field.alias or name: getattr(typed, name) for name, field in fields.items()}


def stored_form(typed: BaseModel) -> Any:
    """Return validated arguments as the plain JSON that they are stored, hashed and shown as."""
    values = typed.model_dump(by_alias=True, round_trip=True, warnings=False)
    as_json = typed.model_dump(mode="json", by_alias=True, round_trip=True, warnings=False)
    return canonical.normalise(canonical.clean(_with_sets_sorted(values, as_json)))


def _excerpt(definition: ToolDefinition, text: str) -> str:
    # Broken text cannot be masked, so none of it is shown where it may hold a secret.
    if definition.sensitive or masking.mentions_secret(text):
        return ""
    return ": " + (text if len(text) <= MAX_EXCERPT else text[: MAX_EXCERPT - 1] + "…")


def _plain(definition: ToolDefinition, value: Any, *, path: str, depth: int) -> Any:
    """Return `value` as clean JSON; floats and Decimals stay what they are."""
    if isinstance(value, str):
        return canonical.clean_text(value)
    if value is None or isinstance(value, bool) or (isinstance(value, int) and json_text.is_in_range(value)):
        return value
    if isinstance(value, float | Decimal) and json_text.is_in_range(value):
        return int(value) if isinstance(value, float) and value.is_integer() else value
    if depth > json_text.MAX_DEPTH:
        raise _refusal(definition, f"they are nested deeper than {json_text.MAX_DEPTH} levels")
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {
            canonical.clean_text(key): _plain(definition, item, path=_join(path, key), depth=depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [
            _plain(definition, item, path=_join(path, str(index)), depth=depth + 1) for index, item in enumerate(value)
        ]
    reason = "a number out of range" if isinstance(value, int | float | Decimal) else f"{_json_type(value)}, no JSON"
    raise _refusal_of(definition, [{"field": path, "message": f"is {reason}"}])


@contextmanager
def _guarding_user_code(definition: ToolDefinition) -> Iterator[None]:
    try:
        yield
    except InvalidArguments:
        raise
    except Exception as error:
        # A validator or serialiser of the tool's own types broke: the model is told, the turn goes on.
        logger.exception("tool_validator_failed", extra={"tool": definition.name})
        raise _refusal(definition, "the tool's own check of them failed") from error


def _validate(definition: ToolDefinition, value: Any) -> BaseModel:
    try:
        return definition.arguments_model.model_validate_json(json_text.write(value), strict=True)
    except ValidationError as error:
        raise _refusal_of(definition, _field_errors(definition, error)) from error


def _with_decimals_quoted(given: Any, typed: Any) -> Any:
    """Return `given` with text for each number that became a Decimal: a float would lose its digits."""
    if isinstance(given, Decimal) and isinstance(typed, Decimal) and "E" not in str(given):
        return str(given)
    if isinstance(given, dict) and isinstance(typed, dict):
        return {key: _with_decimals_quoted(item, typed.get(key)) for key, item in given.items()}
    if isinstance(given, list) and isinstance(typed, list | tuple) and len(given) == len(typed):
        return [_with_decimals_quoted(*pair) for pair in zip(given, typed, strict=True)]
    return given


def _stored_form(definition: ToolDefinition, typed: BaseModel) -> dict[str, Any]:
    result: dict[str, Any] = stored_form(typed)
    if _validate(definition, result) != typed:
        # SecretStr, or a validator that changes a value anew each time: the call would not run what was shown.
        logger.error("tool_arguments_unstable", extra={"tool": definition.name})
        raise _refusal(definition, "their types do not give the same values back once stored")
    return result


def _with_sets_sorted(values: Any, as_json: Any) -> Any:
    """Return `as_json` with the items of each set in one order, whatever the process's hash seed is."""
    if isinstance(values, set | frozenset) and isinstance(as_json, list):
        return sorted(as_json, key=canonical.dumps)
    if isinstance(values, dict) and isinstance(as_json, dict) and len(values) == len(as_json):
        return {
            key: _with_sets_sorted(value, item)
            for value, (key, item) in zip(values.values(), as_json.items(), strict=True)
        }
    if isinstance(values, list | tuple) and isinstance(as_json, list) and len(values) == len(as_json):
        return [_with_sets_sorted(*pair) for pair in zip(values, as_json, strict=True)]
    return as_json


def _field_errors(definition: ToolDefinition, error: ValidationError) -> list[dict[str, str]]:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [
        {
            "field": canonical.clean_text(".".join(str(part) for part in item["loc"]))[:MAX_EXCERPT],
            "message": canonical.clean_text(_message(definition, item))[:MAX_EXCERPT],
        }
        for item in found[:MAX_ERRORS]
    ]


def _message(definition: ToolDefinition, item: Any) -> str:
    # A validator of the project's own may quote the value it refuses.
    may_quote = item["type"] in ("value_error", "assertion_error")
    if may_quote and any(masking.is_secret(part, definition.sensitive) for part in item["loc"]):
        return "is not valid"
    return _WORDS.get(item["type"], str(item["msg"]))


def _refusal_of(definition: ToolDefinition, errors: list[dict[str, str]]) -> InvalidArguments:
    words = "; ".join(f"{item['field']}: {item['message']}" for item in errors)
    return InvalidArguments(f"Invalid arguments for {definition.name}: {words}.", errors=errors)


def _refusal(definition: ToolDefinition, reason: str, *, is_cut: bool = False) -> InvalidArguments:
    return InvalidArguments(
        f"Invalid arguments for {definition.name}: {reason}.",
        errors=[{"field": "arguments", "message": reason}],
        is_cut=is_cut,
    )


def _json_type(value: Any) -> str:
    names = {str: "text", bool: "a boolean", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return "null" if value is None else names.get(type(value), f"a {type(value).__name__}")


def _join(path: str, part: str) -> str:
    part = canonical.clean_text(part)[:MAX_EXCERPT]
    return f"{path}.{part}" if path else part
