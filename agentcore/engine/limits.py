"""The limits of a turn and of what it may carry, and the errors that say one was met."""

from __future__ import annotations

from typing import Any

from agentcore.conf import settings
from agentcore.exceptions import AgentError, TurnFailure
from agentcore.tools import results
from agentcore.turns.work import Work


def has_time(work: Work) -> bool:
    """Say whether the turn may still work: what could not be run any more is not marked as begun."""
    return work.seconds_left() > 0


def require_time(work: Work) -> float:
    """Return how many seconds the turn may still work; raise TurnFailure when there are none."""
    left = work.seconds_left()
    if left <= 0:
        raise turn_timeout(work)
    return left


def turn_timeout(work: Work) -> TurnFailure:
    seconds = work.turn.turn_timeout
    return TurnFailure(f"The turn worked for longer than {seconds:g} seconds.", code="turn_timeout", seconds=seconds)


def is_last_step(work: Work) -> bool:
    """Say whether the reply in hand is the last one the turn may have; called before it is recorded."""
    return work.turn.step_count + 1 >= work.turn.max_steps


def max_steps(work: Work) -> TurnFailure:
    allowed = work.turn.max_steps
    return TurnFailure(
        f"The model still asked for tools in its last allowed reply ({allowed}).", code="max_steps", max_steps=allowed
    )


def told(failure: AgentError) -> dict[str, Any]:
    """Return an error as a turn's row keeps it: drivers and providers put anything into its words and details."""
    stored: dict[str, Any] = results.to_json(failure.as_dict())
    return stored


def cut(text: str) -> str:
    """Return a result as the model is shown it: cut, with a mark, when it is over MAX_RESULT_CHARS."""
    limit = settings.MAX_RESULT_CHARS
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[cut: the result has {len(text)} characters, the first {limit} are shown]"
