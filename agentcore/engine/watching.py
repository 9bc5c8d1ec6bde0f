"""Look now and then whether a model's answer is still wanted, without a connection for each one that is read."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from agentcore import database
from agentcore.models import AgentContext

logger = logging.getLogger("agentcore.engine")

LOOK_SECONDS = 1.0


class Watched(Protocol):
    """An answer that is being read."""

    @property
    def turn_pk(self) -> int: ...

    def look(self, row: tuple[int, str] | None) -> None:
        """Take the turn's token and state as they are now; None when there is no such turn any more."""


@contextmanager
def watched(answer: Watched, *, is_apart: bool) -> Iterator[None]:
    """Tell an answer how its turn stands while the block waits for it.

    Without `is_apart` nobody looks: inside Django's TestCase another connection would not see the turn.
    """
    if not is_apart:
        yield
        return
    _watcher.add(answer)
    try:
        yield
    finally:
        _watcher.remove(answer)


class _Watcher:
    """One daemon thread per process; one query a second tells of all the answers that are read."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._answers: dict[int, Watched] = {}
        self._pid = 0

    def add(self, answer: Watched) -> None:
        with self._changed:
            if self._pid != os.getpid():
                # A forked worker has the object but not the thread.
                self._pid, self._answers = os.getpid(), {}
                threading.Thread(target=self._work, name="agentcore-streams", daemon=True).start()
            self._answers[id(answer)] = answer
            self._changed.notify()

    def remove(self, answer: Watched) -> None:
        with self._changed:
            self._answers.pop(id(answer), None)

    def _work(self) -> None:
        pause = threading.Event()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._answers))
                early = set(self._answers)
            pause.wait(LOOK_SECONDS)
            with self._changed:
                read = [answer for key, answer in self._answers.items() if key in early]
            if read:
                self._look(read)

    def _look(self, read: list[Watched]) -> None:
        try:
            turns = AgentContext.objects.filter(pk__in=[answer.turn_pk for answer in read])
            rows = {pk: (token, state) for pk, token, state in turns.values_list("pk", "lease_token", "state")}
            for answer in read:
                answer.look(rows.get(answer.turn_pk))
        except Exception:
            logger.warning("The turns of streamed answers could not be read; tried again", exc_info=True)
        finally:
            database.release_connection()


_watcher = _Watcher()
