"""Find the people who may decide, as far as the project's authentication backends can list them."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from operator import or_
from typing import Any

from django.contrib.auth import get_backends, get_user_model
from django.contrib.auth.backends import BaseBackend, ModelBackend
from django.contrib.auth.models import PermissionsMixin
from django.db import connections
from django.db.models import Q, QuerySet

from agentcore import database
from agentcore.models import DECIDE_PERMISSION

logger = logging.getLogger("agentcore.approvals")

# What a backend answers has_perm with.
_GRANTING = (
    "has_perm",
    "get_all_permissions",
    "get_user_permissions",
    "get_group_permissions",
    "_get_user_permissions",
    "_get_group_permissions",
)


def find(permission: str, *, limit: int) -> list[Any] | None:
    """Return the keys of up to `limit` active users with all permissions; None when that cannot be known.

    `permission` is a request's: names separated by spaces, asked for besides `decide_toolapproval`.
    Permissions for single objects do not count: who has only those finds the request in no list.
    """
    try:
        backends = [backend for backend in get_backends() if _home(backend, _GRANTING) is not None]
        if not _users_are_usual() or not all(_can_list(backend) for backend in backends):
            return None
        with _savepoint():
            found = _holders((DECIDE_PERMISSION, *permission.split()), backends)
            return list(found.order_by().values_list("pk", flat=True)[:limit])
    except Exception:
        logger.exception("A backend could not list who has a permission; requests count as decidable")
        return None


def _holders(names: tuple[str, ...], backends: list[Any]) -> QuerySet[Any]:
    users: QuerySet[Any] = get_user_model()._default_manager.using(database.alias()).filter(is_active=True)
    for name in names:
        users = users.filter(reduce(or_, (_has(backend, name) for backend in backends), Q(is_superuser=True)))
    return users


def _has(backend: Any, name: str) -> Q:
    if type(backend).with_perm is not ModelBackend.with_perm:
        listed = backend.with_perm(name, is_active=True, include_superusers=True)
        return Q(pk__in=listed.using(database.alias()).values("pk"))
    # The same people as ModelBackend.with_perm finds, whose query takes minutes where a group has thousands of users.
    users: QuerySet[Any] = get_user_model()._default_manager.using(database.alias())
    app, _, codename = name.partition(".")
    own = users.filter(user_permissions__content_type__app_label=app, user_permissions__codename=codename)
    of_groups = users.filter(groups__permissions__content_type__app_label=app, groups__permissions__codename=codename)
    return Q(pk__in=own.values("pk")) | Q(pk__in=of_groups.values("pk"))


def _can_list(backend: Any) -> bool:
    """Say whether a backend can list who has a permission, by the same rules it grants it by."""
    granting, listing = _home(backend, _GRANTING), _home(backend, ("with_perm",))
    return granting is not None and listing is not None and listing <= granting


def _home(backend: Any, names: tuple[str, ...]) -> int | None:
    """Return how far up in a backend's class one of the names is defined; None where none is."""
    for distance, ancestor in enumerate(type(backend).__mro__):
        if ancestor is not BaseBackend and any(name in vars(ancestor) for name in names):
            return distance
    return None


def _savepoint() -> AbstractContextManager[Any]:
    """Keep what a backend's own query breaks out of the transaction that is open, if one is."""
    return database.atomic() if connections[database.alias()].in_atomic_block else nullcontext()


def _users_are_usual() -> bool:
    """Say whether the project's users ask their backends, and can be told active in a query."""
    user = get_user_model()
    asks = getattr(user, "has_perm", None) is PermissionsMixin.has_perm
    return asks and any(field.name == "is_active" for field in user._meta.get_fields())
