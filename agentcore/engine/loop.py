"""Run a turn: ask the model, record its reply, act on it, until the turn ends or waits for people."""

from __future__ import annotations

import logging
from uuid import UUID

from django.db import DatabaseError

from agentcore import database, logs
from agentcore.agents.definition import AgentDefinition
from agentcore.agents.registry import registry
from agentcore.approvals import requests
from agentcore.drivers import registry as drivers
from agentcore.engine import (
    asking,
    calling,
    draining,
    driving,
    fruitless,
    gating,
    limits,
    model_calls,
    patience,
    recalling,
    remembering,
    retrieving,
    streaming,
    tool_calls,
)
from agentcore.engine.prompt import Conversation
from agentcore.events import log
from agentcore.exceptions import (
    AgentError,
    ConfigurationError,
    DriverUnavailable,
    LeaseLost,
    ProviderPostponed,
    TurnCancelled,
    TurnFailure,
)
from agentcore.messages import ModelReply
from agentcore.models import ToolCall
from agentcore.states import CallStatus, TurnState
from agentcore.tools import execution
from agentcore.turns import calls, claims, leases, lifecycle, steps
from agentcore.turns.work import Audience, Work, as_one

logger = logging.getLogger("agentcore.engine")

# The seconds for which a turn waits for a database that failed it, one after another.
LONG_PAUSES = (0.5, 2.0, 5.0)


def run(execution_id: UUID | str, *, audience: Audience | None = None) -> bool:
    """Work on a queued turn until it ends or waits; return False when it was not this worker's to take.

    An `audience` hears the model's text as it comes; when it leaves, the turn is given back.
    """
    if draining.is_on():
        return False
    with logs.about(execution_id):
        work = claims.claim(execution_id)
    if work is None:
        return False
    work.audience = audience
    go_on(work)
    return True


def go_on(work: Work) -> None:
    """Work on a turn that was claimed, until it ends or waits."""
    with logs.about(work.lease.execution_id), draining.in_hand:
        with leases.renewed(work.lease):
            _settle(work)
        remembering.remember(work)


def _settle(work: Work) -> None:
    try:
        _work_on(work)
    except LeaseLost:
        logger.warning("Lost ownership of a turn; nothing more is done", extra=_facts(work))


def _work_on(work: Work) -> None:
    """Work on a turn; when the database fails, go on from the rows. One that stays away leaves it to its lease."""
    for pause in LONG_PAUSES:
        try:
            _run_or_cancel(work)
            return
        except DatabaseError as error:
            if not database.may_pass(error) or database.is_in_test_case():
                raise
            logger.warning("The database failed a turn; it is read again", exc_info=True, extra=_facts(work))
            database.wait_after_refusal(pause)
            _look_again(work)
    _run_or_cancel(work)


@database.retried
def _look_again(work: Work) -> None:
    work.look_again()


def _run_or_cancel(work: Work) -> None:
    try:
        _run(work)
    except TurnCancelled:
        steps.cancel_turn(work)


def _run(work: Work) -> None:
    try:
        agent = _agent_of(work)
        recalling.recall(work)
        retrieving.retrieve(work)
        conversation = Conversation(work)
        if work.pinned["driver"] != drivers.BUILT_IN:
            driving.run(work, conversation)
        while not work.ended:
            _advance(work, agent, conversation)
    except (TurnCancelled, LeaseLost):
        raise
    except streaming.AudienceLeft:
        steps.give_back(work)
    except AgentError as failure:
        steps.fail_turn(work, limits.told(failure))
    except ConfigurationError as mistake:
        logger.exception("A turn cannot be run as the project is set up", extra=_facts(work))
        steps.fail_turn(work, limits.told(DriverUnavailable(str(mistake))))
    except Exception as error:
        if database.may_pass(error):
            raise
        logger.exception("A turn failed for a reason of its own", extra=_facts(work))
        steps.fail_turn(work, limits.told(TurnFailure("Something went wrong inside the runtime.", code="internal")))


def _advance(work: Work, agent: AgentDefinition, conversation: Conversation) -> None:
    """Do the rest of the step in hand: its model call, its free calls, its gated ones."""
    if draining.lets_go(work):
        steps.give_back(work)
    elif work.step.message is None:
        _think(work, agent, conversation)
    else:
        _act(work, agent, conversation)


def _think(work: Work, agent: AgentDefinition, conversation: Conversation) -> None:
    limits.require_time(work)
    try:
        reply, seconds = model_calls.ask(work, conversation, tool_calls.specs(work, agent))
    except ProviderPostponed as later:
        patience.postpone(work, later)
        return
    if reply.finish_reason in ("content_filter", "refusal"):
        error = TurnFailure("The model refused to answer.", code="refused", text=reply.content or "")
        steps.record_failure(work, reply, duration=seconds, error=limits.told(error))
    elif reply.tool_calls:
        _take_calls(work, agent, reply, seconds)
    elif reply.content or limits.is_last_step(work) or _was_empty_before(work):
        steps.record_answer(work, reply, duration=seconds)
    else:
        steps.record_thought(work, reply, duration=seconds)


