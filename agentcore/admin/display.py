"""Show stored values to people: secrets masked, hidden characters marked, long values shortened, everything escaped."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import datetime
from typing import Any

from django.template.defaultfilters import date as formatted
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.timesince import timesince, timeuntil
from django.utils.translation import gettext as _

from agentcore import clock
from agentcore.approvals import visible
from agentcore.tools.masking import mask

EMPTY = "-"
BRIEF_LENGTH = 120
# Text that begins so looks like JSON, and is perhaps meant to be.
JSON_BEGINS = ("{", "[", '"')


def pretty(value: Any, sensitive: Collection[str] = ()) -> str:
    """Return a JSON value as an indented block with its secrets masked."""
    if value is None:
        return EMPTY
    return block(json.dumps(mask(value, sensitive), indent=2, ensure_ascii=False))


def pretty_result(value: Any, sensitive: Collection[str] = ()) -> str:
    """Return what a tool, or a person in its place, gave: text as text, anything else as JSON; null is a result too."""
    if isinstance(value, str) and value.strip():
        return block(value)
    return block(json.dumps(mask(value, sensitive), indent=2, ensure_ascii=False))


def block(text: str | None) -> str:
    """Return text as a block that keeps its lines."""
    return format_html('<pre class="agentcore-block">{}</pre>', marked(text)) if text else EMPTY


def marked(value: Any) -> str:
    """Return text with a mark in place of each character that a reader would not see."""
    return format_html_join(
        "", "{}", ((format_html("<mark>{}</mark>", text) if hides else text,) for text, hides in _pieces(value))
    )


def editable(value: Any, sensitive: Collection[str] = ()) -> str:
    """Return a JSON value as text to edit: secrets masked, and each hidden character written as its JSON escape."""
    text = json.dumps(mask(value, sensitive), indent=2, ensure_ascii=False)
    return "".join(_escaped(piece) if hides else piece for piece, hides in visible.pieces(text))


def editable_result(value: Any, sensitive: Collection[str] = ()) -> str:
    """Return a result as text that is read as that result again: plain text as it is, all else as JSON; "" for none."""
    if value is None:
        return ""
    if isinstance(value, str) and not _reads_as_json(value) and not visible.has_hidden(value):
        return value
    return editable(value, sensitive)


def _reads_as_json(text: str) -> bool:
    if not text.strip() or text.lstrip()[0] in JSON_BEGINS:
        return True
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def message(value: Any) -> str:
    """Return a stored message: its text. Calls beside it are rows of their own; their raw text would show secrets."""
    content = value.get("content") if isinstance(value, dict) else value
    return block(content) if isinstance(content, str) else pretty(content)


def brief(value: Any, sensitive: Collection[str] = ()) -> str:
    """Return a JSON value as one short line with its secrets masked."""
    masked = mask(value, sensitive)
    if isinstance(masked, dict):
        return shortened(", ".join(f"{key}: {_line(item)}" for key, item in masked.items()))
    return shortened(_line(masked))


def shortened(text: str, length: int = BRIEF_LENGTH) -> str:
    return marked(text if len(text) <= length else text[: length - 1] + "…")


def characters(number: int) -> str:
    """Say how long a value is that is too long to be shown here."""
    return _("%(number)s characters") % {"number": f"{number:,}"}


def seconds(duration: float | None) -> str:
    """Return a duration in seconds, to the millisecond."""
    return EMPTY if duration is None else f"{duration:.3f} s"


def person(name: str, key: str, user_id: Any) -> str:
    """Return the name kept on a row, and say when that user is no more."""
    if not key:
        return EMPTY
    return marked(name if user_id is not None else _("%(name)s (deleted)") % {"name": name})


def age(moment: datetime) -> str:
    """Return how long ago `moment` was, with the time itself as a tooltip."""
    return _with_tooltip(timesince(moment, clock.now(), depth=1), moment)


def time_left(moment: datetime | None) -> str:
    """Return how long it is until `moment`, or that it is past."""
    if moment is None:
        return _("never")
    if moment <= clock.now():
        return _with_tooltip(_("over"), moment)
    return _with_tooltip(timeuntil(moment, clock.now(), depth=1), moment)


def _with_tooltip(text: str, moment: datetime) -> str:
    return format_html('<span title="{}">{}</span>', formatted(timezone.localtime(moment), "DATETIME_FORMAT"), text)


def _pieces(value: Any) -> list[tuple[str, bool]]:
    return visible.pieces(str(value))


def _escaped(mark: str) -> str:
    """Return the JSON escape of the character that a mark such as ⟨U+202E⟩ stands for."""
    return json.dumps(chr(int(mark.strip("⟨⟩").removeprefix("U+"), 16)))[1:-1]


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
