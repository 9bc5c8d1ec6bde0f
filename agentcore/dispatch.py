"""Ask a worker to run a turn, after the commit. The row is the truth: what is lost here, the sweep sends again.

Nobody waits for a broker: messages are published by a thread of their own, whatever the broker does.
"""

from __future__ import annotations

import atexit
import heapq
import itertools
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import UUID

from celery import current_app
from celery.app import app_or_default
from django.db.models import F
from kombu import pools

from agentcore import clock, database
from agentcore.conf import settings
from agentcore.models import AgentContext
from agentcore.states import TurnState

logger = logging.getLogger("agentcore.dispatch")

# The name and the keyword are a published format: old workers meet new senders.
RUN_TURN = "agentcore.run_turn"
THREADS = 16
# What is not published by then, when the process ends, is left to the sweep.
FLUSH_SECONDS = 2.0
# A broker that says nothing for so long is down. Left to themselves, connections wait for its answer for ever.
BROKER_SECONDS = 5.0
# What drivers call that.
TIMEOUTS = {"redis": ("socket_timeout", "socket_connect_timeout"), "py-amqp": ("read_timeout", "write_timeout")}
# A message that comes a moment before its turn is due would be lost: clocks differ.
AFTER_DUE_SECONDS = 0.2
# Of more than that the broker is down: the sweep sends them when it is back.
MAX_UNPUBLISHED = 10_000


def run_turn(execution_id: UUID, *, after: float = 0.0) -> None:
    """Ask for the turn to be run once the open transaction is committed, `after` so many seconds.

    A copy that comes earlier finds the turn not due, and does nothing.
    """
    if after:
        database.on_commit(lambda: _send(str(execution_id), after + AFTER_DUE_SECONDS))
    else:
        database.on_commit(lambda: _send(str(execution_id)))


@contextmanager
def held() -> Iterator[None]:
    """Send nothing from this process meanwhile: for who works the queue off itself."""
    global _is_held
    _is_held = True
    try:
        yield
    finally:
        _is_held = False


def flush(seconds: float = FLUSH_SECONDS) -> bool:
    """Wait for up to `seconds` until what was sent is published; say whether it is."""
    return _publisher.wait_until_idle(seconds)


def work_off(seconds: float) -> bool:
    """Wait for up to `seconds` until what this process was sent is worked off or published; say whether it is."""
    return _workers.wait_until_idle(seconds) and _publisher.wait_until_idle(FLUSH_SECONDS)


def ping(seconds: float = BROKER_SECONDS) -> None:
    """Connect to the broker anew and have it answer; raise what that raises. Each wait takes at most `seconds`."""
    app = app_or_default()
    if not app.conf.task_always_eager:
        with app.connection_for_write(transport_options=_timeouts(app, seconds)) as connection:
            _connect(connection)


def _send(execution_id: str, after: float = 0.0) -> None:
    if _is_held:
        return
    if settings.DISPATCH == "thread":
        _alarms.submit(after, partial(_workers.submit, partial(_run_here, execution_id)))
        return
    # The app of this thread: another thread may have another one as its current.
    app = app_or_default()
    publish = partial(_publish, app, execution_id, after=after) if after else partial(_publish, app, execution_id)
    if app.conf.task_always_eager and after:
        # Eager tasks know no countdown. In a test case nobody else could see the turn: the sweep is left.
        if not database.is_in_test_case():
            _alarms.submit(after, partial(_workers.submit, partial(_run_here, execution_id)))
    elif app.conf.task_always_eager or database.is_in_test_case():
        publish()
    elif _publisher.unfinished < MAX_UNPUBLISHED:
        _publisher.submit(publish)


