"""A turn in the hands of a worker: its rows as they are now, and the lease that allows to change them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, ParamSpec, Protocol

from agentcore import database
from agentcore.events import log
from agentcore.events.tokens import TokenPush
from agentcore.exceptions import LeaseLost
from agentcore.models import (
    AgentContext,
    AgentStep,
    ContextEntry,
    EntryKind,
    ToolApproval,
    ToolCall,
    ToolOverride,
    statements,
)
from agentcore.states import WORKING, ApprovalKind, ApprovalStatus
from agentcore.turns import hot, leases
from agentcore.turns.leases import Lease

P = ParamSpec("P")


class Audience(Protocol):
    """Who follows a turn in the process that works on it, as `runtime.stream` does."""

    @property
    def has_left(self) -> bool:
        """Say whether nobody follows any more: the turn is given back to the queue."""

    def hear(self, *, step: int, attempt: int, text: str) -> None:
        """Take a piece of the model's text, in the thread that reads it."""

    def call_when_left(self, interrupt: Callable[[], None] | None) -> None:
        """Name what is called, from any thread, once nobody follows any more; at once if that is so already."""


@dataclass(kw_only=True)
class Work:
    """One turn while this worker has it. `begun` holds the calls this worker itself began.

    `is_first` says that nobody had the turn before: its rows are all of this worker's making; `opens_session` that
    nothing was said before it. `done` holds the steps that ended in its hands, with their calls.
    `approvers` holds who approved a call, by its key: while a worker has the turn, nobody decides on any.
    `attempts` counts by step how often this worker had text of a model for it; `token_push` sends it to sockets.
    `earlier` holds the steps that ended before, if the state backend has them all; `steps_kept` and `memory_news` say
    what of `done` and of working memory it was told, and was not.
    `driver_began` says that it began a driver: unlike a call, nothing in the rows tells what that one did.
    """

    turn: AgentContext
    lease: Lease
    step: AgentStep
    calls: list[ToolCall] = field(default_factory=list)
    begun: set[int] = field(default_factory=set)
    done: list[tuple[AgentStep, list[ToolCall]]] = field(default_factory=list)
    is_first: bool = False
    opens_session: bool = False
    driver_began: bool = False
    ended: bool = False
    audience: Audience | None = None
    attempts: dict[int, int] = field(default_factory=dict)
    token_push: TokenPush | None = None
    told: dict[tuple[int, int], object] = field(default_factory=dict)
    earlier: list[tuple[AgentStep, list[ToolCall]]] | None = None
    steps_kept: int = 0
    memory_news: dict[str, Any] = field(default_factory=dict)
    approvers: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def is_news(self, fact: tuple[int, int]) -> bool:
        """Say whether this was not asked before, whichever thread asks."""
        return self.told.setdefault(fact, marker := object()) is marker

    @property
    def pinned(self) -> dict[str, Any]:
        """The revision's definition: the session keeps what it began with."""
        definition: dict[str, Any] = self.turn.revision.definition
        return definition

    @cached_property
    def overrides(self) -> list[ToolOverride]:
        """What staff ask of the approvals of this agent, as it was when this worker first needed to know."""
        # Most projects have none, and asking for that costs next to nothing.
        has_any = statements.has_rows(ToolOverride)
        return list(ToolOverride.objects.for_agent(self.turn.agent_id)) if has_any else []

    @cached_property
    def declined(self) -> set[tuple[str, str]]:
        """What people declined in this turn, as tool and digest of the arguments: they do it only while it waits."""
        if self.is_first:
            return set()
        rejected = ToolApproval.objects.filter(turn=self.turn, kind=ApprovalKind.CALL, status=ApprovalStatus.REJECTED)
        # What was asked for, and what it had become when it was declined.
        found = list(rejected.values_list("tool", "arguments_digest", "call__arguments_digest"))
        return {(tool, digest) for tool, *digests in found for digest in digests}

    @cached_property
    def memory(self) -> dict[str, Any]:
        """The turn's working memory by key, as it is now; nobody else writes it meanwhile."""
        return {**dict(self._memory_rows.values_list("key", "value")), **self.lease.unsaved}

    @property
    def has_memory(self) -> bool:
        """Say whether working memory was read already: it cannot have changed before."""
        return "memory" in vars(self)

    @property
    def _memory_rows(self) -> Any:
        return ContextEntry.objects.filter(turn_id=self.turn.pk, kind=EntryKind.WORKING_MEMORY).order_by("id")

    def _memory_times(self) -> dict[str, datetime]:
        """Return when each key of working memory was stored."""
        return dict(self._memory_rows.values_list("key", "updated_at"))

    def take_up(self) -> None:
        """Take from the state backend what a worker before this one left there."""
        if self.is_first:
            return
        found = hot.take_up(self.turn.execution_id, before_step=self.step.number, find_stored=self._memory_times)
        if found is not None:
            self.lease.unsaved.update(found.unsaved)
            self.earlier = found.earlier

    def hand_on(self) -> None:
        """Tell the state backend what is new since it was told last."""
        ended, self.steps_kept = self.done[self.steps_kept :], len(self.done)
        memory, self.memory_news = self.memory_news, {}
        hot.keep(self.turn.execution_id, self.turn.state, ended, memory)

    def take_memory(self, changes: Mapping[str, Any], *, is_saved: bool) -> None:
        """Take changes of working memory: all there are became rows with them, or these are none before the pause."""
        self.memory.update(changes)
        if is_saved:
            self.lease.unsaved.clear()
        else:
            self.lease.unsaved.update(changes)
            self.memory_news.update(changes)

    @cached_property
    def recalled(self) -> list[tuple[str, Any]]:
        """What was looked up for the turn, as pairs of kind and value, in the order it was found."""
        if self.is_first:
            return []
        entries = ContextEntry.objects.filter(turn_id=self.turn.pk).exclude(kind=EntryKind.WORKING_MEMORY)
        return list(entries.order_by("id").values_list("kind", "value"))

    def look_again(self) -> None:
        """Read the turn anew, after the database failed: what this worker began counts as begun by a dead one.

        Raises LeaseLost when it is another's by now.
        """
        turns = AgentContext.objects.select_related("session", "agent", "revision", "user")
        turn = turns.filter(pk=self.turn.pk, lease_token=self.lease.token, state__in=sorted(WORKING)).first()
        step = AgentStep.objects.filter(turn=self.turn, completed_at=None).order_by("-number").first()
        if turn is None or step is None:
            raise LeaseLost(f"Turn {self.lease.execution_id} is not this worker's any more.")
        self.turn, self.step = turn, step
        self.is_first = self.opens_session = False
        vars(self).pop("declined", None)
        vars(self).pop("memory", None)
        vars(self).pop("recalled", None)
        self.earlier = None
        self.calls = list(ToolCall.objects.filter(step=step).order_by("position"))
        self.begun.clear()

    def seconds_left(self) -> float:
        """Return how long this turn may still work; waiting for people does not count."""
        return self.turn.turn_timeout - self.turn.worked_seconds - leases.worked_seconds(self.lease)


