"""Ask the model: find its provider, call it with no transaction or connection open, clean what comes back."""

from __future__ import annotations

import logging
from typing import Any, get_args

from agentcore import canonical, clock, database
from agentcore.engine import limits, patience, prompt, streaming, telling
from agentcore.engine.prompt import Conversation
from agentcore.exceptions import (
    AgentError,
    ConfigurationError,
    DriverUnavailable,
    ProviderBadReply,
    ProviderError,
    ProviderPostponed,
    ProviderTimeout,
    ProviderUnavailable,
    TurnFailure,
)
from agentcore.messages import FinishReason, ModelReply, ModelRequest, ToolRequest, ToolSpec, Usage
from agentcore.providers import registry as providers
from agentcore.providers.resilient import Resilient
from agentcore.turns.work import Work

logger = logging.getLogger("agentcore.engine")

# What a turn's sum of tokens can hold, a million replies of them.
MAX_COUNT = 10**12


def ask(work: Work, conversation: Conversation, specs: tuple[ToolSpec, ...]) -> tuple[ModelReply, float]:
    """Return the model's next reply and how many seconds it took; raise TurnFailure, or ProviderPostponed."""
    try:
        _, model = providers.split_model(work.pinned["model"])
        provider = patience.resilient(work)
    except ConfigurationError as error:
        raise DriverUnavailable(str(error), model=work.pinned["model"]) from error
    request = prompt.request(work, conversation, model=model, specs=specs)
    began = clock.monotonic()
    reply = _complete(work, provider, request)
    return _cleaned(reply), clock.monotonic() - began


def _complete(work: Work, provider: Resilient, request: ModelRequest) -> ModelReply:
    answer = streaming.Answer(work, provider, request)
    with database.given_back():
        work.lease.require_current()
        outcome = answer.wait()
    if not isinstance(outcome.error, ProviderError):  # attempts that failed were told of one by one
        telling.model_called(work, outcome, attempt=provider.attempts)
    gave_up_in_the_end = isinstance(outcome.error, ProviderTimeout) and not limits.has_time(work)
    if outcome.kind == "timed_out" or gave_up_in_the_end:
        raise limits.turn_timeout(work) from outcome.error
    if isinstance(outcome.error, ProviderPostponed):
        raise outcome.error
    if outcome.error is not None:
        raise _failure(work, outcome.error, answer.partial_text) from outcome.error
    if (problem := _problem(outcome.value)) is not None:
        raise TurnFailure(f"The provider returned {problem}.", kind=ProviderBadReply.__name__, retryable=False)
    reply: ModelReply = outcome.value
    return reply


def _problem(reply: Any) -> str | None:
    """Return what is wrong with a reply, whoever wrote its provider, or None."""
    if not isinstance(reply, ModelReply):
        return f"a {type(reply).__name__}, not a ModelReply"
    given: dict[str, Any] = vars(reply)  # what its types promise is not what a project's provider need put there
    if not isinstance(given["content"], str | None) or not isinstance(given["model"], str | None):
        return "a reply whose content or model is no text"
    if not isinstance(given["tool_calls"], tuple | list) or not all(map(_is_request, given["tool_calls"])):
        return "a reply whose tool_calls are not ToolRequests of text"
    if not isinstance(given["usage"], Usage) or not all(map(_is_count, vars(given["usage"]).values())):
        return f"a reply whose usage is not two whole numbers up to {MAX_COUNT}"
    return None


def _is_request(request: Any) -> bool:
    return isinstance(request, ToolRequest) and all(isinstance(text, str | None) for text in vars(request).values())


def _is_count(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= MAX_COUNT


def _failure(work: Work, error: BaseException, partial: str) -> AgentError:
    facts = {"execution_id": str(work.turn.execution_id), "model": work.pinned["model"]}
    if isinstance(error, ConfigurationError):
        logger.error("A model provider is not set up", exc_info=error, extra=facts)
        return DriverUnavailable(str(error), model=work.pinned["model"])
    if isinstance(error, ProviderUnavailable):
        logger.warning("The model was not asked", extra=facts)
        return patience.unavailable(error)
    if isinstance(error, ProviderError):
        logger.warning("The model did not answer", exc_info=error, extra=facts)
        return TurnFailure(
            f"The model did not answer: {error.message}",
            code="driver_error",
            kind=type(error).__name__,
            retryable=error.retryable,
            **_incomplete(partial),
        )
    logger.error("A model provider failed", exc_info=error, extra=facts)
    kind = type(error).__name__
    return TurnFailure(f"The model provider failed ({kind}).", code="driver_error", kind=kind)


def _incomplete(partial: str) -> dict[str, Any]:
    """Return what is kept of an answer that broke off: it is no message, and marked for what it is."""
    return {"incomplete": True, "text": limits.cut(partial)} if partial else {}


def _cleaned(reply: ModelReply) -> ModelReply:
    return ModelReply(
        content=canonical.clean_text(reply.content) if reply.content else None,
        tool_calls=tuple(
            ToolRequest(
                id=canonical.clean_text(call.id or ""),
                name=canonical.clean_text(call.name or ""),
                arguments=canonical.clean_text(call.arguments or ""),
            )
            for call in reply.tool_calls
        ),
        finish_reason=reply.finish_reason if reply.finish_reason in get_args(FinishReason) else "other",
        usage=reply.usage,
        model=canonical.clean_text(reply.model or ""),
    )
