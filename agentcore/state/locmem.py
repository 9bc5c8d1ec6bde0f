"""Hot copies in this process's own memory: for development, and for one process that needs no more."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from agentcore import clock
from agentcore.state.base import Phase, seconds_to_live

# The turns whose copies are kept; of more, those go that were not written for the longest time.
MAX_TURNS = 1_000


class _Copy(NamedTuple):
    fields: dict[str, str]
    until: float | None


class LocalState:
    """A bounded number of copies, gone with the process."""

    is_hot = True

    def __init__(self, max_turns: int = MAX_TURNS) -> None:
        self._max_turns = max_turns
        self._lock = threading.Lock()
        self._copies: OrderedDict[str, _Copy] = OrderedDict()

    def is_up(self) -> bool:
        return True

    def write(self, execution_id: str, fields: Mapping[str, str], *, phase: Phase) -> bool:
        seconds = seconds_to_live(phase)
        until = None if seconds is None else clock.monotonic() + seconds
        with self._lock:
            self._copies[execution_id] = _Copy({**self._fields(execution_id), **fields}, until)
            self._copies.move_to_end(execution_id)
            while len(self._copies) > self._max_turns:
                self._copies.popitem(last=False)
        return True

    def read(self, execution_id: str) -> dict[str, str]:
        with self._lock:
            return dict(self._fields(execution_id))

    def forget(self, execution_id: str) -> bool:
        with self._lock:
            return self._copies.pop(execution_id, None) is not None

    def _fields(self, execution_id: str) -> dict[str, str]:
        copy = self._copies.get(execution_id)
        if copy is None:
            return {}
        if copy.until is not None and copy.until <= clock.monotonic():
            del self._copies[execution_id]
            return {}
        return copy.fields