def as_one(verb: Callable[P, None]) -> Callable[P, None]:
    """Decorate a verb on a turn in hand, its first argument: the work in memory changes with the rows, or not at all.

    The verb opens its own transaction, and is tried again when the database could not take it just then.
    """

    @functools.wraps(verb)
    def attempt(*args: P.args, **kwargs: P.kwargs) -> None:
        work: Any = args[0]
        before = _Before(work, (*args[1:], *kwargs.values()))
        try:
            verb(*args, **kwargs)
        except BaseException as error:
            if log.was_made_after_all(error):
                work.hand_on()
                return
            before.restore(work)
            raise
        work.hand_on()

    return database.retried(attempt)


class _Before:
    """What a verb may change in memory, as it was."""

    def __init__(self, work: Work, given: tuple[Any, ...]) -> None:
        self._fields = (work.step, list(work.calls), set(work.begun), list(work.done), work.ended)
        self._memory: tuple[dict[str, Any], ...] | None = None
        if work.has_memory:
            self._memory = (dict(work.memory), dict(work.lease.unsaved), dict(work.memory_news))
        asked = [item for value in given for item in (value if isinstance(value, list) else [value])]
        rows = [work.turn, work.step, *work.calls, *(item for item in asked if isinstance(item, ToolCall))]
        self._rows = [(row, dict(vars(row)), row._state.adding) for row in rows]

    def restore(self, work: Work) -> None:
        work.step, work.calls, work.begun, work.done, work.ended = self._fields
        if self._memory is not None:
            work.memory, work.lease.unsaved, work.memory_news = self._memory
        for row, values, adding in self._rows:
            vars(row).clear()
            vars(row).update(values)
            row._state.adding = adding
