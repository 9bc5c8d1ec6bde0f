"""Turn whatever a tool returns into the JSON that is stored: once the tool has run, storing must not fail.

None, booleans, text, integers     themselves (an integer of more than 1024 bits: a note)
float                              itself; NaN and the infinities as "NaN", "Infinity", "-Infinity"
Decimal, UUID, lazy text           text
date, time, datetime               ISO 8601; timedelta: an ISO 8601 duration, "P1DT02H00M00S"
bytes                              {"base64": …, "bytes": length}
Enum                               its value
dict                               keys that are no text become their JSON text: 1 → "1", (1, 2) → "[1,2]";
                                   of two with the same text the second is numbered: "1", "1 (2)"
dataclass, named tuple, pydantic   an object of its fields
list, tuple, range, deque          a list
set, frozenset                     a list, sorted
queryset, iterator                 a list of the first 1000
model instance                     {"model": "app.model", "pk": …, "text": str(instance)}, never its fields
any other object                   str(object), if its class says more by it than its address
what cannot be stored              a note: {"unserialisable": "ClassName"} or {"omitted": "why"}
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import inspect
import itertools
import logging
import math
from collections import deque
from collections.abc import Callable, Container, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import FunctionType
from typing import Any
from uuid import UUID

from django.db.models import Manager, Model, QuerySet
from django.utils.duration import duration_iso_string
from django.utils.functional import Promise
from pydantic import BaseModel

from agentcore import canonical
from agentcore.tools.json_text import MAX_DEPTH

MAX_ITEMS = 1000
MAX_BITS = 1024

logger = logging.getLogger("agentcore.tools")

# What code of the project may raise while its object is read, though it was no error of ours and nobody stopped us.
RAISED = (Exception, SystemExit, GeneratorExit, asyncio.CancelledError)

_Path = tuple[int, ...]
_Converter = Callable[[Any, _Path], Any]


def to_json(value: Any) -> Any:
    """Return the JSON form of any value, in clean text and normalised; it raises nothing but KeyboardInterrupt.

    It may run code of the project (a generator, a queryset, a `__str__`), so it belongs into the tool's thread.
    """
    try:
        return canonical.normalise(canonical.clean(_convert(value, ())))
    except RAISED:
        logger.warning("tool_result_unserialisable", exc_info=True)
        return _omitted("what the tool returned: it cannot be read")


def omitted(value: Any) -> dict[str, str]:
    """Return the note that stands for the JSON form of a result which could not be stored."""
    return _omitted(f"a result of {canonical.byte_size(value)} bytes that the database did not take")


def first_items(items: Iterable[Any]) -> list[Any]:
    """Return the first MAX_ITEMS items, and a note when there are more."""
    found = list(itertools.islice(items, MAX_ITEMS + 1))
    if len(found) > MAX_ITEMS:
        found[MAX_ITEMS] = _omitted(f"everything after the first {MAX_ITEMS} items")
    return found


def _convert(value: Any, path: _Path) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if id(value) in path:
        return _omitted("a reference to itself")
    if len(path) >= MAX_DEPTH:
        return _omitted(f"nested deeper than {MAX_DEPTH} levels")
    try:
        return _converter_of(value)(value, (*path, id(value)))
    except RAISED:
        # The tool has done its work: an object that cannot be read must not undo that.
        logger.warning("tool_result_unserialisable", extra={"class_name": type(value).__name__}, exc_info=True)
        return _unserialisable(value)


def _converter_of(value: Any) -> _Converter:
    for kinds, converter in _CONVERTERS:
        if isinstance(value, kinds):
            return converter
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _from_dataclass
    return _from_object


def _from_enum(value: Enum, path: _Path) -> Any:
    return _convert(value.value, path)


def _from_text(value: str, path: _Path) -> str:
    # The plain text of a subclass such as SafeString.
    return str.__str__(value)


def _from_integer(value: int, path: _Path) -> Any:
    plain = int.__int__(value)
    return plain if plain.bit_length() <= MAX_BITS else _omitted(f"an integer of {plain.bit_length()} bits")


def _from_float(value: float, path: _Path) -> Any:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float.__float__(value)


def _from_moment(value: datetime | date | time, path: _Path) -> str:
    return value.isoformat()


def _from_duration(value: timedelta, path: _Path) -> str:
    return duration_iso_string(value)


def _from_bytes(value: bytes | bytearray | memoryview, path: _Path) -> Any:
    raw = bytes(value)
    return {"base64": base64.b64encode(raw).decode("ascii"), "bytes": len(raw)}


def _from_mapping(value: Mapping[Any, Any], path: _Path) -> Any:
    found: dict[str, Any] = {}
    for key, item in value.items():
        found[_free_key(canonical.clean_text(_key(key, path)), found)] = _convert(item, path)
    return found


def _free_key(key: str, taken: Container[str]) -> str:
    """Return the key, with a number when another one has the same text: 1 and "1" are two entries."""
    if key not in taken:
        return key
    return next(free for number in itertools.count(2) if (free := f"{key} ({number})") not in taken)


def _from_pydantic(value: BaseModel, path: _Path) -> Any:
    return _convert(value.model_dump(mode="json"), path)


def _from_dataclass(value: Any, path: _Path) -> Any:
    return {field.name: _convert(getattr(value, field.name), path) for field in dataclasses.fields(value)}


def _from_set(value: Iterable[Any], path: _Path) -> Any:
    items = [_convert(item, path) for item in value]
    try:
        return sorted(items)
    except TypeError:
        return sorted(items, key=canonical.dumps)


def _from_tuple(value: tuple[Any, ...], path: _Path) -> Any:
    names = getattr(value, "_fields", None)
    if names is None:
        return _from_list(value, path)
    return {name: _convert(item, path) for name, item in zip(names, value, strict=True)}


def _from_list(value: Iterable[Any], path: _Path) -> Any:
    return [_convert(item, path) for item in value]


def _from_iterator(value: Iterable[Any], path: _Path) -> Any:
    return _from_list(first_items(value), path)


def _from_queryset(value: QuerySet[Any], path: _Path) -> Any:
    return _from_iterator(value[: MAX_ITEMS + 1] if not value.query.is_sliced else value, path)


def _from_manager(value: Manager[Any], path: _Path) -> Any:
    return _from_queryset(value.all(), path)


def _from_model(value: Model, path: _Path) -> Any:
    # Fields stay out: a user's would include the password hash.
    return {"model": value._meta.label_lower, "pk": _convert(value.pk, path), "text": _text_of(value)}


def _from_object(value: Any, path: _Path) -> Any:
    if inspect.iscoroutine(value):
        value.close()
    # Any: mypy takes the comparison below for a mistake.
    kind: Any = type(value)
    # Python's own reprs tell an address, which is another one after each restart.
    has_text = kind.__str__ is not object.__str__ or isinstance(kind.__repr__, FunctionType)
    return str(value) if has_text else _unserialisable(value)


def _text(value: Any, path: _Path) -> str:
    return str(value)


def _text_of(value: Any) -> Any:
    try:
        return str(value)
    except RAISED:
        return _unserialisable(value)


def _key(key: Any, path: _Path) -> str:
    converted = _convert(key, path)
    return converted if isinstance(converted, str) else canonical.dumps(converted)


def _unserialisable(value: Any) -> dict[str, str]:
    return {"unserialisable": type(value).__name__}


def _omitted(why: str) -> dict[str, str]:
    return {"omitted": why}


# The first kind that fits decides: an Enum may be an int or text too, a datetime is a date.
_CONVERTERS: tuple[tuple[Any, _Converter], ...] = (
    (Enum, _from_enum),
    (Promise, _text),
    (str, _from_text),
    (int, _from_integer),
    (float, _from_float),
    ((Decimal, UUID), _text),
    ((date, time), _from_moment),
    (timedelta, _from_duration),
    ((bytes, bytearray, memoryview), _from_bytes),
    (Model, _from_model),
    (QuerySet, _from_queryset),
    (Manager, _from_manager),
    (BaseModel, _from_pydantic),
    (Mapping, _from_mapping),
    (tuple, _from_tuple),
    ((list, deque, range, KeysView, ValuesView, ItemsView), _from_list),
    ((set, frozenset), _from_set),
    (Iterator, _from_iterator),
)
