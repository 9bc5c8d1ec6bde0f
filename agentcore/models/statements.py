"""INSERT and UPDATE straight from a model's fields: what the engine writes at each step.

Django's querysets work the same statements out from nothing each time, and most of a step's time went there. The
values are adapted by the fields themselves, as Django does it; the statements are plain SQL on every database.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connections
from django.db.models import Field, Model

from agentcore import database
from agentcore.clock import DatabaseNow


@dataclass(frozen=True)
class Plus:
    """Stands for a column's value plus `number`."""

    number: float


def insert(rows: Sequence[Model]) -> None:
    """Insert rows of one model, and give each its key."""
    if not rows:
        return
    model, connection = type(rows[0]), connections[database.alias()]
    if not connection.features.can_return_rows_from_bulk_insert:
        for row in rows:
            row.save(force_insert=True, using=connection.alias)
        return
    fields = [field for field in model._meta.concrete_fields if not field.primary_key]
    size = max(connection.ops.bulk_batch_size(fields, list(rows)), 1)
    for start in range(0, len(rows), size):
        _insert(connection, model, fields, rows[start : start + size])


def update(model: type[Model], where: Mapping[str, Any], /, **values: Any) -> int:
    """Change the rows that have all the values of `where`; return how many there were.

    In `where`, None is NULL, and a list stands for any of its values. A new value may be `Plus` or `clock.db_now()`.
    """
    connection = connections[database.alias()]
    quote = connection.ops.quote_name
    changes: list[str] = []
    params: list[Any] = []
    for field, value in _fields(model, values):
        text, given = _assigned(quote(field.column), field, value, connection)
        changes.append(text)
        params.extend(given)
    conditions: list[str] = []
    for field, value in _fields(model, where):
        text, given = _compared(quote(field.column), field, value, connection)
        conditions.append(text)
        params.extend(given)
    # The names are those of our own models; every value is a parameter.
    sql = f"UPDATE {quote(model._meta.db_table)} SET {', '.join(changes)} WHERE {' AND '.join(conditions)}"  # noqa: S608
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        count: int = cursor.rowcount
    return count


def has_rows(model: type[Model]) -> bool:
    """Say whether there is any row of a model."""
    connection = connections[database.alias()]
    table = connection.ops.quote_name(model._meta.db_table)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT 1 FROM {table} LIMIT 1")  # noqa: S608
        return cursor.fetchone() is not None


def _insert(connection: Any, model: type[Model], fields: Sequence[Field[Any, Any]], rows: Sequence[Model]) -> None:
    meta, quote = model._meta, connection.ops.quote_name
    key = meta.pk
    places: list[str] = []
    params: list[Any] = []
    for row in rows:
        values = [_placed(field, field.pre_save(row, True), connection) for field in fields]
        places.append(f"({', '.join(text for text, _ in values)})")
        params.extend(param for _, given in values for param in given)
    columns = ", ".join(quote(field.column) for field in fields)
    table, all_places = quote(meta.db_table), ", ".join(places)
    sql = f"INSERT INTO {table} ({columns}) VALUES {all_places} RETURNING {quote(key.column)}"  # noqa: S608
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        keys = cursor.fetchall()
    for row, (value,) in zip(rows, keys, strict=True):
        setattr(row, key.attname, value)
        row._state.adding, row._state.db = False, connection.alias


def _fields(model: type[Model], values: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    meta = model._meta
    for name, value in values.items():
        yield (meta.pk if name == "pk" else meta.get_field(name)), value


def _assigned(column: str, field: Field[Any, Any], value: Any, connection: Any) -> tuple[str, Sequence[Any]]:
    if isinstance(value, Plus):
        return f"{column} = {column} + %s", (value.number,)
    text, params = _placed(field, value, connection)
    return f"{column} = {text}", params


def _placed(field: Field[Any, Any], value: Any, connection: Any) -> tuple[str, Sequence[Any]]:
    if isinstance(value, DatabaseNow):
        return value.as_vendor(connection)
    return "%s", (field.get_db_prep_save(_key_of(value), connection),)


def _compared(column: str, field: Field[Any, Any], value: Any, connection: Any) -> tuple[str, Sequence[Any]]:
    if value is None:
        return f"{column} IS NULL", ()
    if isinstance(value, list | tuple | set | frozenset):
        params = [field.get_db_prep_save(_key_of(item), connection) for item in value]
        return f"{column} IN ({', '.join(['%s'] * len(params))})", params
    return f"{column} = %s", (field.get_db_prep_save(_key_of(value), connection),)


def _key_of(value: Any) -> Any:
    return value.pk if isinstance(value, Model) else value
