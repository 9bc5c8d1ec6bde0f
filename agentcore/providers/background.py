"""One event loop in a thread of its own, where providers talk to model APIs.

A blocking HTTP client bounds each read, not the request: a server that sends one byte now and then holds
its caller for ever. A coroutine can be stopped at its deadline, wherever it waits.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import aclosing
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the coroutine's result to a caller in any thread; it is cancelled if the caller is interrupted."""
    future = asyncio.run_coroutine_threadsafe(coroutine, loop())
    try:
        return future.result()
    finally:
        future.cancel()


def iterate(source: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    """Yield what `source` yields to a caller in any thread; it is closed when the caller stops early."""
    items: SimpleQueue[tuple[T] | None] = SimpleQueue()
    future = asyncio.run_coroutine_threadsafe(_pump(source, items.put), loop())
    future.add_done_callback(lambda _: items.put(None))
    try:
        while (item := items.get()) is not None:
            yield item[0]
        future.result()
    finally:
        future.cancel()


def loop() -> asyncio.AbstractEventLoop:
    """Return this process's loop, started at the first call."""
    return _holder.get()


async def _pump(source: AsyncGenerator[T, None], put: Callable[[tuple[T]], None]) -> None:
    async with aclosing(source):
        async for item in source:
            put((item,))


class _Holder:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def get(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="agentcore-providers", daemon=True).start()
            return self._loop


def _start_anew() -> None:
    global _holder
    _holder = _Holder()


_holder = _Holder()
# A forked worker has the parent's loop but not the thread that runs it.
os.register_at_fork(after_in_child=_start_anew)
