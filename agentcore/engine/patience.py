"""Ask models with patience: what stands before a turn's provider, and what becomes of a turn that must wait for it."""

from __future__ import annotations

import logging

from django.db import DatabaseError

from agentcore import database
from agentcore.engine import draining, limits, telling
from agentcore.engine.tool_context import CancelCheck
from agentcore.exceptions import ProviderError, ProviderPostponed, ProviderUnavailable, TurnFailure
from agentcore.providers import registry as providers
from agentcore.providers.resilient import Resilient
from agentcore.resilience.retry import Patience
from agentcore.turns import steps
from agentcore.turns.work import Work

logger = logging.getLogger("agentcore.engine")


def resilient(work: Work) -> Resilient:
    """Return the provider of a turn's model, with its retries, breaker and limits; raise ConfigurationError."""
    model: str = work.pinned["model"]
    name, _ = providers.split_model(model)
    asked = Resilient(
        providers.get_provider(name),
        model=model,
        allowance=providers.get_allowance(name),
        attempts=work.step.failed_attempts,
        patience=_PatienceOf(work),
        on_failure=lambda attempts, error: _take_failure(work, asked, error),
    )
    return asked


def postpone(work: Work, later: ProviderPostponed) -> None:
    """Give a turn back until its model can be asked; raise TurnFailure when that is too late for it."""
    # One that failed when the turn's time was over: that is why the turn ends.
    limits.require_time(work)
    waited = work.step.waited_seconds + later.seconds
    if later.seconds > work.seconds_left() or waited > work.turn.turn_timeout:
        raise TurnFailure(
            f"{later.message.rstrip('.')}. That would take {later.seconds:.0f} more seconds, longer than this turn may "
            "take.",
            code="unavailable",
            kind=type(later).__name__,
            retryable=True,
            retry_after=round(later.seconds, 1),
            attempts=later.attempts,
        )
    steps.postpone(work, seconds=later.seconds, attempts=later.attempts, reason="long retry")


def unavailable(error: ProviderUnavailable) -> TurnFailure:
    """Return why a turn failed whose model was not asked at all."""
    facts = {"kind": type(error).__name__, "retryable": True, "retry_after": error.retry_after}
    return TurnFailure(error.message, code="unavailable", **facts)


def _take_failure(work: Work, asked: Resilient, error: ProviderError) -> None:
    telling.model_failed(work, error, attempt=asked.attempts, seconds=asked.seconds)
    _count(work, asked.attempts, error)


def _count(work: Work, attempts: int, error: ProviderError) -> None:
    # A worker that takes over goes on counting. Where asking again cannot help, the turn ends with this attempt.
    if not error.retryable:
        return
    try:
        steps.count_failures(work, attempts)
    except DatabaseError:
        logger.warning("An attempt could not be counted", exc_info=True, extra={"model": work.pinned["model"]})
    database.release_connection()


class _PatienceOf(Patience):
    """Waits no longer than the turn is this worker's to work on."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._is_cancelled = CancelCheck(work)

    def is_over(self) -> bool:
        return draining.is_on() or not self._work.lease.is_current() or self._is_cancelled()
