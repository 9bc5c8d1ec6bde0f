"""What must hold of every session, and where it does not: for tests and for `agentcore_verify`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db.models import Case, JSONField, Prefetch, When

from agentcore.agents.registry import registry
from agentcore.approvals import agreement
from agentcore.approvals.told import digest_of
from agentcore.events import chain
from agentcore.events.kinds import FINAL, EventType
from agentcore.models import (
    AgentContext,
    AgentSession,
    AgentStep,
    SessionEvent,
    ToolApproval,
    ToolCall,
    UserQuestion,
)
from agentcore.states import (
    ACTIVE,
    MOVES,
    OPEN_CALLS,
    TERMINAL,
    WORKING,
    ApprovalKind,
    ApprovalStatus,
    TurnState,
    Verdict,
)
from agentcore.turns import emptying

PAGE = 25
# What may still be told of a turn after it ended.
MANY = 1_000_000
AFTER_THE_END = frozenset({EventType.MEMORY_UPDATED})


def problems(session: AgentSession) -> Iterator[str]:
    """Yield a sentence for everything that is wrong with a session."""
    yield from chain.problems(session)
    if digest_of(session.revision.definition) != session.revision.hash:
        yield f"Its revision {session.revision} is not what its hash says."
    if AgentContext.objects.filter(session=session).active().count() > 1:
        yield "More than one turn is active."
    yield from _of_beginning(session)
    for turn in _turns(session):
        for problem in _of_turn(turn, session):
            yield f"Turn {turn.execution_id}: {problem}"


def _of_beginning(session: AgentSession) -> Iterator[str]:
    """Compare where retention cut the log with what the log itself says of the last cut."""
    said = SessionEvent.objects.filter(session=session, type=EventType.SESSION_TRIMMED).order_by("-sequence").first()
    if said is None and session.removed_through:
        yield f"Its log was removed through {session.removed_through}, and no event says so."
    cut = {"through": session.removed_through, "hash": session.removed_hash}
    if said is not None and isinstance(said.data, dict) and not cut.items() <= said.data.items():
        yield f"Its log was removed through {session.removed_through}, and event {said.sequence} says otherwise."


def _turns(session: AgentSession) -> Iterator[AgentContext]:
    """Yield a session's turns in order, with all their rows but events; one page of them is in memory at a time."""
    turns = AgentContext.objects.filter(session=session).order_by("pk").select_related("agent", "revision")
    turns = turns.prefetch_related(
        Prefetch("steps", AgentStep.objects.order_by("number")),
        Prefetch("tool_calls", ToolCall.objects.order_by("step_id", "position")),
        Prefetch("approvals", ToolApproval.objects.order_by("pk").prefetch_related("decisions")),
        Prefetch("questions", UserQuestion.objects.order_by("pk")),
    )
    last = 0
    while page := list(turns.filter(pk__gt=last)[:PAGE]):
        yield from page
        last = page[-1].pk


def _of_turn(turn: AgentContext, session: AgentSession) -> Iterator[str]:
    events = _events(turn)
    steps, calls, approvals = list(turn.steps.all()), list(turn.tool_calls.all()), list(turn.approvals.all())
    yield from _of_state(turn, calls, approvals)
    if turn.trimmed_at is None:
        yield from _of_moves(turn, [data for kind, data in events if kind == EventType.STATE_CHANGED])
        yield from _of_events(turn, [kind for kind, _ in events])
    elif events:
        yield f"its part of the log was removed, and {len(events)} events of it are left."
    yield from _of_steps(turn, steps)
    ended_steps = {step.pk for step in steps if step.completed_at is not None}
    for call in calls:
        is_over = turn.state in TERMINAL or call.step_id in ended_steps
        for problem in _of_call(turn, call, [item for item in approvals if item.call_id == call.pk], is_over=is_over):
            yield f"call {call.call_id} ({call.tool}): {problem}"
    yield from agreement.problems(turn) if turn.erased_at is None else _of_emptied(turn, session)


def _of_emptied(turn: AgentContext, session: AgentSession) -> Iterator[str]:
    """Yield what is left of a turn's content, and whether the log knows that it was taken away."""
    yield from emptying.left(turn)
    told = SessionEvent.objects.filter(session=session, type=EventType.SESSION_ERASED)
    if not session.removed_through and not told.exists():
        yield "it was emptied, and its session's log does not say so."


def _events(turn: AgentContext) -> list[tuple[str, Any]]:
    """Return the type of each event of a turn and, of those that say how its state moved, the data."""
    move = Case(When(type=EventType.STATE_CHANGED, then="data"), output_field=JSONField(null=True))
    events = SessionEvent.objects.filter(turn_id=turn.execution_id).order_by("sequence").annotate(move=move)
    return list(events.values_list("type", "move"))


def _of_state(turn: AgentContext, calls: list[ToolCall], approvals: list[ToolApproval]) -> Iterator[str]:
    pending = sum(approval.status == ApprovalStatus.PENDING for approval in approvals)
    if turn.state == TurnState.WAITING_FOR_APPROVAL and not pending:
        yield "it waits for approval, and no request is pending."
    if turn.state != TurnState.WAITING_FOR_APPROVAL and pending:
        yield f"it is {turn.state}, and {pending} of its requests are pending."
    yield from _of_input(turn, {call.pk for call in calls if call.completed_at is None})
    if (turn.state in ACTIVE) != (turn.active_session_id is not None):
        yield f"it is {turn.state}, and its session's place is {turn.active_session_id}."
    if (turn.state in WORKING) != (turn.lease_expires_at is not None):
        yield f"it is {turn.state}, and its lease ends at {turn.lease_expires_at}."
    if (turn.state in TERMINAL) != (turn.completed_at is not None):
        yield f"it is {turn.state}, and it ended at {turn.completed_at}."


