"""A circuit breaker per model, shared by all processes: a model API that fails is left alone, then probed by one call.

Closed: calls go through, and failures in a row are counted. Open: none goes through for `reset_timeout` seconds. Half
open, from then on: one call, the probe, goes through; when it succeeds the breaker closes, when it fails it opens anew.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from agentcore.conf import settings
from agentcore.resilience import pauses, shared

State = Literal["closed", "open", "half_open", "paused"]

# A probe that has not come back by then is lost, and another one may go.
PROBE_SECONDS = 60.0
# Failures this far apart are no row of failures; an open breaker that nobody asks about for a day is forgotten.
MEMORY_SECONDS = 3600.0
OPEN_SECONDS = 86_400.0
# How long those wait whom the one probe keeps out.
SHORTEST_RECHECK_SECONDS, LONGEST_RECHECK_SECONDS = 1.0, 10.0


class CircuitOpen(Exception):
    """No call may go through now; ask again in `seconds`."""

    def __init__(self, model: str, seconds: float) -> None:
        super().__init__(f"The circuit breaker of {model!r} is open.")
        self.seconds = seconds


@dataclass(frozen=True, kw_only=True)
class Permit:
    """Leave for one call; say afterwards how it went. One of the three, once."""

    model: str
    is_probe: bool = False

    def succeeded(self) -> None:
        """The API answered: failures start to be counted anew, and a breaker whose probe this was closes."""
        if settings.CIRCUIT_BREAKER is None:
            return
        if self.is_probe:
            shared.forget(_open(self.model), _failures(self.model), _probe(self.model))
        elif shared.get(_failures(self.model)) is not None:
            shared.forget(_failures(self.model))

    def failed(self) -> None:
        """The API failed. At `failure_threshold` failures in a row, or when this was the probe, the breaker opens."""
        if settings.CIRCUIT_BREAKER is None:
            return
        failures = shared.count(_failures(self.model), seconds=MEMORY_SECONDS)
        if self.is_probe or failures >= settings.CIRCUIT_BREAKER["failure_threshold"]:
            _open_now(self.model)
        self.withdraw()

    def withdraw(self) -> None:
        """The call says nothing about the API: it was not made, or broken off by us."""
        if self.is_probe:
            shared.forget(_probe(self.model))


def enter(model: str) -> Permit:
    """Return leave for one call of a model; raise CircuitOpen."""
    if settings.CIRCUIT_BREAKER is None or not _is_open(model):
        return Permit(model=model)
    if not shared.add(_probe(model), 1, seconds=max(PROBE_SECONDS, settings.CIRCUIT_BREAKER["reset_timeout"])):
        raise CircuitOpen(model, _recheck_seconds())
    # Between the look and the probe another probe may have come back.
    permit = Permit(model=model, is_probe=True)
    try:
        if not _is_open(model):
            permit.withdraw()
            return Permit(model=model)
    except CircuitOpen:
        permit.withdraw()
        raise
    return permit


def states(models: Collection[str] = ()) -> dict[str, State]:
    """Return the state of each of `models`, and of what else this process saw fail and has not seen recover.

    Without CIRCUIT_BREAKER only pauses are told of.
    """
    if settings.CIRCUIT_BREAKER is None:
        return dict.fromkeys([model for model in {*models, *pauses.paused()} if pauses.seconds_left(model)], "paused")
    found = {model: state(model) for model in sorted({*models, *_opened, *pauses.paused()})}
    _opened.difference_update(model for model, known in found.items() if known == "closed")
    return {model: known for model, known in found.items() if known != "closed" or model in models}


def state(model: str) -> State:
    """Return the state of one model's breaker, or that it is closed and the API asked for a pause."""
    until = shared.get(_open(model))
    if until is None or settings.CIRCUIT_BREAKER is None:
        return "paused" if pauses.seconds_left(model) else "closed"
    return "open" if shared.seconds_until(until) > 0 else "half_open"


def reset(model: str) -> None:
    """Close a model's breaker, forget its failures, and end the pause that its API asked for."""
    pauses.end(model)
    shared.forget(_open(model), _failures(model), _probe(model))


def _is_open(model: str) -> bool:
    """Say whether only a probe may go through; raise CircuitOpen when not even that."""
    until: int | None = shared.get(_open(model))
    if until is None:
        return False
    left = shared.seconds_until(until)
    if left > 0:
        raise CircuitOpen(model, left)
    return True


def _open_now(model: str) -> None:
    seconds = settings.CIRCUIT_BREAKER["reset_timeout"]
    shared.put(_open(model), shared.moment(seconds), seconds=seconds + OPEN_SECONDS)
    _opened.add(model)


def _recheck_seconds() -> float:
    third: float = settings.CIRCUIT_BREAKER["reset_timeout"] / 3
    return min(max(third, SHORTEST_RECHECK_SECONDS), LONGEST_RECHECK_SECONDS)


def _open(model: str) -> str:
    return f"breaker:{model}:open"


def _failures(model: str) -> str:
    return f"breaker:{model}:failures"


def _probe(model: str) -> str:
    return f"breaker:{model}:probe"


_opened: set[str] = set()
