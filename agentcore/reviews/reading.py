"""Turn values that a model or a user wrote into text for a person: masked, short where there is little room."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice
from typing import Any, NoReturn

from agentcore.approvals.visible import has_hidden, pieces
from agentcore.tools import masking

MAX_SHORT_VALUES = 6
MAX_SHORT_TEXT = 80
MAX_LISTED_MARKS = 4
MAX_SHORT_NAME = 40
# From this length on a person is told how long a text is: the box scrolls.
TELL_LENGTH = 1_000
LINE_END = "⏎"
# A text that begins so, and is no JSON, was most likely meant as some.
JSON_STARTS = ("{", "[", '"')


@dataclass(frozen=True, kw_only=True)
class Shown:
    """One argument as it is shown. `length` is that of the whole text; a block has a box of its own.

    `is_cut`: it is not wholly shown as it is. `is_told_text`: it reads like JSON, and a word says that it is text.
    """

    name: str
    text: str
    length: int
    is_cut: bool = False
    is_block: bool = False
    is_told_text: bool = False

    @property
    def tells_length(self) -> bool:
        return self.is_cut or self.length >= TELL_LENGTH


def in_full(arguments: Any, sensitive: Collection[str]) -> list[Shown]:
    """Return every argument with its whole text, nested values as indented JSON."""
    return [whole(name, value) for name, value in _pairs(masking.mask(arguments, sensitive))]


def in_short(arguments: Any, sensitive: Collection[str]) -> list[Shown]:
    """Return the first few arguments, each cut to one short line."""
    pairs = _pairs(masking.mask(arguments, sensitive))
    return [short(name, value) for name, value in pairs[:MAX_SHORT_VALUES]]


def left_out(arguments: Any) -> int:
    """Say how many arguments `in_short` leaves out."""
    return max(0, len(_pairs(arguments)) - MAX_SHORT_VALUES)


def says_all(arguments: Any, short: list[Shown]) -> bool:
    """Say whether `in_short` left nothing out."""
    return len(_pairs(arguments)) == len(short) and not any(shown.is_cut for shown in short)


def as_json(value: Any, sensitive: Collection[str]) -> str:
    """Return indented JSON, secrets masked: what an edit starts from."""
    return editable_json(masking.mask(value, sensitive))


def editable_json(value: Any) -> str:
    """Return indented JSON with an escape for each character that does not show: no mark can stand in a field."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return "".join(_escape(piece) if is_mark else piece for piece, is_mark in pieces(text))


def as_typed(value: Any) -> str:
    """Return what a person would type to give this value: text as it is where it cannot be taken for JSON."""
    is_plain = isinstance(value, str) and text_of(value) == value and not has_hidden(value)
    return value if is_plain and not value.lstrip().startswith(JSON_STARTS) else editable_json(value)


def brief(value: Any, limit: int) -> str:
    """Return what somebody said in at most `limit` characters."""
    return _cut(value if isinstance(value, str) and value.strip() else json.dumps(value, ensure_ascii=False), limit)


def brief_value(value: Any, limit: int) -> str:
    """Return the text of a value in at most `limit` characters."""
    return _cut(text_of(value), limit)


def in_line(text: str, limit: int) -> str:
    """Return a text for a list: in at most `limit` characters, of which few are hidden. A mark is ten times as long."""
    hidden = (at for at, character in enumerate(text[:limit]) if has_hidden(character))
    return _cut(text, min(limit, next(islice(hidden, MAX_LISTED_MARKS, None), limit)))


def whole(name: str, value: Any) -> Shown:
    """Return a value, secrets masked before, with its whole text."""
    if isinstance(value, dict | list) and value:
        text = json.dumps(value, ensure_ascii=False, indent=2)
        return Shown(name=name, text=text, length=len(text), is_block=True)
    if isinstance(value, str) and ("\n" in value or len(value) > MAX_SHORT_TEXT):
        # In a box of its own it stays as it is: quotes would make one line of it.
        return Shown(name=name, text=value, length=len(value), is_block=True, is_told_text=reads_as_json(value))
    text = text_of(value)
    return Shown(name=name, text=text, length=len(text), is_block=len(text) > MAX_SHORT_TEXT)


def short(name: str, value: Any) -> Shown:
    """Return a value, secrets masked before, in one short line; a line end in it is shown as a sign."""
    text = text_of(value)
    listed, listed_name = in_line(text, MAX_SHORT_TEXT), in_line(name, MAX_SHORT_NAME)
    is_cut = listed != text or listed_name != name or "\n" in text
    return Shown(
        name=listed_name,
        text=listed.replace("\n", LINE_END),
        length=len(text),
        is_cut=is_cut,
    )


def text_of(value: Any) -> str:
    """Return a value as text: text as it is, the rest as JSON. No text looks like another value's JSON."""
    # Quotes only where there would be nothing to see, or where it would read as something else.
    if isinstance(value, str) and value.strip() and not reads_as_json(value):
        return value
    return json.dumps(value, ensure_ascii=False)


def reads_as_json(text: str) -> bool:
    """Say whether a text could be taken for null, true, a number, a list, an object, or text in quotes."""
    try:
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_refuse)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True


def hides(value: Any) -> bool:
    """Say whether a JSON-like value, secrets masked, holds characters that do not show."""
    if isinstance(value, str):
        return has_hidden(value)
    if isinstance(value, dict):
        return any(has_hidden(key) or hides(item) for key, item in value.items())
    return isinstance(value, list) and any(hides(item) for item in value)


def _escape(mark: str) -> str:
    """Return "\\u202e" for "⟨U+202E⟩"."""
    return json.dumps(chr(int(mark.strip("⟨⟩").removeprefix("U+"), 16)))[1:-1]


def _pairs(arguments: Any) -> list[tuple[str, Any]]:
    return list(arguments.items()) if isinstance(arguments, dict) else [("", arguments)]


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
