"""Async twins of the runtime's verbs.

Short ones run in asgiref's thread, where the caller's transactions are. Those that work for long have a
thread of their own: they hold up neither the event loop nor the ORM calls of others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections

from agentcore import database

Twin = Callable[..., Awaitable[Any]]


def short(verb: Callable[..., Any]) -> Twin:
    """Return the twin of a verb that only reads or writes rows."""

    async def twin(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await sync_to_async(verb)(self, *args, **kwargs)

    return _named(twin, verb)


def long(verb: Callable[..., Any]) -> Twin:
    """Return the twin of a verb during which models and tools work."""

    async def twin(self: Any, *args: Any, **kwargs: Any) -> Any:
        if await sync_to_async(database.is_in_test_case)():
            return await sync_to_async(verb)(self, *args, **kwargs)
        await sync_to_async(database.require_no_transaction)(verb.__name__)
        return await sync_to_async(_apart, thread_sensitive=False)(verb, self, *args, **kwargs)

    return _named(twin, verb)


def _apart(verb: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        return verb(*args, **kwargs)
    finally:
        connections.close_all()


def _named(twin: Twin, verb: Callable[..., Any]) -> Twin:
    twin.__name__ = twin.__qualname__ = f"a{verb.__name__}"
    twin.__doc__ = f"Async twin of `{verb.__name__}`: {verb.__doc__}"
    return twin
