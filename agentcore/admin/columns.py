"""Columns and fields that show text as it is stored: escaped, hidden characters marked, records linked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.core.exceptions import FieldDoesNotExist
from django.db import models

from agentcore.admin import display

LinkTo = Callable[[Any, Any], str]


def shown(model: type[models.Model], name: Any, link: LinkTo) -> Any:
    """Return what shows a field of text or a related record visibly; any other name as it is."""
    if not isinstance(name, str):
        return name
    if name == "__str__":
        return _column(name, model._meta.verbose_name, None, str)
    try:
        field = model._meta.get_field(name)
    except FieldDoesNotExist:
        return name
    if isinstance(field, models.ForeignKey):
        return _column(name, field.verbose_name, name, lambda obj: link(getattr(obj, name), getattr(obj, name)))
    if isinstance(field, models.CharField | models.TextField) and not field.choices:
        return _column(name, field.verbose_name, name, lambda obj: getattr(obj, name))
    return name


def unlinked(record: Any, text: Any) -> str:
    """Show a related record in a list, where the row's own link is the one to follow."""
    return display.EMPTY if record is None else display.marked(text)


def _column(name: str, title: Any, ordering: str | None, read: Callable[[Any], Any]) -> Any:
    def column(obj: Any) -> str:
        value = read(obj)
        return value if hasattr(value, "__html__") else display.marked(value) or display.EMPTY

    column.__name__ = name
    return admin.display(description=title, ordering=ordering)(column)
