"""Empty the database after a transactional test by DELETE.

Django's flush truncates each table, which PostgreSQL does with new files, and makes permissions and content types
anew: an eighth of a second for each of well over a thousand tests, where deleting the few rows there are takes none.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.db import connections, transaction
from django.test import TransactionTestCase

# Made by migrate, and needed by every test; of these only what a test added goes.
KEPT = (Permission, ContentType)

_made_by_migrate: dict[str, dict[type, set[Any]]] = {}


def install() -> None:
    """Have transactional tests end so; call it once the test database is there."""
    for alias in connections:
        _made_by_migrate[alias] = {
            model: set(model._default_manager.using(alias).values_list("pk", flat=True)) for model in KEPT
        }
    TransactionTestCase._fixture_teardown = _empty_databases  # type: ignore[attr-defined]


def _empty_databases(case: Any) -> None:
    for alias in case._databases_names(include_mirrors=False):
        _empty(alias)


def _empty(alias: str) -> None:
    connection = connections[alias]
    kept = {model._meta.db_table for model in KEPT}
    tables = set(connection.introspection.django_table_names(only_existing=True, include_views=False)) - kept
    # Foreign keys are checked at the commit, on MariaDB at once.
    with transaction.atomic(using=alias), connection.constraint_checks_disabled(), connection.cursor() as cursor:
        for table in sorted(tables):
            cursor.execute(f"DELETE FROM {connection.ops.quote_name(table)}")
        for model in KEPT:
            model._default_manager.using(alias).exclude(pk__in=_made_by_migrate[alias][model]).delete()
    ContentType.objects.clear_cache()
