"""Tell the project, by signals, what leaves no row of its own. A receiver that fails is logged and changes nothing."""

from __future__ import annotations

import logging
from typing import Any

from agentcore import signals
from agentcore.messages import ModelReply, Usage
from agentcore.signals import ModelCall
from agentcore.tools.execution import Outcome
from agentcore.turns.work import Work

logger = logging.getLogger("agentcore.signals")


def model_called(work: Work, outcome: Outcome, *, attempt: int) -> None:
    """Send `model_called` for the attempt that ended a model call."""
    has_reply = isinstance(outcome.value, ModelReply) and isinstance(outcome.value.usage, Usage)
    reply: ModelReply = outcome.value if has_reply else ModelReply(finish_reason="other")
    _send(
        work,
        attempt=attempt,
        seconds=outcome.duration,
        input_tokens=reply.usage.input_tokens,
        output_tokens=reply.usage.output_tokens,
        finish_reason=reply.finish_reason if has_reply else "",
        error="" if has_reply else _error(outcome),
    )


def model_failed(work: Work, error: Exception, *, attempt: int, seconds: float) -> None:
    """Send `model_called` for an attempt that failed, whether another one follows or not."""
    nothing: dict[str, Any] = {"input_tokens": 0, "output_tokens": 0, "finish_reason": ""}
    _send(work, attempt=attempt, seconds=seconds, error=type(error).__name__, **nothing)


def _send(work: Work, **fields: Any) -> None:
    # An attempt may end in its own thread and, at the same time, because its time is over.
    if not work.is_news((work.step.pk, fields["attempt"])):
        return
    provider, _, model = work.pinned["model"].partition(":")
    call = ModelCall(
        execution_id=str(work.turn.execution_id),
        session_id=work.turn.session.session_id,
        agent=work.turn.agent.name,
        provider=provider,
        model=model,
        **fields,
    )
    for receiver, problem in signals.model_called.send_robust(sender=ModelCall, call=call):
        if isinstance(problem, Exception):
            logger.error(
                "A receiver of model_called failed; nothing else is changed by that",
                exc_info=problem,
                extra={"execution_id": call.execution_id, "handler": repr(receiver)},
            )


def _error(outcome: Outcome) -> str:
    if outcome.kind == "timed_out":
        return "ProviderTimeout"
    return type(outcome.error).__name__ if outcome.error is not None else "ProviderBadReply"
