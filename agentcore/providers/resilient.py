"""What stands before every model: retries, a circuit breaker and rate limits, wrapped round a provider.

The only layer that asks a model again. Providers try each request once, and so do the SDKs below them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from django.db import DatabaseError

from agentcore import clock, database
from agentcore.conf import settings
from agentcore.exceptions import (
    ProviderAuthError,
    ProviderBadRequest,
    ProviderError,
    ProviderPostponed,
    ProviderRateLimited,
    ProviderUnavailable,
)
from agentcore.messages import ModelDelta, ModelReply, ModelRequest
from agentcore.providers.base import ModelProvider
from agentcore.resilience import circuit_breaker, pauses, rate_limit, retry
from agentcore.resilience.circuit_breaker import CircuitOpen, Permit
from agentcore.resilience.rate_limit import Allowance
from agentcore.resilience.retry import Patience

logger = logging.getLogger("agentcore.providers")

# The database that keeps the limit has a problem of its own: the turn is given back to it.
DATABASE_PAUSE_SECONDS = 5.0
# An answer, though not the wanted one: the API is there.
ANSWERS = (ProviderBadRequest, ProviderAuthError)

Told = Callable[[int, ProviderError], None]


def tell_nobody(attempts: int, error: ProviderError) -> None:
    """Do nothing: what `Resilient` calls after a failed attempt unless it is told otherwise."""


class Resilient(ModelProvider):
    """Asks a provider for one reply, up to RETRY["attempts"] times, and only when it may be asked.

    `model` is "provider:model", the name of its breaker; `allowance` is the provider's rate limit. `attempts` says how
    often the model was asked for this reply before. After each attempt that fails, `on_failure` is called with
    their number and the error, and before any wait. Short waits are slept, as long as `patience` allows;
    a longer one raises ProviderPostponed. Errors that asking again cannot mend are raised at once.
    """

    def __init__(
        self,
        provider: object,
        *,
        model: str,
        allowance: Allowance | None = None,
        attempts: int = 0,
        patience: Patience | None = None,
        on_failure: Told = tell_nobody,
    ) -> None:
        self._provider: ModelProvider = provider  # type: ignore[assignment]  # any class with its methods
        self._model = model
        self._allowance = allowance
        self._attempts = attempts
        self._patience = patience or Patience()
        self._on_failure = on_failure
        self._began = clock.monotonic()

    @property
    def provider(self) -> ModelProvider:
        """What is asked."""
        return self._provider

    @property
    def attempts(self) -> int:
        """How often the model was asked for this reply by now."""
        return self._attempts

    @property
    def seconds(self) -> float:
        """For how long the attempt in hand has lasted, or the last one until now."""
        return clock.monotonic() - self._began

    def complete(self, request: ModelRequest) -> ModelReply:
        """Return the model's whole answer; request.timeout covers all attempts and short waits."""
        until = clock.monotonic() + request.timeout
        while True:
            with self._attempt(until):
                return self._provider.complete(_in_time(request, until))

    def stream(self, request: ModelRequest) -> Iterator[ModelDelta | ModelReply]:
        """Yield text and, last, the reply. A delta of a higher `attempt` voids all text before it."""
        until = clock.monotonic() + request.timeout
        highest = 0
        while True:
            with self._attempt(until) as number:
                # A provider may count attempts of its own: each of ours begins above all that came before.
                below = max(highest, number - 1)
                for item in self._pieces(_in_time(request, until)):
                    if isinstance(item, ModelDelta):
                        item = replace(item, attempt=below + item.attempt)
                        highest = max(highest, item.attempt)
                    yield item
                return

    def close(self) -> None:
        """Do nothing: the provider is shared, and belongs to the registry."""

    def _pieces(self, request: ModelRequest) -> Iterator[ModelDelta | ModelReply]:
        # A project's provider need not inherit ours.
        stream = getattr(self._provider, "stream", None)
        return stream(request) if stream else ModelProvider.stream(self._provider, request)

    @contextmanager
    def _attempt(self, until: float) -> Iterator[int]:
        """Be one attempt, and give its number; return without an error when another one may follow."""
        permit = self._enter(until)
        self._attempts += 1
        self._began = clock.monotonic()
        # It may have been used for the rate limit: nothing is held while the model works.
        database.release_connection()
        try:
            yield self._attempts
        except ProviderError as error:
            _tell_breaker(permit, error)
            self._wait_after(error, until)
        except BaseException:
            permit.withdraw()
            raise
        else:
            permit.succeeded()

    def _enter(self, until: float) -> Permit:
        """Return once the model may be asked: the API's own pause, the breaker and the rate limit allow it."""
        while True:
            left = pauses.seconds_left(self._model)
            if left:
                self._wait(retry.spread(left), until, "its API asked to wait")
                continue
            permit = self._pass_breaker(until)
            wait = self._take_one(permit)
            if not wait:
                return permit
            permit.withdraw()
            self._wait(wait, until, "its provider's rate limit is reached")

    def _pass_breaker(self, until: float) -> Permit:
        while True:
            try:
                return circuit_breaker.enter(self._model)
            except CircuitOpen as is_open:
                if settings.BREAKER_OPEN == "fail":
                    raise ProviderUnavailable(
                        f"The model {self._model!r} failed again and again and is left alone for a while; try later.",
                        retry_after=round(is_open.seconds, 1),
                    ) from None
                wait = retry.spread(is_open.seconds)
            self._wait(wait, until, "it failed again and again and is left alone for a while")

    def _take_one(self, permit: Permit) -> float:
        if self._allowance is None:
            return 0.0
        try:
            return rate_limit.take(self._allowance.name, self._allowance.rate)
        except DatabaseError:
            logger.warning("A rate limit could not be read; the model is not asked", exc_info=True)
            return DATABASE_PAUSE_SECONDS

    def _wait_after(self, error: ProviderError, until: float) -> None:
        """Wait until the next attempt; raise the error when there is none."""
        self._on_failure(self._attempts, error)
        if isinstance(error, ProviderRateLimited) and error.retry_after:
            pauses.begin(self._model, error.retry_after)
        if not error.retryable or self._attempts >= retry.attempts():
            raise error
        wait = retry.backoff(self._attempts, retry_after=error.retry_after)
        logger.info(
            "A model is asked again",
            extra={"model": self._model, "attempt": self._attempts + 1, "kind": type(error).__name__, "wait": wait},
        )
        self._wait(wait, until, error.message)

    def _wait(self, seconds: float, until: float, reason: str) -> None:
        too_long = seconds > retry.LONGEST_SLEEP_SECONDS or seconds >= until - clock.monotonic()
        left = seconds if too_long else self._patience.sleep(seconds)
        if left:
            raise ProviderPostponed(
                f"The model {self._model!r} cannot be asked now: {reason}", retry_after=left, attempts=self._attempts
            )


def _in_time(request: ModelRequest, until: float) -> ModelRequest:
    return replace(request, timeout=max(until - clock.monotonic(), 0.001))


def _tell_breaker(permit: Permit, error: ProviderError) -> None:
    if isinstance(error, ProviderRateLimited):
        # It works, and has its own way to say when to come again.
        permit.withdraw()
    elif error.retryable:
        permit.failed()
    elif isinstance(error, ANSWERS):
        permit.succeeded()
    else:
        permit.withdraw()