def _publish(app: Any, execution_id: str, after: float = 0.0) -> None:
    # The task object and not send_task(): that one ignores CELERY_TASK_ALWAYS_EAGER.
    task = app.tasks[RUN_TURN]
    options: dict[str, Any] = {"kwargs": {"execution_id": execution_id}, "queue": settings.CELERY_QUEUE, "retry": False}
    if after:
        options["countdown"] = after
    try:
        if app.conf.task_always_eager:
            task.apply_async(**options)
            return
        with _producers(app).acquire(block=True) as producer:
            _connect(producer.connection)
            task.apply_async(producer=producer, **options)
    except Exception:
        logger.warning(
            "The broker did not take a turn; the next sweep sends it again",
            exc_info=True,
            extra={"execution_id": execution_id},
        )
        _mark_unsent(execution_id)


def _producers(app: Any) -> Any:
    """Return the pool of producers whose connections do not wait for ever; the project's own options come first."""
    found = pools.producers[app.connection_for_write(transport_options=_timeouts(app, BROKER_SECONDS))]
    found.limit = app.pool.limit
    return found


def _timeouts(app: Any, seconds: float) -> dict[str, Any]:
    names = TIMEOUTS.get(app.connection_for_write().transport.driver_name, ())
    return {**dict.fromkeys(names, seconds), **app.conf.broker_transport_options}


def _connect(connection: Any) -> None:
    """Connect to the broker, each of its addresses tried at once and once more.

    Left to itself, sending sleeps between attempts even without retries: six seconds of each request.
    """
    connection.ensure_connection(max_retries=max(len(connection.alt), 1), interval_start=0, interval_step=0)


def _mark_unsent(execution_id: str) -> None:
    """Let the next sweep send a turn that was not sent after all; one that goes on later, the first one after that."""
    unsent = AgentContext.objects.filter(execution_id=execution_id, state=TurnState.QUEUED, dispatch_count__gt=0)
    before = {"dispatch_count": F("dispatch_count") - 1}
    if not unsent.due().update(**before, next_dispatch_at=clock.db_now()):
        unsent.exclude(due_at=None).update(**before, next_dispatch_at=F("due_at"))


def _run_here(execution_id: str) -> None:
    current_app.tasks[RUN_TURN](execution_id=execution_id)


class _Pool:
    """Daemon threads, made as they are needed and made anew in a forked process."""

    def __init__(self, name: str, size: int) -> None:
        self._name, self._size = name, size
        self._lock = threading.Lock()
        self._pid = 0
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._threads = 0
        self.unfinished = 0

    def submit(self, work: Callable[[], None]) -> None:
        with self._lock:
            if self._pid != os.getpid():
                self._pid = os.getpid()
                self._begin_anew()
            self.unfinished += 1
            self._waiting.put(work)
            if self._threads < min(self._size, self.unfinished):
                self._threads += 1
                name = f"agentcore-{self._name}-{self._threads}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()

    def wait_until_idle(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while self._pid == os.getpid() and self.unfinished and time.monotonic() < until:
            time.sleep(0.01)
        return not self.unfinished

    def _serve(self) -> None:
        while True:
            work = self._waiting.get()
            try:
                work()
            except Exception:
                logger.exception("A turn was left to the sweep")
            finally:
                database.release_connection()
                with self._lock:
                    self.unfinished -= 1


class _Alarms:
    """One daemon thread that does things at their time: a turn's, where there is no broker to keep it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pid = 0
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def submit(self, after: float, work: Callable[[], None]) -> None:
        """Do `work` in so many seconds; at once, and here, for 0."""
        if not after:
            work()
            return
        with self._changed:
            if self._pid != os.getpid():
                self._pid, self._waiting = os.getpid(), []
                threading.Thread(target=self._serve, name="agentcore-alarms", daemon=True).start()
            heapq.heappush(self._waiting, (time.monotonic() + after, next(self._numbers), work))
            self._changed.notify()

    def _serve(self) -> None:
        while True:
            with self._changed:
                while not self._waiting or self._waiting[0][0] > time.monotonic():
                    self._changed.wait(self._waiting[0][0] - time.monotonic() if self._waiting else None)
                _, _, work = heapq.heappop(self._waiting)
            work()


_is_held = False
_workers = _Pool("turns", THREADS)
_publisher = _Pool("publish", 1)
_alarms = _Alarms()
atexit.register(_publisher.wait_until_idle, FLUSH_SECONDS)
