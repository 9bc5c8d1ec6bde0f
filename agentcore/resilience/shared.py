"""Django's cache, as what all processes know of a model API, and this process's own memory while the cache fails.

A cache that does not answer costs each caller a second once, then nobody asks it for a while: what is kept
here makes things better and is never needed.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from django.core.cache import DEFAULT_CACHE_ALIAS, cache, caches

from agentcore import canonical, clock

T = TypeVar("T")

logger = logging.getLogger("agentcore.resilience")

# So long a cache may take to answer; so long it is left alone once it did not.
ANSWER_SECONDS = 1.0
# The first question loads the client and connects.
FIRST_ANSWER_SECONDS = 1.5
PAUSE_SECONDS = 10.0
# Whoever waited that long for it waits in vain: its connection is dead, and another one is opened.
LOST_SECONDS = 300.0
# These call no network and may be asked in the caller's thread; the dummy keeps nothing at all.
LOCAL = ("locmem", "filebased", "db")
DUMMY = "dummy"


def get(name: str) -> Any:
    """Return what is kept under a name, or None."""
    key = _key(name)
    return _ask(lambda: cache.get(key), lambda: _own.get(key))


def put(name: str, value: int, *, seconds: float) -> None:
    """Keep a value for so many seconds."""
    key = _key(name)
    _ask(lambda: cache.set(key, value, timeout=seconds), lambda: _own.put(key, value, seconds))


def add(name: str, value: int, *, seconds: float) -> bool:
    """Keep a value if nothing is kept under the name; of many who try at once, one is told True."""
    key = _key(name)
    return bool(_ask(lambda: cache.add(key, value, timeout=seconds), lambda: _own.add(key, value, seconds)))


def count(name: str, *, seconds: float) -> int:
    """Add one to a number that is forgotten after so many seconds, and return it."""
    key = _key(name)
    return int(_ask(lambda: _count(key, seconds), lambda: _own.count(key, seconds)))


def forget(*names: str) -> None:
    """Keep nothing under these names any more, the first one first."""
    keys = [_key(name) for name in names]
    _ask(lambda: [cache.delete(key) for key in keys], lambda: _own.forget(*keys))


def moment(seconds: float) -> int:
    """Return the time in so many seconds as it is kept: a whole number of milliseconds.

    Whole numbers are all that is kept here: Django's cache in Redis pickles everything else.
    """
    return int((clock.now().timestamp() + seconds) * 1_000)


def seconds_until(kept: int) -> float:
    """Return in how many seconds a moment is, below 0 when it is over."""
    return kept / 1_000 - clock.now().timestamp()


def _key(name: str) -> str:
    # Names hold what memcached does not take in a key.
    return f"agentcore:{canonical.text_digest(name)}"


def _count(key: str, seconds: float) -> int:
    cache.add(key, 0, timeout=seconds)
    try:
        return cache.incr(key)
    except ValueError:
        # It was forgotten in between.
        cache.add(key, 1, timeout=seconds)
        return 1


def _ask(shared: Callable[[], T], own: Callable[[], T]) -> T:
    """Return the cache's answer, or that of this process's memory where there is none."""
    backend = type(caches[DEFAULT_CACHE_ALIAS]).__module__.rsplit(".", 1)[-1]
    if backend == DUMMY or _clerk.is_resting():
        return own()
    try:
        return shared() if backend in LOCAL else _clerk.ask(shared)
    except Exception:
        logger.warning("The cache does not answer: this process is left to what it knows itself", exc_info=True)
        _clerk.rest()
        return own()


class _Own:
    """A few values in this process's memory, each until its time is over."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[Any, float]] = {}

    def get(self, key: str) -> Any:
        with self._lock:
            return self._get(key)

    def put(self, key: str, value: Any, seconds: float) -> None:
        with self._lock:
            self._kept[key] = (value, time.monotonic() + seconds)

    def add(self, key: str, value: Any, seconds: float) -> bool:
        with self._lock:
            if self._get(key) is not None:
                return False
            self._kept[key] = (value, time.monotonic() + seconds)
            return True

    def count(self, key: str, seconds: float) -> int:
        with self._lock:
            number = (self._get(key) or 0) + 1
            _, until = self._kept.get(key, (0, time.monotonic() + seconds))
            self._kept[key] = (number, until)
            return number

    def forget(self, *keys: str) -> list[bool]:
        with self._lock:
            return [self._kept.pop(key, None) is not None for key in keys]

    def _get(self, key: str) -> Any:
        value, until = self._kept.get(key, (None, 0.0))
        if value is not None and until <= time.monotonic():
            del self._kept[key]
            return None
        return value


class _Clerk:
    """One thread per process that asks the cache, so that nobody else waits for one that says nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rests_until = 0.0
        self._has_answered = False
        self._pid = 0
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._asked: queue.SimpleQueue[_Question] = queue.SimpleQueue()
        self._busy_since: float | None = None

    def is_resting(self) -> bool:
        return time.monotonic() < self._rests_until

    def rest(self) -> None:
        """Ask nothing for a while."""
        self._rests_until = time.monotonic() + PAUSE_SECONDS

    def wake(self) -> None:
        self._rests_until = 0.0

    def ask(self, question: Callable[[], T]) -> T:
        """Return the cache's answer; raise what it raises, or TimeoutError."""
        asked = _Question(question)
        with self._lock:
            if self._pid != os.getpid() or self._is_lost():
                self._pid = os.getpid()
                self._begin_anew()
                threading.Thread(target=self._work, args=(self._asked,), name="agentcore-cache", daemon=True).start()
            self._asked.put(asked)
        seconds = ANSWER_SECONDS if self._has_answered else FIRST_ANSWER_SECONDS
        if not asked.is_answered.wait(seconds):
            raise TimeoutError(f"The cache did not answer within {seconds:g} s.")
        self._has_answered = True
        if asked.error is not None:
            raise asked.error
        return asked.answer  # type: ignore[no-any-return]  # what the question returned

    def _is_lost(self) -> bool:
        """Say whether the thread hangs for so long that its connection will never say anything again."""
        return self._busy_since is not None and time.monotonic() - self._busy_since > LOST_SECONDS

    def _work(self, queue_of_mine: queue.SimpleQueue[_Question]) -> None:
        while queue_of_mine is self._asked:
            question = queue_of_mine.get()
            self._busy_since = time.monotonic()
            question.put()
            self._busy_since = None


class _Question:
    def __init__(self, question: Callable[[], Any]) -> None:
        self._question = question
        self.answer: Any = None
        self.error: Exception | None = None
        self.is_answered = threading.Event()

    def put(self) -> None:
        try:
            self.answer = self._question()
        except Exception as error:  # noqa: BLE001 - who asked raises it
            self.error = error
        self.is_answered.set()


_own = _Own()
_clerk = _Clerk()
