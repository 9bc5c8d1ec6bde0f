"""Read what a client sends, strictly: nothing is taken for something else, and nothing unknown is let pass."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from rest_framework import serializers
from rest_framework.exceptions import ParseError, ValidationError
from rest_framework.parsers import JSONParser

from agentcore import canonical
from agentcore.api.errors import MAX_NAME
from agentcore.exceptions import InvalidInput, TooLarge
from agentcore.tools import json_text

# What is stored may have MAX_DEPTH levels; a list of decisions wraps it in three more.
MAX_DEPTH = json_text.MAX_DEPTH + 3
# SQLite and the other databases keep whole numbers in 64 bits.
MAX_ID = 2**63 - 1


class JsonBody(JSONParser):
    """Parses JSON, and refuses what no database or encoder could keep before anything looks at it."""

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        """Return the value; raise TooLarge over DATA_UPLOAD_MAX_MEMORY_SIZE, ParseError for what is no JSON."""
        limit: int | None = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        content = stream.read() if limit is None else stream.read(limit + 1)
        if limit is not None and len(content) > limit:
            raise TooLarge(f"The body is over {limit} bytes.", limit=limit)
        try:
            value = super().parse(io.BytesIO(content), media_type, parser_context)
            # Once more, for what Python's reader passes over: of a key that is there twice it takes the last.
            json.loads(content, object_pairs_hook=_refuse_repeated)
            depth = canonical.depth(value)
        except RecursionError as error:
            raise _too_deep() from error
        if depth > MAX_DEPTH:
            raise _too_deep()
        return value


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise ParseError(f"JSON parse error - the key {key[:MAX_NAME]!r} is there twice")
        seen.add(key)


class Body(serializers.Serializer[Any]):
    """The fields a body may have. Any other one is refused by name."""

    def to_internal_value(self, data: Any) -> Any:
        """Return the checked values; raise ValidationError."""
        if isinstance(data, Mapping):
            refuse_unknown(data, self.fields)
        return super().to_internal_value(data)


class Text(serializers.CharField):
    """Text as it was sent: numbers are not taken for it, and its spaces stay."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"trim_whitespace": False, "allow_blank": True, **options})

    def to_internal_value(self, data: Any) -> str:
        """Return the text; raise ValidationError."""
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class WholeNumber(serializers.IntegerField):
    """A whole number: neither text nor a boolean is taken for one."""

    def to_internal_value(self, data: Any) -> int:
        """Return the number; raise ValidationError."""
        if not isinstance(data, int) or isinstance(data, bool):
            self.fail("invalid")
        return data


class Json(serializers.JSONField):
    """Any JSON value without NUL and lone surrogates, which not every database can store."""

    default_error_messages = {"unstorable": "It holds a NUL character or a lone surrogate; remove it."}

    def to_internal_value(self, data: Any) -> Any:
        """Return the value; raise ValidationError."""
        if canonical.has_unstorable_text(data):
            self.fail("unstorable")
        return super().to_internal_value(data)


class JsonObject(Json):
    """A JSON object."""

    default_error_messages = {"not_an_object": "It must be an object."}

    def to_internal_value(self, data: Any) -> Any:
        """Return the object; raise ValidationError."""
        if not isinstance(data, dict):
            self.fail("not_an_object")
        return super().to_internal_value(data)


def refuse_unknown(given: Mapping[str, Any], allowed: Mapping[str, Any]) -> None:
    """Raise ValidationError for each field of `given` that is not in `allowed`."""
    unknown = [str(name)[:MAX_NAME] for name in given if name not in allowed]
    if unknown:
        listed = ", ".join(allowed) or "none"
        raise ValidationError(dict.fromkeys(unknown, f"Unknown field. Allowed: {listed}."))


def whole_number(text: str, *, name: str, least: int, most: int) -> int:
    """Return a number from a query string; raise InvalidInput."""
    number = find_number(text)
    if number is None or not least <= number <= most:
        raise InvalidInput(f"{name} must be a whole number from {least} to {most}.", field=name)
    return number


def find_number(text: str) -> int | None:
    """Return the number that plain digits stand for, or None; Python's int() takes much more for one."""
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(MAX_ID)):
        return None
    return int(text)


def _too_deep() -> ParseError:
    return ParseError(f"The JSON is nested deeper than {MAX_DEPTH} levels.")
