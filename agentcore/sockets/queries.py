"""Run the sockets' queries: in a few threads of their own, and with no database connection kept in between.

However many sockets are open, they use at most THREADS connections, and idle ones use none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from channels.db import DatabaseSyncToAsync
from django.db import InterfaceError, OperationalError

from agentcore import database

P = ParamSpec("P")
R = TypeVar("R")

THREADS = 8
# All of them only read. A database that restarts, or is locked for a moment, is asked again after these seconds.
PAUSES = (0.1, 0.5)

_threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="agentcore-sockets")


class Queries:
    """Runs the queries of one socket.

    Inside Django's TestCase they run in the test's thread: no other sees the test's rows.
    """

    def __init__(self) -> None:
        self._in_test_case: bool | None = None

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return what `function` returns; it may query, and must not write."""
        for pause in PAUSES:
            try:
                return await self._once(function, *args, **kwargs)
            except (OperationalError, InterfaceError):
                await asyncio.sleep(pause)
        return await self._once(function, *args, **kwargs)

    async def _once(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        if self._in_test_case is None:
            self._in_test_case = await sync_to_async(database.is_in_test_case)()
        if self._in_test_case:
            return await sync_to_async(function)(*args, **kwargs)
        call = DatabaseSyncToAsync(_and_release(function), thread_sensitive=False, executor=_threads)
        return await call(*args, **kwargs)


def _and_release(function: Callable[P, R]) -> Callable[P, R]:
    def query(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        finally:
            database.release_connection()

    return query
