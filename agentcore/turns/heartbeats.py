"""Heartbeats: each process of a worker says every HEALTH["interval"] seconds that it is there.

Rows, and no cache: whoever asks sees those of all processes. One thread per process writes them, whatever its turns
do; a row that was not renewed for a while is removed by the next one who writes.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from datetime import timedelta
from typing import Any

from django.db.models import QuerySet

from agentcore import clock, database
from agentcore.conf import settings
from agentcore.models import WorkerHeartbeat

logger = logging.getLogger("agentcore.workers")

# One beat may fail or be late before a worker counts as gone.
SEEN_WITHIN = 2
KEPT_FOR = 10


def beat() -> None:
    """Say that this process is there, and forget those that have not said so for long."""
    name, now = own_name(), clock.db_now()
    if not WorkerHeartbeat.objects.filter(name=name).update(seen_at=now):
        WorkerHeartbeat.objects.bulk_create([WorkerHeartbeat(name=name, started_at=now, seen_at=now)])
    WorkerHeartbeat.objects.filter(seen_at__lt=clock.db_now(plus=-_intervals(KEPT_FOR))).delete()


def seen() -> QuerySet[WorkerHeartbeat]:
    """Return the processes that were there within the last two intervals."""
    workers: QuerySet[WorkerHeartbeat] = WorkerHeartbeat.objects.order_by("name")
    return workers.filter(seen_at__gte=clock.db_now(plus=-_intervals(SEEN_WITHIN)))


def start() -> None:
    """Begin to beat in this process; once is enough, also after a fork."""
    _beater.start()


def own_name() -> str:
    """Return the name of this process, for people who look at the row."""
    return f"{socket.gethostname()}:{os.getpid()}"[:255]


def window_seconds() -> float:
    """Return for how long a worker counts as there after its last beat."""
    return float(settings.HEALTH["interval"] * SEEN_WITHIN)


def _intervals(number: int) -> timedelta:
    return timedelta(seconds=settings.HEALTH["interval"] * number)


class _Beater:
    """One daemon thread per process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = 0

    def start(self) -> None:
        with self._lock:
            if self._pid == os.getpid():
                return
            # A forked process has the object but not the thread.
            self._pid = os.getpid()
        threading.Thread(target=self._work, name="agentcore-heartbeat", daemon=True).start()

    def _work(self) -> None:
        pause: Any = threading.Event()
        while True:
            try:
                beat()
            except Exception:
                logger.exception("A worker could not say that it is there; it tries again")
            finally:
                database.release_connection()
            pause.wait(settings.HEALTH["interval"])


_beater = _Beater()
