"""Read what was said in a session before: the newest first, no more than a request can hold.

The work grows with the request, never with the session: light rows of turns come in pages; steps and calls are read
only of turns that had any beside their answer; and the reading ends where the tokens or MAX_MESSAGES are used up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from agentcore.engine import retelling
from agentcore.engine.budget import Group
from agentcore.models import AgentContext, AgentStep, ToolCall
from agentcore.state import copies
from agentcore.states import TurnState
from agentcore.turns.work import Work

# So many rows per query: few at first, since nobody knows how large they are, then as many as are likely to fit.
FIRST_PAGE = 50
LARGEST_PAGE = 190
FIRST_STEPS = 20
# However short they are, a model is shown no more of them.
MAX_MESSAGES = 1_200

# All that a request says of a call; not what is kept for people.
CALL_COLUMNS = ("step_id", "completed_at", *copies.CALL_COLUMNS)


_Step = tuple[AgentStep, list[ToolCall]]


class _TurnRow(NamedTuple):
    pk: int
    input: dict[str, Any]
    response: str | None
    state: str
    step_count: int

    @property
    def is_plain(self) -> bool:
        """Say whether its only reply was its answer: the turn's own row tells all of it."""
        return self.state == TurnState.COMPLETED and self.step_count <= 1

    @property
    def steps_to_read(self) -> int:
        return 0 if self.is_plain else self.step_count


class History:
    """The groups of a session up to the step in hand, oldest first, as far as `tokens` reach.

    `own` is the place of the turn's own message among them. The session's first message is always the first of them.
    """

    def __init__(self, work: Work, *, tokens: int, ids_in_use: set[str]) -> None:
        self._work = work
        self._tokens = self._left = tokens
        self._messages = 0
        self._newest_first: list[tuple[Group, Sequence[ToolCall]]] = []
        self._oldest = work.turn.pk
        self._steps_per_query = FIRST_STEPS
        self._take_own()
        since_own = len(self._newest_first)
        if not work.opens_session:
            self._take_earlier()
        self.groups = [retelling.with_wire_ids(*item, ids_in_use) for item in reversed(self._newest_first)]
        self.own = len(self.groups) - since_own

    def _take_own(self) -> None:
        turn = self._work.turn
        row = _TurnRow(turn.pk, turn.input, None, turn.state, turn.step_count)
        if self._work.step.number > 1:
            self._take_turns([row])
        else:
            self._take(retelling.user_group(row.input["content"]))

    def _take_earlier(self) -> None:
        """Take the turns before this one, newest first; and the session's first message, wherever it is."""
        size, taken = FIRST_PAGE, 0
        while not self._is_full:
            page = self._page(size)
            self._take_turns(page)
            if len(page) < size and (not page or self._oldest == page[-1].pk):
                return
            taken += len(page)
            size = self._next_size(taken)
        self._take_first_message()

    @property
    def _is_full(self) -> bool:
        return self._left <= 0 or self._messages >= MAX_MESSAGES

    def _page(self, size: int) -> list[_TurnRow]:
        rows = self._turns.filter(pk__lt=self._oldest).order_by("-pk")
        return [_TurnRow(*row) for row in rows.values_list("pk", "input", "response", "state", "step_count")[:size]]

    # Any: models are typed by a plugin that does not follow querysets through here.
    @property
    def _turns(self) -> Any:
        return AgentContext.objects.filter(session_id=self._work.turn.session_id, deleted_at=None)

    def _next_size(self, taken: int) -> int:
        """Return how many turns are likely to fill what is left, going by those that were read."""
        spent = max(self._tokens - self._left, 1)
        by_tokens = self._left * taken // spent
        by_number = (MAX_MESSAGES - self._messages) * taken // self._messages
        return max(1, min(LARGEST_PAGE, by_tokens + 5, by_number + 5))

    def _take_turns(self, page: Sequence[_TurnRow]) -> None:
        for batch in self._batches(page):
            steps = self._steps_of([turn.pk for turn in batch if turn.steps_to_read])
            for turn in batch:
                if self._is_full and turn.pk != self._work.turn.pk:
                    return
                self._take_turn(turn, steps.get(turn.pk, ()))

    def _take_turn(self, turn: _TurnRow, steps: Sequence[_Step]) -> None:
        if turn.is_plain and turn.response:
            self._take(retelling.answer_group(turn.response))
        for step, calls in reversed(steps):
            group = retelling.step_group(step, calls)
            if group is not None:
                self._take(group, calls)
        self._take(retelling.user_group(turn.input["content"]))
        self._oldest = turn.pk

    def _take(self, group: Group, calls: Sequence[ToolCall] = ()) -> None:
        self._left -= group.tokens
        self._messages += len(group.messages)
        self._newest_first.append((group, calls))

    def _take_first_message(self) -> None:
        first = self._turns.order_by("pk").values_list("pk", "input").first()
        if first is not None and first[0] < self._oldest:
            self._take(retelling.user_group(first[1]["content"]))

    def _batches(self, page: Sequence[_TurnRow]) -> Iterator[list[_TurnRow]]:
        """Divide turns so that the steps of each part can be read at once; the parts grow."""
        batch: list[_TurnRow] = []
        steps = 0
        for turn in page:
            if batch and steps + turn.steps_to_read > self._steps_per_query:
                yield batch
                batch, steps = [], 0
                self._steps_per_query = LARGEST_PAGE
            batch.append(turn)
            steps += turn.steps_to_read
        if batch:
            yield batch

    def _steps_of(self, turns: list[int]) -> dict[int, list[_Step]]:
        """Return the steps of turns that have a reply, each with its calls, in order; without the one in hand."""
        if not turns:
            return {}
        if turns == [self._work.turn.pk] and self._work.earlier is not None:
            return {turns[0]: [item for item in self._work.earlier if item[0].message is not None]}
        replied = AgentStep.objects.filter(turn_id__in=turns).exclude(message__isnull=True)
        steps = (
            replied.exclude(pk=self._work.step.pk).order_by("turn_id", "number").only("turn_id", "message", "action")
        )
        calls: dict[int, list[ToolCall]] = {}
        for call in ToolCall.objects.filter(turn_id__in=turns).order_by("step_id", "position").only(*CALL_COLUMNS):
            calls.setdefault(call.step_id, []).append(call)
        found: dict[int, list[_Step]] = {}
        for step in steps:
            found.setdefault(step.turn_id, []).append((step, calls.get(step.pk, [])))
        return found
