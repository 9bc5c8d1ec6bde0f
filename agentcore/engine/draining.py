"""Let a process finish: it takes no new turns, and gives those it has back at the end of the call in hand."""

from __future__ import annotations

import mmap
import os
import threading

from agentcore.turns.work import Work

# Shared with the processes forked from this one: Celery tells only the parent of its pool to stop.
_of_all = mmap.mmap(-1, 1)
_of_these: set[int] = set()


def start() -> None:
    """Ask this process to give back its turns."""
    _of_these.add(os.getpid())


def start_with_forks() -> None:
    """Ask this process, and those forked from it before and after, to give back their turns."""
    _of_all[0] = 1


def stop() -> None:
    """Take turns again."""
    _of_all[0] = 0
    _of_these.clear()


def is_on() -> bool:
    return _of_all[0] == 1 or os.getpid() in _of_these


def lets_go(work: Work) -> bool:
    """Say whether this worker gives a turn back before it begins anything more of it."""
    return is_on() or (work.audience is not None and work.audience.has_left)


class InHand:
    """Counts the turns this process works on."""

    def __init__(self) -> None:
        self._count = 0
        self._changed = threading.Condition()

    def __enter__(self) -> None:
        with self._changed:
            self._count += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def wait_for_none(self, timeout: float) -> bool:
        """Wait for up to `timeout` seconds until no turn is left; say whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: self._count == 0, timeout)


in_hand = InHand()
