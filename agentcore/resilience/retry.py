"""When to ask a model again: exponential backoff with jitter, and never before the time an API named."""

from __future__ import annotations

import random
import threading

from agentcore import clock
from agentcore.conf import settings

# A wait longer than this is not slept: the turn goes back into the queue, and its worker is free.
LONGEST_SLEEP_SECONDS = 3.0
# A time that an API or a breaker named is the same for all who wait: they come back spread over so much of it.
SPREAD = 0.1
SHORTEST_SPREAD_SECONDS = 1.0


def attempts() -> int:
    """Return how often a model is asked for one reply at most, the first time included."""
    return int(settings.RETRY["attempts"])


def backoff(attempt: int, *, retry_after: float | None = None) -> float:
    """Return how many seconds to wait after attempt number `attempt` failed, at least `retry_after` of them."""
    initial, longest = float(settings.RETRY["initial"]), float(settings.RETRY["max"])
    # The exponent is bounded: a float has no room for the thousandth power.
    step = min(initial * 2.0 ** min(attempt - 1, 30), longest)
    pause = step * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
    return max(pause, spread(retry_after)) if retry_after else pause


def spread(seconds: float) -> float:
    """Return a wait for one of many who were all told `seconds`: never shorter, and not the same for all."""
    return seconds + random.uniform(0, max(seconds * SPREAD, SHORTEST_SPREAD_SECONDS))  # noqa: S311 - no secret


class Patience:
    """How a short wait is spent. Subclass it to end waits early: `is_over` is asked twice a second or so."""

    STEP_SECONDS = 0.25

    def sleep(self, seconds: float) -> float:
        """Wait; return 0.0, or how many seconds were left when it was over early."""
        until = clock.monotonic() + seconds
        while (left := until - clock.monotonic()) > 0:
            if self.is_over():
                return left
            threading.Event().wait(min(left, self.STEP_SECONDS))
        return 0.0

    def is_over(self) -> bool:
        """Say whether nobody should wait any longer."""
        return False
