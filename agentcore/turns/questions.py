"""Questions to a turn's user: ask each once, and take its one answer. The only writer of UserQuestion."""

from __future__ import annotations

from typing import Any

from agentcore import canonical, database
from agentcore.events import log
from agentcore.events.kinds import EventType
from agentcore.events.log import Journal
from agentcore.exceptions import Conflict
from agentcore.models import AgentContext, AgentStep, ToolCall, UserQuestion
from agentcore.states import CallStatus, StepAction, TurnState
from agentcore.turns import calls, lifecycle
from agentcore.turns.enqueuing import Enqueued
from agentcore.turns.work import Work, as_one


@as_one
def ask(work: Work, call: ToolCall, *, question: str) -> None:
    """Put a call's question to the user, and let the turn wait for the answer."""
    with log.writing(work.turn.session) as journal:
        calls.require_open(call)
        journal.append(
            EventType.INPUT_REQUESTED,
            execution_id=work.turn.execution_id,
            question=question,
            call_id=call.call_id,
            step=work.step.number,
        )
        lifecycle.suspend_for_input(journal, work.turn, work.lease, question=question)
        UserQuestion.objects.create(turn=work.turn, call=call, question=question, asked_at=journal.now)
        AgentStep.objects.filter(pk=work.step.pk).update(action=StepAction.ASK_USER)
        work.step.action = StepAction.ASK_USER
    work.ended = True


@database.retried
def answer(turn: AgentContext, *, message: dict[str, Any], key: str, by: str, send: bool = True) -> Enqueued:
    """Give the question a turn waits for its answer: the turn is queued and, with `send`, dispatched.

    A key that this turn had an answer with gives the turn as it is, whatever became of it since. Raises Conflict
    for a known key with another answer, and for a turn that does not wait for input.
    """
    body = canonical.digest(message)
    with log.writing(turn.session_id) as journal:
        known = UserQuestion.objects.filter(turn=turn, idempotency_digest=canonical.text_digest(key)).first()
        if known is not None:
            _require_same_body(known, body)
        else:
            _take(journal, turn, message, key=key, body=body, by=by, send=send)
    return Enqueued(turn=lifecycle.get(turn.execution_id), duplicate=known is not None)


def _take(
    journal: Journal, turn: AgentContext, message: dict[str, Any], *, key: str, body: str, by: str, send: bool
) -> None:
    # Read under the session's lock: another answer, or the end of the turn, may have come first.
    turn = AgentContext.objects.get(pk=turn.pk)
    asked = UserQuestion.objects.filter(turn=turn, answered_at=None).select_related("call__step").last()
    if asked is None or turn.state != TurnState.WAITING_FOR_INPUT:
        raise Conflict(f"Turn {turn.execution_id} is {turn.state}; it does not wait for input.", state=turn.state)
    text = message["content"]
    _store(journal, asked, answer=text, key=key, body=body, by=by)
    journal.append(
        EventType.INPUT_RECEIVED,
        execution_id=turn.execution_id,
        answer=text,
        call_id=asked.call.call_id,
        step=asked.call.step.number,
        by=asked.answered_by,
    )
    calls.store_result(journal, turn, asked.call, CallStatus.COMPLETED, result=text)
    lifecycle.wake_answered(journal, turn, send=send)


def _store(journal: Journal, asked: UserQuestion, *, answer: str, key: str, body: str, by: str) -> None:
    asked.answer, asked.answered_at, asked.answered_by = answer, journal.now, by[:255]
    asked.idempotency_digest, asked.body_digest = canonical.text_digest(key), body
    asked.save(update_fields=["answer", "answered_at", "answered_by", "idempotency_digest", "body_digest"])


def _require_same_body(known: UserQuestion, body: str) -> None:
    if known.body_digest != body:
        raise Conflict(
            "This idempotency key was used for another answer. Send a new key with a new answer.",
            execution_id=str(known.turn.execution_id),
        )
