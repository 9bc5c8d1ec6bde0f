"""A worker's side of the state backend: what it keeps of its turn there, and what it takes up from there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from agentcore import state
from agentcore.events.kinds import EventType
from agentcore.models import ToolCall
from agentcore.signals import LoggedEvent, session_event
from agentcore.state import copies


def may_keep(call: ToolCall) -> bool:
    """Say whether what a call put into working memory may be kept in the hot copy alone, until the turn pauses.

    What a call with an effect said is a row with its result: it is not run again, and so would not say it again.
    """
    backend = state.current()
    return backend.is_hot and call.idempotent and not call.needs_approval and backend.is_up()


def keep(execution_id: UUID, turn_state: str, ended: Sequence[copies.Ended], memory: Mapping[str, Any]) -> None:
    """Add to a turn's hot copy the steps that ended and the working memory that was set, after the commit of both."""
    backend = state.current()
    if not backend.is_hot:
        return
    news = copies.step_fields(ended) | copies.memory_fields(memory)
    if news:
        backend.write(str(execution_id), news, phase=state.phase_of(turn_state))


class TakenUp(NamedTuple):
    """What a turn's hot copy has: working memory that is in no row, and the ended steps, None if one is missing."""

    unsaved: dict[str, Any]
    earlier: list[copies.Ended] | None


def take_up(
    execution_id: UUID, *, before_step: int, find_stored: Callable[[], Mapping[str, datetime]]
) -> TakenUp | None:
    """Return what the hot copy of a turn has, None without one. `find_stored` says when each key got its row last."""
    backend = state.current()
    copy = copies.read(backend.read(str(execution_id))) if backend.is_hot else None
    if copy is None:
        return None
    numbers = range(1, before_step)
    # An ended step never changes: a copy of each is as good as the rows.
    is_whole = all(number in copy.steps for number in numbers)
    return TakenUp(copy.unsaved(find_stored()), [copy.steps[number] for number in numbers] if is_whole else None)


def follow() -> None:
    """Keep state and life of hot copies right from now on, whoever moves a turn: worker, reviewer, client or sweep."""
    session_event.connect(_take_move, dispatch_uid="agentcore.state")


def _take_move(event: LoggedEvent, **_: Any) -> None:
    if event.type == EventType.STATE_CHANGED and event.execution_id and (backend := state.current()).is_hot:
        new = str(event.data["new"])
        backend.write(event.execution_id, {"state": new}, phase=state.phase_of(new))
