"""Make the ToolContext of a call: what a tool is given to know and to do."""

from __future__ import annotations

import asyncio
import copy
import queue
import threading
from collections.abc import Iterator, MutableMapping
from dataclasses import asdict
from typing import Any

from agentcore import canonical, clock, database, knowledge
from agentcore.conf import settings
from agentcore.events import kinds, log
from agentcore.exceptions import Conflict, InvalidInput, TooLarge
from agentcore.models import AgentContext, ApprovalDecision, ToolCall
from agentcore.states import WORKING, TurnState, Verdict
from agentcore.tools import execution, results
from agentcore.tools.context import ToolContext
from agentcore.tools.json_text import MAX_DEPTH
from agentcore.tools.masking import mask
from agentcore.turns.work import Work

# A tool may ask in a tight loop whether it was cancelled; the row is read at most this often.
CANCEL_CHECK_SECONDS = 0.5
CANCEL_ANSWER_SECONDS = 5.0


class WorkingMemory(MutableMapping[str, Any]):
    """A turn's working memory. Changes are kept by key and stored with the call's result."""

    def __init__(self, work: Work) -> None:
        # Read now: an async tool could not, the ORM refuses to work inside an event loop.
        self._known = {key: copy.deepcopy(value) for key, value in work.memory.items() if value is not None}
        self.changes: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        return self._known[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(key, str) or not 0 < len(key) <= 255:
            raise InvalidInput(f"A key of working memory is text of 1 to 255 characters, not {key!r}.")
        stored, name = results.to_json(value), canonical.clean_text(key)
        self._known[name] = self.changes[name] = stored

    def __delitem__(self, key: str) -> None:
        del self._known[key]
        self.changes[key] = None

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


class EventInbox:
    """Hands a tool's events over to the worker, which writes them in transactions of its own."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._waiting: queue.SimpleQueue[tuple[str, dict[str, Any]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self.is_closed = False
        self.bell = execution.Bell(self.write_now)

    def send(self, type: str, data: dict[str, Any]) -> None:
        """Take an event from any thread; what is wrong with it is told at once."""
        self._put(kinds.custom_type(type), data)

    def send_from_driver(self, type: str, data: dict[str, Any]) -> None:
        """Take an event of a driver, which may also be an assistant's message."""
        if str(type).strip() == kinds.EventType.MESSAGE:
            self._put(kinds.EventType.MESSAGE, {"message": kinds.assistant_message(data)})
        else:
            self.send(type, data)

    def _put(self, type: str, data: dict[str, Any]) -> None:
        try:
            stored = canonical.clean(canonical.normalise(data))
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"The data of a {type!r} event cannot be stored as JSON: {error}.") from error
        if not isinstance(stored, dict):
            raise InvalidInput(f"The data of a {type!r} event must be an object.")
        if canonical.depth(stored) > MAX_DEPTH:
            raise InvalidInput(f"The data of a {type!r} event is nested deeper than {MAX_DEPTH} levels.")
        limit = settings.MAX_EVENT_BYTES
        if canonical.byte_size(stored) > limit:
            raise TooLarge(f"The data of a {type!r} event is over {limit} bytes.", limit=limit)
        with self._lock:
            if self.is_closed:
                raise Conflict(f"What emits {type!r} has ended: it emits no more events.")
            self._waiting.put((type, mask(stored)))
        self.bell.event.set()

    def write_now(self) -> None:
        """Write what has come in while its sender works on: no connection is held meanwhile."""
        if not self._waiting.empty():
            self._write()
            database.release_connection()

    def close(self) -> None:
        """Take nothing more, from no thread, and write what has come in."""
        with self._lock:
            self.is_closed = True
        self._write()

    def _write(self) -> None:
        """Write what there is by now, while the turn is this worker's; a sender in a hurry does not hold it up."""
        for _ in range(self._waiting.qsize()):
            _write_event(self._work, *self._waiting.get())


@database.retried
def _write_event(work: Work, type: str, data: dict[str, Any]) -> None:
    with log.writing(work.lease.session_pk) as journal:
        held = AgentContext.objects.filter(pk=work.turn.pk, lease_token=work.lease.token, state__in=WORKING).exists()
        if held:
            journal.append_custom(type, execution_id=work.turn.execution_id, data=data)


def make(work: Work, call: ToolCall, *, memory: WorkingMemory, inbox: EventInbox | None = None) -> ToolContext:
    """Return the context of one attempt at a call."""
    turn = work.turn
    # Named here and not by the model: whose documents are searched is no argument of a call.
    agent = turn.agent.name
    return ToolContext(
        execution_id=str(turn.execution_id),
        session_id=turn.session.session_id,
        agent=agent,
        call_id=call.call_id,
        find_user=lambda: turn.user,
        approved_by=_approvers(call) if call.needs_approval else (),
        metadata=turn.metadata,
        is_cancelled=CancelCheck(work),
        send=inbox.send if inbox else None,
        working_memory=memory,
        search=lambda query, limit: [asdict(found) for found in knowledge.retrieve(agent, query, limit)],
    )


def _approvers(call: ToolCall) -> tuple[str, ...]:
    votes = ApprovalDecision.objects.filter(approval__call=call, verdict=Verdict.APPROVE).exclude(counted_key=None)
    return tuple(votes.order_by("id").values_list("actor_name", flat=True))


class CancelCheck:
    """Says whether the turn was cancelled, and reads the row at most twice a second."""

    def __init__(self, work: Work) -> None:
        self._turn_pk = work.turn.pk
        self._next_at = 0.0
        self._cancelled = False
        self._in_test_case = database.is_in_test_case()

    def __call__(self) -> bool:
        if not self._cancelled and clock.monotonic() >= self._next_at:
            self._next_at = clock.monotonic() + CANCEL_CHECK_SECONDS
            self._cancelled = self._ask_apart() if _is_in_event_loop() else self._ask()
        return self._cancelled

    def _ask(self) -> bool:
        # The tool's own connection, if it has one open here, may be in the middle of reading.
        with database.released_if_opened():
            return bool(AgentContext.objects.filter(pk=self._turn_pk, state=TurnState.CANCELLING).exists())

    def _ask_apart(self) -> bool:
        # In Django's TestCase another thread would not see the test's rows.
        return not self._in_test_case and execution.run_tool(self._ask, timeout=CANCEL_ANSWER_SECONDS).value is True


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
