"""The fields in which a person edits arguments: one for each, by its shape. They give back plain JSON.

What a person leaves as it was keeps its stored value to the last character, whatever a browser makes of line ends;
so does a secret that is left as its mask.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import date
from typing import Any

from django import forms
from django.utils.translation import gettext as _

from agentcore.approvals.visible import has_hidden
from agentcore.reviews import reading, shapes
from agentcore.reviews.shapes import Shape
from agentcore.tools import json_text
from agentcore.tools.masking import MASK

# The value is not there at all: the tool's own default holds.
ABSENT = object()
# Longer texts are not sent forth and back; they stay as they are.
MAX_EDITED = 50_000
LONG_LINE = 60
MAX_ROWS = 12

_INTEGER = re.compile(r"-?\d+", re.ASCII)
_LINE_END = re.compile("\r\n|\r")
# As the page they are edited in knows them; a masked value has no shape of its own.
_MASKABLE = (shapes.TEXT, shapes.INTEGER, shapes.NUMBER)


class ArgumentField(forms.Field):
    """One argument. `stored` is its value with secrets masked, ABSENT when the request has none."""

    def __init__(self, name: str, stored: Any, shape: Shape, *, is_required: bool, number: int) -> None:
        self.argument, self.stored, self.shape = name, stored, _fitting(shape, stored)
        self.is_asked_for = is_required
        self.start = _start(stored, self.shape)
        self.is_editable = len(self.start) <= MAX_EDITED
        super().__init__(required=False, label=name, help_text=self.shape.description, widget=self._make_widget())
        self.initial = self.start
        self.widget.attrs |= {"id": f"edit-argument-{number}", "autocomplete": "off"}

    @property
    def hint(self) -> str:
        """Return what a person must know to fill it in."""
        if not self.is_editable:
            return _("%(length)s characters: too long to edit here, it stays as it is.") % {"length": len(self.start)}
        if self.stored == MASK:
            return _("Left as ******** it keeps the secret.")
        empty = _("Left empty: no value.") if self.shape.nullable and self.shape.kind != shapes.JSON else ""
        return " ".join(part for part in (_hints().get(self.shape.kind, ""), empty) if part)

    @property
    def type_word(self) -> str:
        return _words().get(self.shape.kind, "")

    def clean(self, value: Any) -> Any:
        """Return the argument's value as JSON."""
        if value is None or not self.is_editable or is_same_text(value, self.start):
            return self.stored
        return self._read(_LINE_END.sub("\n", value))

    def _read(self, text: str) -> Any:
        if not text.strip() and self.shape.kind not in (shapes.TEXT, shapes.JSON):
            return self._read_nothing()
        if text == "" and (self.shape.nullable or self.stored is ABSENT):
            return None if self.shape.nullable else ABSENT
        return _READERS[self.shape.kind](text, self.shape)

    def _read_nothing(self) -> Any:
        if self.shape.nullable:
            return None
        if self.is_asked_for:
            raise forms.ValidationError(_("This is required."))
        return ABSENT

    def _make_widget(self) -> forms.Widget:
        if not self.is_editable:
            return forms.HiddenInput(attrs={"disabled": True})
        kind = self.shape.kind
        if kind in (shapes.CHOICE, shapes.BOOLEAN):
            return forms.Select(choices=self._options())
        if kind == shapes.JSON or (kind == shapes.TEXT and self._is_long()):
            rows = min(MAX_ROWS, max(2, self.start.count("\n") + 1, len(self.start) // LONG_LINE + 1))
            return forms.Textarea(attrs={"rows": rows, **({"class": "as-json"} if kind == shapes.JSON else {})})
        return forms.TextInput(attrs=_ATTRIBUTES.get(kind, {}))

    def _is_long(self) -> bool:
        return bool(len(self.start) > LONG_LINE or _LINE_END.search(self.start) or "\n" in self.start) or (
            (self.shape.max_length or 0) > LONG_LINE * 4
        )

    def _options(self) -> list[tuple[str, str]]:
        values = [True, False] if self.shape.kind == shapes.BOOLEAN else list(self.shape.choices)
        options = [(json.dumps(value, ensure_ascii=False), _option_word(value)) for value in values]
        has_none = self.shape.nullable or not self.is_asked_for or self.stored is ABSENT
        return [("", _("(no value)") if self.shape.nullable else _("(the default)")), *options] if has_none else options


def is_same_text(one: str, other: str) -> bool:
    """Say whether two texts differ in nothing but their line ends, of which browsers make their own."""
    return _LINE_END.sub("\n", one) == _LINE_END.sub("\n", other)


def _fitting(shape: Shape, stored: Any) -> Shape:
    if isinstance(stored, str) and has_hidden(stored.replace("\r\n", "\n")):
        # As JSON, where what does not show has an escape that does.
        is_fine = False
    else:
        is_fine = stored is ABSENT or shape.fits(stored) or (stored == MASK and shape.kind in _MASKABLE)
    return shape if is_fine else Shape(kind=shapes.JSON, description=shape.description, nullable=shape.nullable)


def _start(stored: Any, shape: Shape) -> str:
    """Return what the field holds at first."""
    if stored is ABSENT or (stored is None and shape.kind != shapes.JSON):
        return ""
    if stored == MASK or (isinstance(stored, str) and shape.kind not in (shapes.JSON, shapes.CHOICE)):
        return str(stored)
    if shape.kind == shapes.JSON:
        return reading.editable_json(stored)
    return json.dumps(stored, ensure_ascii=False)


def _option_word(value: Any) -> str:
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    return value if isinstance(value, str) and value.strip() else json.dumps(value, ensure_ascii=False)


def _read_integer(text: str, _shape: Shape) -> Any:
    if not _INTEGER.fullmatch(text.strip()) or len(text) > json_text.MAX_DIGITS:
        raise forms.ValidationError(_("Give a whole number."))
    return int(text)


def _read_number(text: str, _shape: Shape) -> Any:
    try:
        value = json_text.read(text.strip())
    except ValueError:
        value = None
    if value is None or isinstance(value, bool | str | list | dict) or not json_text.is_in_range(value):
        raise forms.ValidationError(_("Give a number, with a point: 49.90."))
    return value


def _read_date(text: str, _shape: Shape) -> Any:
    try:
        return date.fromisoformat(text.strip()).isoformat()
    except ValueError as error:
        raise forms.ValidationError(_("Give a date: 2026-12-31.")) from error


def _read_option(text: str, shape: Shape) -> Any:
    values = [True, False] if shape.kind == shapes.BOOLEAN else list(shape.choices)
    for value in values:
        if json.dumps(value, ensure_ascii=False) == text:
            return value
    raise forms.ValidationError(_("Choose one of the values offered."))


def _read_json(text: str, shape: Shape) -> Any:
    if not text.strip():
        raise forms.ValidationError(_("Give a value as JSON."))
    try:
        return json_text.read(text)
    except ValueError as error:
        raise forms.ValidationError(_("This is not valid JSON: %(problem)s."), params={"problem": error}) from error


_READERS: dict[str, Callable[[str, Shape], Any]] = {
    shapes.TEXT: lambda text, _shape: text,
    shapes.MOMENT: lambda text, _shape: text.strip(),
    shapes.INTEGER: _read_integer,
    shapes.NUMBER: _read_number,
    shapes.DATE: _read_date,
    shapes.BOOLEAN: _read_option,
    shapes.CHOICE: _read_option,
    shapes.JSON: _read_json,
}

# A number field of a browser changes when a mouse wheel turns over it, and drops what it cannot read.
_ATTRIBUTES: dict[str, dict[str, Any]] = {
    shapes.INTEGER: {"inputmode": "numeric"},
    shapes.NUMBER: {"inputmode": "decimal"},
    shapes.DATE: {"type": "date"},
}


def _words() -> dict[str, str]:
    return {
        shapes.TEXT: _("text"),
        shapes.INTEGER: _("whole number"),
        shapes.NUMBER: _("number"),
        shapes.BOOLEAN: _("yes or no"),
        shapes.CHOICE: _("one of these"),
        shapes.DATE: _("date"),
        shapes.MOMENT: _("date and time"),
        shapes.JSON: _("JSON"),
    }


def _hints() -> dict[str, str]:
    return {shapes.MOMENT: _("As in 2026-12-31T14:00:00+01:00.")}
