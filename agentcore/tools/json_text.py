"""Read the JSON text that models write, more strictly than json.loads: each key once, numbers with all digits."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import pydantic_core

from agentcore import canonical

# MariaDB's JSON ends at 32 levels; arguments and results are stored inside events, which need some of them.
MAX_DEPTH = 24
# As many digits as the largest float has: beyond it Python and some databases stop converting.
MAX_DIGITS = 309


class NotJson(ValueError):
    """The text is no JSON at all; other things wrong with it are plain ValueErrors.

    `is_cut` says that it would be JSON if it went on: its end is missing, as when a reply breaks off.
    """

    def __init__(self, message: str, *, is_cut: bool) -> None:
        super().__init__(message)
        self.is_cut = is_cut


def read(text: str) -> Any:
    """Return the value of `text`: a Decimal for each number with a point, an exponent or too many digits.

    NaN and the infinities come back as floats, for the caller to refuse by name. Raises NotJson, and ValueError
    for a repeated key and for nesting that no parser follows.
    """
    try:
        return json.loads(text, parse_int=_read_integer, parse_float=_read_decimal, object_pairs_hook=_read_object)
    except json.JSONDecodeError as error:
        raise NotJson(f"{error.msg} at character {error.pos}", is_cut=_is_beginning(text)) from error
    except RecursionError as error:
        raise ValueError(f"they are nested deeper than {MAX_DEPTH} levels") from error


def write(value: Any) -> str:
    """Return plain JSON, Decimals among it, as text with a number for each Decimal."""
    return json.dumps(value, default=_number, ensure_ascii=False, allow_nan=False)


def is_in_range(value: int | float | Decimal) -> bool:
    """Say whether a float can stand for the number: 1e400 would be infinity and 1e-400 zero."""
    try:
        return math.isfinite(float(value)) and bool(float(value)) == bool(value)
    except (OverflowError, ValueError):
        return False


def _is_beginning(text: str) -> bool:
    """Say whether the text is the beginning of some JSON."""
    try:
        pydantic_core.from_json(text, allow_partial=True)
    except ValueError:
        return False
    return True


def _read_integer(text: str) -> int | Decimal:
    return int(text) if len(text) <= MAX_DIGITS else Decimal(text)


def _read_decimal(text: str) -> Decimal | float:
    try:
        return Decimal(text)
    except ArithmeticError:
        # An exponent beyond even Decimal's: infinity, or zero.
        return math.inf


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        name = canonical.clean_text(key)
        if name in result:
            raise ValueError(f"the key {name[:40]!r} is there twice")
        result[name] = value
    return result


def _number(value: Any) -> int | float:
    # json asks for what it cannot write itself: here only Decimals.
    return int(value) if value == int(value) else float(value)
