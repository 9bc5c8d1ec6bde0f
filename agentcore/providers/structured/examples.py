"""Arguments as somebody might really give them: small models copy what they are shown, also a placeholder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MAX_DEPTH = 3

Two = tuple[Any, Any]

_BY_FORMAT: dict[str, Two] = {
    "date": ("2026-03-14", "2026-11-02"),
    "date-time": ("2026-03-14T09:30:00Z", "2026-11-02T16:05:00Z"),
    "time": ("09:30:00", "16:05:00"),
    "email": ("kim.berg@example.com", "lena.ortiz@example.org"),
    "uri": ("https://example.com/guide", "https://example.org/prices"),
    "uuid": ("6f1c2a34-58b7-4d09-9e21-0c7b5a3d8e46", "c0a5e7d2-1b93-4f68-8a40-7e2d9b1f3c55"),
}
# Words in a parameter's name, the more telling first.
_BY_WORD: dict[str, Two] = {
    "email": _BY_FORMAT["email"],
    "phone": ("+43 1 234567", "+34 91 765432"),
    "url": _BY_FORMAT["uri"],
    "date": _BY_FORMAT["date"],
    "city": ("Graz", "Valencia"),
    "country": ("Austria", "Spain"),
    "name": ("Kim Berg", "Lena Ortiz"),
    "user": ("kim.berg", "lena.ortiz"),
    "customer": ("kim.berg", "lena.ortiz"),
    "amount": ("24.90", "7.50"),
    "price": ("24.90", "7.50"),
    "currency": ("EUR", "USD"),
    "reason": ("The parcel arrived damaged", "It is too small"),
    "query": ("return policy", "opening hours"),
    "subject": ("Your order", "Your question"),
    "message": ("Your order is on its way", "We will call you tomorrow"),
    "text": ("Your order is on its way", "We will call you tomorrow"),
    "number": ("48213", "77304"),
    "id": ("48213", "77304"),
    "code": ("48213", "77304"),
}
_BY_TYPE: dict[str, Two] = {"integer": (3, 12), "number": (24.9, 7.5), "boolean": (True, False), "null": (None, None)}


def example_arguments(parameters: Mapping[str, Any], *, second: bool = False) -> dict[str, Any]:
    """Return a value for each required parameter, for all of them where none is required; or a second set of values."""
    properties = parameters.get("properties", {})
    names = parameters.get("required") or list(properties)
    maker = _Maker(parameters.get("$defs", {}), second=second)
    return {name: maker.value(name, properties.get(name, {})) for name in names}


class _Maker:
    def __init__(self, definitions: Mapping[str, Any], *, second: bool) -> None:
        self._definitions = definitions
        self._index = int(second)

    def value(self, name: str, schema: Mapping[str, Any], *, depth: int = 0) -> Any:
        schema = self._resolved(schema)
        for key in ("examples", "enum"):
            if schema.get(key):
                return schema[key][self._index % len(schema[key])]
        if "const" in schema:
            return schema["const"]
        match schema.get("type"):
            case "object":
                return self._object(schema, depth=depth)
            case "array":
                return self._array(name, schema, depth=depth)
            case "string" | None:
                return self._string(name, schema)
            case kind:
                return _BY_TYPE.get(str(kind), (None, None))[self._index]

    def _object(self, schema: Mapping[str, Any], *, depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        needed = schema.get("required") or list(properties)
        if depth == _MAX_DEPTH:
            return {}
        return {name: self.value(name, properties.get(name, {}), depth=depth + 1) for name in needed}

    def _array(self, name: str, schema: Mapping[str, Any], *, depth: int) -> list[Any]:
        if depth == _MAX_DEPTH:
            return []
        return [self.value(name.removesuffix("s"), schema.get("items", {}), depth=depth + 1)]

    def _string(self, name: str, schema: Mapping[str, Any]) -> Any:
        words = name.lower().replace("-", "_").split("_")
        telling = next((values for word, values in _BY_WORD.items() if word in words), None)
        found = _BY_FORMAT.get(str(schema.get("format"))) or telling
        return found[self._index] if found else name.replace("_", " ").capitalize()

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        reference = schema.get("$ref")
        if reference:
            found: Mapping[str, Any] = self._definitions.get(reference.rpartition("/")[2], {})
            return found
        alternatives = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
        return self._resolved(alternatives[0]) if alternatives else schema
