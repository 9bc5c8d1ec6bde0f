"""What an address of a list may ask for: what its filters, search and links ask, and no field it masks.

Django takes any field of the model from the address. How many rows there are would then tell, letter by letter, what
a page does not show.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib.admin import ModelAdmin
from django.contrib.admin.utils import get_fields_from_path
from django.db.models import UUIDField
from django.http import HttpRequest


def is_offered(admin: ModelAdmin[Any], lookup: str, request: HttpRequest | None) -> bool:
    """Return whether a lookup is of the list's filters, search or dates, of its key, or of what a row belongs to."""
    filters = admin.list_filter if request is None else admin.get_list_filter(request)
    # What may be searched for by hand hides nothing either.
    searched = [name.lstrip("^=@") for name in admin.search_fields]
    offered = [*filters, *searched, *filter(None, [admin.date_hierarchy])]
    return lookup in _links(admin) or any(_asks(admin, item, lookup) for item in offered)


def _asks(admin: ModelAdmin[Any], item: Any, lookup: str) -> bool:
    """Return whether a lookup is one of an entry of `list_filter`: a field, one with its filter, or a filter alone."""
    if isinstance(item, type):
        return lookup == getattr(item, "parameter_name", None)
    path = item[0] if isinstance(item, list | tuple) else item
    field = get_fields_from_path(admin.model, path)[-1]
    if field.is_relation:
        # Not what lies behind it: the fields of another model have an admin of their own.
        return lookup in _of_relation(path, field)
    return lookup == path or lookup.startswith(f"{path}__")


def _links(admin: ModelAdmin[Any]) -> set[str]:
    """Return the lookups that lead from a record to what belongs to it: by a key, and exactly."""
    keys = {"pk", *(field.name for field in admin.opts.concrete_fields if _is_key(field))}
    exact = {*keys, *(f"{key}__exact" for key in keys), *(f"{key}__in" for key in keys)}
    relations = (field for field in admin.opts.concrete_fields if field.is_relation)
    return exact.union(*(_of_relation(field.name, field) for field in relations))


def _is_key(field: Any) -> bool:
    return bool(field.primary_key or isinstance(field, UUIDField))


def _of_relation(path: str, field: Any) -> Iterator[str]:
    yield from (path, f"{path}__exact", f"{path}__in", f"{path}__isnull")
    for target in getattr(field, "target_field", None), field.related_model._meta.pk:
        if target is not None:
            yield from (f"{path}__{target.name}", f"{path}__{target.name}__exact", f"{path}__{target.name}__in")
