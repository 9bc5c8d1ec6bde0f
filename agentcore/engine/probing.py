"""Ask several parts at once and wait for all of them together, for so long and no longer.

Each question has a daemon thread. One that hangs is left behind, and is not asked again before it has answered: a part
that hangs for a day costs one thread, however often somebody asks.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from django.db import connections

from agentcore import clock

Probe = Callable[[], str]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a probe returned, or what it raised; neither when there was no answer in time."""

    detail: str | None = None
    error: Exception | None = None


NO_ANSWER = Answer()


def ask_all(
    probes: Mapping[str, Probe], *, seconds: Callable[[str], float], in_caller: bool = False
) -> dict[str, Answer]:
    """Return each probe's answer; one is waited for as long as `seconds` says of its name, all at the same time.

    With `in_caller` they run one after another in the calling thread, without a limit: inside Django's TestCase
    another thread would not see the test's rows.
    """
    if in_caller:
        return {name: _answer(probe) for name, probe in probes.items()}
    began_at = clock.monotonic()
    until = {name: began_at + seconds(name) for name in probes}
    asked = {name: _ask(name, probe, until[name]) for name, probe in probes.items()}
    return {name: question.wait(until[name]) for name, question in asked.items()}


@dataclass(kw_only=True)
class _Question:
    """One probe under way, with time until `until`. Whoever asks the same meanwhile waits for the same answer."""

    until: float
    pid: int = field(default_factory=os.getpid)
    answer: Answer = NO_ANSWER
    done: threading.Event = field(default_factory=threading.Event)

    def is_open(self) -> bool:
        # A forked process has the question but not the thread.
        return self.pid == os.getpid() and not self.done.is_set()

    def work(self, probe: Probe) -> None:
        try:
            self.answer = _answer(probe)
            connections.close_all()
        finally:
            self.done.set()

    def wait(self, until: float) -> Answer:
        # One that hangs has had its time: nobody waits for it once more.
        self.done.wait(max(min(until, self.until) - clock.monotonic(), 0))
        return self.answer


_lock = threading.Lock()
_under_way: dict[str, _Question] = {}


def _ask(name: str, probe: Probe, until: float) -> _Question:
    with _lock:
        known = _under_way.get(name)
        if known is not None and known.is_open():
            return known
        question = _under_way[name] = _Question(until=until)
    threading.Thread(target=question.work, args=(probe,), name=f"agentcore-health-{name}", daemon=True).start()
    return question


def _answer(probe: Probe) -> Answer:
    try:
        return Answer(detail=probe())
    except Exception as error:  # noqa: BLE001 - whoever asks is told, and logs it
        return Answer(error=error)
