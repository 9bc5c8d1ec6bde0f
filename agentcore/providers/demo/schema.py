"""What a tool's parameters want, read from their names, types and formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

from agentcore.messages import ToolSpec
from agentcore.providers.demo import words

Kind = Literal["id", "money", "email", "date", "number", "choice", "list", "title", "text", "name", "flag", "other"]

_IDS = frozenset("id number no code sku reference key uuid".split())
_MONEY = frozenset("amount price total budget cost value sum fee payment".split())
_DATES = frozenset("date day when time deadline due start end until".split())
_TITLES = frozenset("subject title summary headline".split())
_TEXTS = frozenset(
    "description message body text content details notes note comment question query reason request problem issue "
    "topic prompt".split()
)
_NAMES = frozenset("name company customer person contact city location place country product".split())
# Values found first are not taken again: an order's number is not its amount.
_ORDER: dict[str, int] = {
    kind: place
    for place, kind in enumerate(
        ("choice", "email", "id", "date", "number", "money", "list", "name", "flag", "title", "text", "other")
    )
}


@dataclass(frozen=True, kw_only=True)
class Slot:
    """One parameter of a tool, and what kind of value it wants."""

    name: str
    kind: Kind
    types: frozenset[str]
    required: bool
    description: str = ""
    choices: Sequence[Any] = ()
    format: str = ""

    @property
    def words(self) -> list[str]:
        return words.split_name(self.name)

    @property
    def label(self) -> str:
        """The parameter's name as people say it."""
        return " ".join(self.words)

    @property
    def entity(self) -> str:
        """What an id is the id of: "order" for order_id, "" for id."""
        return " ".join(word for word in self.words if word not in _IDS)

    def convert(self, text: str) -> Any:
        """Return the value that `text` gives this parameter, None when it can give none."""
        if self.types & {"number", "integer"}:
            return self._convert_number(text)
        if self.types & {"boolean"}:
            return {"yes": True, "true": True, "no": False, "false": False}.get(text.lower())
        if self.types and not self.types & {"string"}:
            return [text] if "array" in self.types else None
        return text

    def _convert_number(self, text: str) -> Any:
        try:
            number = Decimal(text)
        except InvalidOperation:
            return text if "string" in self.types and self.kind == "id" else None
        if "string" in self.types:
            # What a Decimal is in a JSON Schema; as text it loses no digit.
            return text
        if number == number.to_integral_value():
            return int(number)
        return float(number) if "number" in self.types else None


def read_slots(tool: ToolSpec) -> list[Slot]:
    """Return a tool's parameters in the order in which values are best looked for."""
    properties = tool.parameters.get("properties") or {}
    required = tool.parameters.get("required") or ()
    slots = [
        _read_slot(name, _resolve(schema, tool.parameters), required=name in required)
        for name, schema in properties.items()
    ]
    return sorted(slots, key=lambda slot: _ORDER[slot.kind])


def _read_slot(name: str, schema: Mapping[str, Any], *, required: bool) -> Slot:
    choices = schema.get("enum") or ([schema["const"]] if "const" in schema else ())
    types = _types(schema)
    return Slot(
        name=name,
        kind=_kind(words.split_name(name), types, schema, has_choices=bool(choices)),
        types=types,
        required=required,
        description=str(schema.get("description") or ""),
        choices=choices,
        format=str(schema.get("format") or ""),
    )


def _resolve(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(schema, Mapping):
        return {}
    reference = str(schema.get("$ref") or "")
    if reference.startswith("#/$defs/"):
        target = (root.get("$defs") or {}).get(reference.removeprefix("#/$defs/"), {})
        return {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema


def _types(schema: Mapping[str, Any]) -> frozenset[str]:
    given = schema.get("type")
    found = {given} if isinstance(given, str) else set(given or ())
    for branch in (*(schema.get("anyOf") or ()), *(schema.get("oneOf") or ())):
        found |= _types(branch)
    return frozenset(found - {"null"})


def _kind(name: Sequence[str], types: frozenset[str], schema: Mapping[str, Any], *, has_choices: bool) -> Kind:
    if has_choices:
        return "choice"
    if "array" in types:
        return "list"
    if types == {"boolean"}:
        return "flag"
    if schema.get("format") in ("date", "date-time"):
        return "date"
    return _kind_of_name(frozenset(name), last=name[-1] if name else "", types=types)


def _kind_of_name(name: frozenset[str], *, last: str, types: frozenset[str]) -> Kind:
    if last in _IDS:
        return "id"
    if "email" in name or "mail" in name:
        return "email"
    if name & _MONEY:
        return "money"
    if types & {"number", "integer"}:
        return "number"
    for kind, vocabulary in _STRING_KINDS:
        if name & vocabulary:
            return kind
    return "other"


_STRING_KINDS: tuple[tuple[Kind, frozenset[str]], ...] = (
    ("title", _TITLES),
    ("text", _TEXTS),
    ("date", _DATES),
    ("number", frozenset({"size", "headcount", "duration", "quantity", "count"})),
    ("name", _NAMES),
)
