"""What kind of field an argument is edited in: read from the JSON Schema of its tool."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from agentcore import canonical

# In this order the pages know them; `json` takes whatever the others do not.
TEXT, INTEGER, NUMBER, BOOLEAN, CHOICE, DATE, MOMENT, JSON = (
    "text",
    "integer",
    "number",
    "boolean",
    "choice",
    "date",
    "moment",
    "json",
)
MAX_CHOICES = 200
MAX_REFERENCES = 10

_SIMPLE = {"integer": INTEGER, "number": NUMBER, "boolean": BOOLEAN}
_FORMATS = {"date": DATE, "date-time": MOMENT}
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How one argument is edited. `choices` are JSON values; `nullable` says that null is one of its values."""

    kind: str
    choices: tuple[Any, ...] = ()
    description: str = ""
    nullable: bool = False
    max_length: int | None = None

    def fits(self, value: Any) -> bool:
        """Say whether a stored value can be edited in this kind of field."""
        if value is None:
            return self.nullable or self.kind == JSON
        fits = _FITS[self.kind]
        return fits(self, value)


def shape_of(schema: Any, definitions: Mapping[str, Any]) -> Shape:
    """Return the shape of a property; `definitions` are the schema's `$defs`."""
    resolved, nullable = _resolve(schema, definitions)
    description = resolved.get("description")
    shape = _plain_shape(resolved)
    return replace(
        shape,
        nullable=nullable or (shape.kind == CHOICE and None in shape.choices),
        choices=tuple(item for item in shape.choices if item is not None),
        description=description if isinstance(description, str) else "",
    )


def _resolve(schema: Any, definitions: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return a schema without references, unions with null, and whether null was one of them."""
    found, nullable = dict(schema) if isinstance(schema, Mapping) else {}, False
    for _ in range(MAX_REFERENCES):
        inner = _inner(found, definitions)
        if inner is None:
            break
        others = {key: value for key, value in found.items() if key not in ("$ref", "anyOf", "allOf", "oneOf")}
        nullable = nullable or _has_null(found)
        # What is said at the argument itself holds, before what its type says of itself.
        found = {**inner, **others}
    kinds = found.get("type")
    if isinstance(kinds, list) and "null" in kinds and len(kinds) == 2:
        found["type"], nullable = next((kind for kind in kinds if kind != "null"), "null"), True
    return found, nullable


def _inner(schema: dict[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any] | None:
    if isinstance(name := schema.get("$ref"), str):
        return dict(definitions.get(name.removeprefix("#/$defs/"), {"$unknown": name}))
    for word in ("anyOf", "oneOf", "allOf"):
        options = [option for option in schema.get(word) or () if option != {"type": "null"}]
        if len(options) == 1 and isinstance(options[0], Mapping):
            return dict(options[0])
        if word != "allOf" and _is_decimal(options):
            return {"type": "number"}
    return None


def _has_null(schema: dict[str, Any]) -> bool:
    return any({"type": "null"} in (schema.get(word) or ()) for word in ("anyOf", "oneOf"))


def _is_decimal(options: list[Any]) -> bool:
    """Say whether this is how a Decimal is written in JSON Schema: a number, or text."""
    kinds = [option.get("type") for option in options if isinstance(option, Mapping)]
    return sorted(str(kind) for kind in kinds) == ["number", "string"]


def _plain_shape(schema: dict[str, Any]) -> Shape:
    values = schema["enum"] if isinstance(schema.get("enum"), list) else [schema["const"]] if "const" in schema else []
    if 0 < len(values) <= MAX_CHOICES:
        return Shape(kind=CHOICE, choices=tuple(values))
    kind = schema.get("type")
    if kind == "string" and not values:
        longest = schema.get("maxLength")
        found = _FORMATS.get(str(schema.get("format")), TEXT)
        return Shape(kind=found, max_length=longest if isinstance(longest, int) else None)
    return Shape(kind=_SIMPLE.get(str(kind), JSON) if not values else JSON)


def _is_integer(_shape: Shape, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(_shape: Shape, value: Any) -> bool:
    if isinstance(value, str):
        return bool(_NUMBER.fullmatch(value))
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_choice(shape: Shape, value: Any) -> bool:
    return canonical.dumps(value) in [canonical.dumps(item) for item in shape.choices]


def _is_date(_shape: Shape, value: Any) -> bool:
    try:
        return isinstance(value, str) and date.fromisoformat(value).isoformat() == value
    except ValueError:
        return False


def _is_text(_shape: Shape, value: Any) -> bool:
    return isinstance(value, str)


_FITS: dict[str, Callable[[Shape, Any], bool]] = {
    TEXT: _is_text,
    INTEGER: _is_integer,
    NUMBER: _is_number,
    BOOLEAN: lambda _shape, value: isinstance(value, bool),
    CHOICE: _is_choice,
    DATE: _is_date,
    MOMENT: _is_text,
    JSON: lambda _shape, _value: True,
}
