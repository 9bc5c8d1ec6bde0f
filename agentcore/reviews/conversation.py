"""The conversation that led to a request, in brief: enough to judge it, never all of it."""

from __future__ import annotations

from dataclasses import dataclass

from agentcore.models import AgentContext, AgentStep, ToolApproval, ToolCall
from agentcore.reviews import reading
from agentcore.states import CallStatus
from agentcore.tools import masking

EARLIER_TURNS = 3
MAX_STEPS = 20
MAX_CALLS = 20
MAX_TEXT = 1_000
MAX_RESULT = 300


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of it. `speaker` is user, agent or tool; `name` is the tool's, `status` its call's."""

    speaker: str
    text: str
    name: str = ""
    status: str = ""


def before(approval: ToolApproval) -> list[Entry]:
    """Return the last few turns before the request's own, and its own up to now, oldest first."""
    turn = approval.turn
    earlier = AgentContext.objects.present().filter(session_id=turn.session_id, pk__lt=turn.pk).order_by("-pk")
    entries: list[Entry] = []
    for past in reversed(earlier[:EARLIER_TURNS]):
        entries += [_asked(past), *_answered(past)]
    return [*entries, _asked(turn), *_steps(turn, without=approval.call_id)]


def _asked(turn: AgentContext) -> Entry:
    return Entry(speaker="user", text=reading.brief(turn.input.get("content", ""), MAX_TEXT))


def _answered(turn: AgentContext) -> list[Entry]:
    return [Entry(speaker="agent", text=reading.brief(turn.response, MAX_TEXT))] if turn.response else []


def _steps(turn: AgentContext, *, without: int) -> list[Entry]:
    calls: dict[int, list[ToolCall]] = {}
    for call in turn.tool_calls.exclude(pk=without).order_by("-step_id", "-position")[:MAX_CALLS]:
        calls.setdefault(call.step_id, []).insert(0, call)
    entries: list[Entry] = []
    for step in reversed(turn.steps.order_by("-number")[:MAX_STEPS]):
        entries += [*_said(step), *(_called(call) for call in calls.get(step.pk, []))]
    return entries


def _said(step: AgentStep) -> list[Entry]:
    text = (step.message or {}).get("content")
    return [Entry(speaker="agent", text=reading.brief(text, MAX_TEXT))] if text else []


def _called(call: ToolCall) -> Entry:
    arguments = masking.mask(call.arguments, call.sensitive)
    return Entry(speaker="tool", name=call.tool, status=call.status, text=_outcome(call, arguments))


def _outcome(call: ToolCall, arguments: object) -> str:
    given = reading.brief_value(arguments, MAX_RESULT) if arguments else ""
    if call.status == CallStatus.COMPLETED:
        return f"{given} → {reading.brief_value(masking.mask(call.result, call.sensitive), MAX_RESULT)}"
    if call.error:
        return f"{given} → {reading.brief(call.error.get('message', ''), MAX_RESULT)}"
    return given
