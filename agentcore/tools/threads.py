"""Run code in a thread of its own, wait for so long, and keep account of threads that do not end.

Python cannot stop a thread: one that outlives its timeout is left behind, counted by `abandoned_threads()`, and its
late outcome is handed to `on_late`. The threads are daemons, so that none keeps the process from ending.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal

from asgiref.sync import AsyncToSync, ThreadSensitiveContext, async_to_sync, sync_to_async
from django.db import connections

from agentcore import clock

logger = logging.getLogger("agentcore.tools")

# Each one keeps its memory and whatever it holds for as long as the process lives.
MAX_ABANDONED = 100

Runner = Callable[[Coroutine[Any, Any, Any]], Any]
Converter = Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a call ended; `duration` is in seconds.

    `value` is set when it completed, `error` when it failed. A call that timed out has neither: it may go on.
    """

    kind: Literal["completed", "failed", "timed_out"]
    value: Any = None
    error: BaseException | None = None
    duration: float = 0.0


@dataclass(frozen=True)
class Bell:
    """Calls the waiting thread: after `event.set()`, from any thread, it runs `answer` and waits on.

    It does so by itself too, `every` so many seconds. What `answer` raises ends the waiting.
    """

    answer: Callable[[], None]
    event: threading.Event = field(default_factory=threading.Event)
    every: float | None = None


def has_room() -> bool:
    """Say whether another call may be started: a process with too many that hang starts none."""
    return _abandoned.count < MAX_ABANDONED


def abandoned_threads() -> int:
    """Return how many threads of this process still run a call that has timed out."""
    return _abandoned.count


class ThreadedCall:
    """One call in a thread of its own."""

    def __init__(
        self,
        function: Callable[[], Any],
        *,
        convert: Converter | None,
        on_late: Callable[[Outcome], None] | None,
        bell: Bell | None,
    ) -> None:
        self._function = function
        self._convert = convert
        self._on_late = on_late
        self._bell = bell or Bell(lambda: None)
        self._outcome: Outcome | None = None
        self._is_abandoned = False
        self._lock = threading.Lock()

    def wait(self, timeout: float | None) -> Outcome:
        """Start the call and return how it ended, or that it did not within `timeout` seconds."""
        started = clock.monotonic()
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._work,), name="agentcore-tool", daemon=True).start()
        try:
            self._listen(None if timeout is None else started + timeout)
        finally:
            # Also when the waiting itself is interrupted, by Ctrl-C or a task's time limit.
            outcome = self._outcome_or_abandon()
        return outcome or Outcome(kind="timed_out", duration=clock.monotonic() - started)

    def _listen(self, deadline: float | None) -> None:
        while self._outcome is None:
            left = None if deadline is None else deadline - clock.monotonic()
            if left is not None and left <= 0:
                return
            if self._bell.event.wait(_shorter(left, self._bell.every)) or self._bell.every is not None:
                self._bell.event.clear()
                self._bell.answer()

    def _outcome_or_abandon(self) -> Outcome | None:
        with self._lock:
            if self._outcome is None:
                self._is_abandoned = True
                _abandoned.add(1)
            return self._outcome

    def _work(self) -> None:
        outcome = attempt(self._function, run_in_own_loop, self._convert)
        _close_connections()
        with self._lock:
            self._outcome = outcome
        self._bell.event.set()
        if self._is_abandoned:
            self._finish_late(outcome)

    def _finish_late(self, outcome: Outcome) -> None:
        try:
            if self._on_late is not None:
                self._on_late(outcome)
        except Exception:
            # Nobody waits for this thread any more: the log is the only place left to tell it.
            logger.exception("late_result_lost")
        finally:
            _close_connections()
            _abandoned.add(-1)


def _shorter(left: float | None, every: float | None) -> float | None:
    return left if every is None else every if left is None else min(left, every)


class _Counter:
    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def add(self, number: int) -> None:
        with self._lock:
            self.count += number


_abandoned = _Counter()


def attempt(function: Callable[[], Any], run: Runner, convert: Converter | None) -> Outcome:
    """Call the function here, `run` the coroutine if it gives one, and tell how it ended."""
    started = clock.monotonic()
    try:
        value = function()
        # Also a plain function may hand out a coroutine: a decorator round an async one often does.
        value = run(value) if inspect.iscoroutine(value) else value
        value = convert(value) if convert else value
    except BaseException as error:
        # A tool that exits must not end the worker; Ctrl-C in the main thread is nobody's tool.
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise
        _let_go(error)
        return Outcome(kind="failed", error=error, duration=clock.monotonic() - started)
    return Outcome(kind="completed", value=value, duration=clock.monotonic() - started)


def _let_go(error: BaseException | None) -> None:
    """Forget what the tool's frames hold: a cursor that was left open keeps all of SQLite locked."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def run_in_own_loop(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in a new event loop of this thread, with a thread of its own for its ORM work."""

    async def work() -> Any:
        async with ThreadSensitiveContext():
            try:
                return await coroutine
            finally:
                # The ORM worked in the thread of this context; it ends with it.
                await sync_to_async(_close_connections)()

    # The copied context may name a caller's thread for ORM work; it waits for us, and would never do it.
    AsyncToSync.executors.current = None
    return asyncio.run(work())


def run_in_callers_thread(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine so that its ORM work is done by the calling thread, in its transaction."""

    async def work() -> Any:
        return await coroutine

    try:
        return async_to_sync(work)()
    finally:
        coroutine.close()


def _close_connections() -> None:
    try:
        connections.close_all()
    except Exception:
        logger.exception("tool_connection_not_closed")