def _of_input(turn: AgentContext, open_calls: set[int]) -> Iterator[str]:
    waits = turn.state == TurnState.WAITING_FOR_INPUT
    asked = [item.question for item in turn.questions.all() if item.answered_at is None and item.call_id in open_calls]
    if waits != (turn.question is not None):
        yield f"it is {turn.state}, and its question is {'missing' if waits else 'still set'}."
    if len(asked) != waits:
        yield f"it is {turn.state}, and {len(asked)} of its questions are open."
    elif waits and asked != [turn.question]:
        yield "the question it waits with is not the one it asked."


def _of_moves(turn: AgentContext, moves: list[Any]) -> Iterator[str]:
    if None in moves:
        return  # erased
    state: str = TurnState.QUEUED
    for move in moves:
        source, target = _ends_of(move)
        if source != state or source not in MOVES or target not in MOVES[TurnState(source)]:
            yield f"it was {state}, and its log has a move from {source} to {target}."
        state = target
    if state != turn.state:
        yield f"it is {turn.state}, and its log says {state}."


def _ends_of(move: Any) -> tuple[str, str]:
    """Return where a move began and ended, whatever somebody wrote over its event."""
    ends = move if isinstance(move, dict) else {}
    return str(ends.get("previous")), str(ends.get("new"))


def _of_events(turn: AgentContext, kinds: list[str]) -> Iterator[str]:
    ends = sum(kind in FINAL for kind in kinds)
    if ends != (turn.state in TERMINAL):
        yield f"it is {turn.state} and has {ends} final events."
    if ends == 1 and not {*_after_the_end(kinds)} <= AFTER_THE_END:
        yield f"after its final event follow {_after_the_end(kinds)}."
    started, ended = kinds.count(EventType.STEP_STARTED), _ended_steps(kinds)
    if turn.state in TERMINAL and started != ended:
        yield f"{started} steps started and {ended} ended."


def _after_the_end(kinds: list[str]) -> list[str]:
    end = next(index for index, kind in enumerate(kinds) if kind in FINAL)
    return kinds[end + 1 :]


def _ended_steps(kinds: list[str]) -> int:
    return kinds.count(EventType.STEP_COMPLETED) + kinds.count(EventType.STEP_FAILED)


def _of_steps(turn: AgentContext, steps: list[AgentStep]) -> Iterator[str]:
    if [step.number for step in steps] != list(range(1, len(steps) + 1)):
        yield f"its steps are numbered {[step.number for step in steps]}."
    if sum(step.message is not None for step in steps) != turn.step_count:
        yield f"it counts {turn.step_count} replies, and its steps hold another number."
    for step in steps[:-1]:
        if step.completed_at is None:
            yield f"step {step.number} has not ended, and a later one has begun."
    if turn.state in TERMINAL and any(step.completed_at is None for step in steps):
        yield "it has ended, and one of its steps has not."


def _of_call(turn: AgentContext, call: ToolCall, approvals: list[ToolApproval], *, is_over: bool) -> Iterator[str]:
    """Yield what is wrong with a call and its approvals, of a turn or a step that is over or is not."""
    outcomes = [approval for approval in approvals if approval.kind == ApprovalKind.OUTCOME]
    if call.is_open and is_over:
        yield f"its step or turn has ended, and it is {call.status}."
    if call.is_open != (call.status in OPEN_CALLS or call.is_in_doubt):
        yield f"it is {call.status}, and it ended at {call.completed_at}."
    if any(outcome.status == ApprovalStatus.PENDING for outcome in outcomes) and not call.is_in_doubt:
        yield f"it is {call.status}, and a person is asked how it ended."
    if call.attempts > 1 + _allowed_repeats(turn, call, outcomes) and not call.idempotent:
        yield f"it is not idempotent and was attempted {call.attempts} times."
    if call.attempts and call.needs_approval and not _is_covered(call, approvals, is_emptied=bool(turn.erased_at)):
        yield "it began without an approval of its arguments by an allowed person."


def _allowed_repeats(turn: AgentContext, call: ToolCall, outcomes: list[ToolApproval]) -> int:
    """Return how often a person let a call in doubt run again, and whether its tool could say that it had not."""
    agent = registry.find(turn.agent.name)
    definition = agent.tools.get(call.tool) if agent else None
    verified = MANY if definition is not None and definition.verify is not None else 0
    return verified + sum(outcome.status == ApprovalStatus.APPROVED for outcome in outcomes)


def _is_covered(call: ToolCall, approvals: list[ToolApproval], *, is_emptied: bool) -> bool:
    """Say whether somebody approved a call's arguments; of an emptied turn the votes' digests still tell."""
    return any(
        approval.kind == ApprovalKind.CALL
        and approval.status == ApprovalStatus.APPROVED
        and (is_emptied or digest_of(approval.approved_arguments) == call.arguments_digest)
        and _has_vote_of_another(approval, call.arguments_digest)
        for approval in approvals
    )


def _has_vote_of_another(approval: ToolApproval, digest: str) -> bool:
    nobody = {"", approval.requester_key} if approval.four_eyes else {""}
    return any(
        vote.counted_key is not None
        and vote.verdict == Verdict.APPROVE
        and vote.arguments_digest == digest
        and vote.actor_key not in nobody
        for vote in approval.decisions.all()
    )
