"""Find the state backend that the settings name."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from agentcore.conf import settings
from agentcore.exceptions import ConfigurationError
from agentcore.state import redis
from agentcore.state.base import StateBackend

BUILT_IN = {
    "memory": "agentcore.state.locmem.LocalState",
    "database": "agentcore.state.database.DatabaseState",
    "redis": "agentcore.state.redis.RedisState",
    "hybrid": "agentcore.state.hybrid.HybridState",
}
METHODS = ("is_up", "write", "read", "forget")


def current() -> StateBackend:
    """Return the backend of AGENTCORE["STATE_BACKEND"], one for the whole process; raise ConfigurationError."""
    return _made(settings.STATE_BACKEND)


def find_problem(name: str) -> str | None:
    """Return what is wrong with a STATE_BACKEND, None if nothing is."""
    try:
        _made(name)
    except ConfigurationError as mistake:
        return str(mistake)
    if name not in ("redis", "hybrid"):
        return None
    if not settings.REDIS_URL:
        return f"AGENTCORE['STATE_BACKEND'] is {name!r}, which needs AGENTCORE['REDIS_URL']."
    return redis.find_problem(settings.REDIS_URL)


@lru_cache(maxsize=8)
def _made(name: str) -> StateBackend:
    try:
        backend = import_string(BUILT_IN.get(name, name))()
    except (ImportError, TypeError) as error:
        raise ConfigurationError(
            f"AGENTCORE['STATE_BACKEND'] is {name!r}; it must be one of {', '.join(BUILT_IN)} or the dotted path of "
            f"a class that is made without arguments ({error})."
        ) from error
    missing = [method for method in METHODS if not callable(getattr(backend, method, None))]
    missing += [] if isinstance(getattr(backend, "is_hot", None), bool) else ["is_hot"]
    if missing:
        raise ConfigurationError(
            f"AGENTCORE['STATE_BACKEND'] is {name!r}, which is no StateBackend: it lacks {', '.join(missing)}."
        )
    return cast(StateBackend, backend)


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "AGENTCORE":
        _made.cache_clear()


setting_changed.connect(_forget, dispatch_uid="agentcore.state")