def _take_calls(work: Work, agent: AgentDefinition, reply: ModelReply, seconds: float) -> None:
    asked = tool_calls.plan(agent, reply)
    tool_calls.refuse_declined(work, asked)
    if limits.is_last_step(work):
        error = limits.max_steps(work)
        tool_calls.refuse_all(asked, error, "Not run: this was the turn's last step (step limit).")
        steps.record_limit(work, reply, asked, duration=seconds, error=limits.told(error))
        return
    end = fruitless.find_end(work, asked)
    if end is not None:
        steps.record_limit(work, reply, asked, duration=seconds, error=limits.told(end))
        return
    steps.record_calls(work, reply, asked, duration=seconds, begin_first=_first_free(work, agent, asked))


def _first_free(work: Work, agent: AgentDefinition, asked: list[ToolCall]) -> ToolCall | None:
    """Return the first call that runs in any case, if none before it must be asked about: it begins at once."""
    waiting = next((call for call in asked if call.status == CallStatus.PENDING), None)
    if (
        waiting is None
        or draining.lets_go(work)
        or not limits.has_time(work)
        or not execution.has_room()
        or agent.tools[waiting.tool].rate
        or gating.known(work, agent, waiting) is not False
        or agent.tools[waiting.tool].asks_user
    ):
        return None
    waiting.needs_approval = False
    return waiting


def _act(work: Work, agent: AgentDefinition, conversation: Conversation) -> None:
    step, asked = work.step, work.calls
    reasons = _decide_gates(work, agent)
    calling.run(work, agent, [call for call in asked if _is_free(agent, call)])
    if not work.ended and not _waiting(agent, asked):
        left = [call for call in asked if call.is_open and not asking.is_question(agent, call)]
        calling.run(work, agent, left, stop_at_doubt=True)
    if work.ended:
        return
    if waiting := _waiting(agent, asked):
        _suspend(work, agent, waiting, reasons)
        return
    if question := asking.find_next(agent, asked):
        asking.ask(work, question)
        return
    if work.step.pk == step.pk:
        steps.finish(work)
    conversation.add(step, asked)


def _decide_gates(work: Work, agent: AgentDefinition) -> dict[int, str]:
    """Decide for each call not begun whether a person must allow it; return the reasons by call."""
    return {
        call.pk: gating.decide(work, agent, call)
        for call in work.calls
        if call.status == CallStatus.PENDING and call.tool in agent.tools
    }


def _is_free(agent: AgentDefinition, call: ToolCall) -> bool:
    """Say whether a call is dealt with before the wait; one whose tool was removed is: it is told so."""
    if call.status == CallStatus.EXECUTING:
        return not call.needs_approval
    if asking.is_question(agent, call):
        return False
    if call.is_in_doubt or call.status == CallStatus.PENDING:
        return call.tool not in agent.tools or (not call.is_in_doubt and call.needs_approval is False)
    return False


def _waiting(agent: AgentDefinition, asked: list[ToolCall]) -> list[ToolCall]:
    """Return the calls a person must be asked about; what the user is asked comes after them."""
    waiting = [call for call in asked if call.status == CallStatus.PENDING or call.is_in_doubt]
    return [call for call in waiting if not asking.is_question(agent, call)]


def _suspend(work: Work, agent: AgentDefinition, waiting: list[ToolCall], reasons: dict[int, str]) -> None:
    questions = [gating.question(work, agent, call, reason=reasons.get(call.pk, "")) for call in waiting]
    _ask_people(work, waiting, questions)


@as_one
def _ask_people(work: Work, waiting: list[ToolCall], questions: list[requests.Question]) -> None:
    with log.writing(work.turn.session) as journal:
        calls.gate(call for call in waiting if call.status == CallStatus.PENDING)
        requests.ask(journal, work.turn, questions)
        lifecycle.suspend(journal, work.turn, work.lease, TurnState.WAITING_FOR_APPROVAL, reason="approval")
    work.ended = True


def _agent_of(work: Work) -> AgentDefinition:
    name = work.turn.agent.name
    agent = registry.find(name)
    if agent is None:
        raise DriverUnavailable(f"The agent {name!r} is not defined in this process.", agent=name)
    return agent


def _was_empty_before(work: Work) -> bool:
    """Say whether the step before this one had an empty reply too: it is asked for once more, not for ever."""
    previous = work.turn.steps.filter(number=work.step.number - 1).first()
    if previous is None or previous.message is None:
        return False
    return not previous.message.get("content") and not previous.message.get("tool_calls")


def _facts(work: Work) -> dict[str, str]:
    return {"execution_id": str(work.turn.execution_id)}
