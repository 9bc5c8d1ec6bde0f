"""What a model API asked everybody to wait for: nobody asks it before, in no process."""

from __future__ import annotations

from agentcore.resilience import shared

# An API that names a longer time is asked now and then all the same: it may have been a mistake.
LONGEST_SECONDS = 600.0


def begin(model: str, seconds: float) -> None:
    """Let nobody ask a model for so many seconds, as its API asked."""
    seconds = min(seconds, LONGEST_SECONDS)
    if seconds > seconds_left(model):
        shared.put(_name(model), shared.moment(seconds), seconds=seconds)
        _seen.add(model)


def seconds_left(model: str) -> float:
    """Return for how many seconds nobody should ask a model, 0.0 when it may be asked."""
    return max(shared.seconds_until(shared.get(_name(model)) or 0), 0.0)


def end(model: str) -> None:
    """Let a model be asked again at once."""
    shared.forget(_name(model))


def paused() -> list[str]:
    """Return the models that this process saw an API ask to leave alone, as far as they still are."""
    return [model for model in sorted(_seen) if seconds_left(model)]


def _name(model: str) -> str:
    return f"pause:{model}"


_seen: set[str] = set()
