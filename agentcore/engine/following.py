"""Follow a turn while it is worked in this process: its text and its events as chunks, in order.

The turn works in a thread of its own. Whoever stops following early does not wait for it: the turn is given back
to the queue as soon as its model or tool lets go of it.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from asgiref.sync import sync_to_async
from django.db import connections

from agentcore import database
from agentcore.engine import draining, loop, reading
from agentcore.engine.results import ExecutionResult, StreamChunk
from agentcore.events import log
from agentcore.events.kinds import EventType
from agentcore.models import AgentContext, AgentSession, SessionEvent
from agentcore.signals import LoggedEvent, session_event
from agentcore.states import TERMINAL, WAITING
from agentcore.turns import lifecycle
from agentcore.turns.enqueuing import Enqueued

FIRST_POLL_SECONDS = 0.02
LAST_POLL_SECONDS = 0.5
PAGE = 100

_ENDS_STEP = frozenset({EventType.STEP_COMPLETED, EventType.STEP_FAILED})

# A chunk, or the exception that ends the stream in place of `done`.
Item = StreamChunk | BaseException
Put = Callable[[Item], None]


class Following:
    """One turn that is followed. `put` takes the chunks, from any thread; the last is `done`, or an exception."""

    def __init__(self, turn: AgentContext, put: Put) -> None:
        self._turn, self._put = turn, put
        self._telling, self._leaving = threading.Lock(), threading.Lock()
        self._left = threading.Event()
        self._interrupt: Callable[[], None] | None = None
        self._texts: dict[int, str] = {}
        # There a commit tells nobody: the log is read instead, each time there is something to tell.
        self._is_in_test_case = database.is_in_test_case()
        first = SessionEvent.objects.filter(turn_id=turn.execution_id).order_by("sequence").first()
        self._sequence = first.sequence - 1 if first else 0

    def start(self) -> None:
        """Work the turn in a thread of its own."""
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._work_apart,), name="agentcore-follow", daemon=True).start()

    def run(self) -> None:
        """Work the turn here, and put its chunks."""
        session_event.connect(self._receive, weak=False)
        try:
            result = self._work()
            self._catch_up()
        except BaseException as error:  # noqa: BLE001 - whoever follows is told, in their own thread
            self._put(error)
        else:
            self._put(StreamChunk(kind="done", result=result))
        finally:
            session_event.disconnect(self._receive)

    def leave(self) -> None:
        """Follow no more, from any thread. A turn that is still at work is given back; nothing waits for that."""
        with self._leaving:
            self._left.set()
            interrupt = self._interrupt
        if interrupt is not None:
            interrupt()

    @property
    def has_left(self) -> bool:
        return self._left.is_set()

    def hear(self, *, step: int, attempt: int, text: str) -> None:
        """Put a piece of the model's text."""
        if self._is_in_test_case:
            self._catch_up()
        self._put(StreamChunk(kind="token", text=text, step=step, attempt=attempt))

    def call_when_left(self, interrupt: Callable[[], None] | None) -> None:
        """Name what `leave` calls while a model answers."""
        with self._leaving:
            self._interrupt = interrupt
        if interrupt is not None and self.has_left:
            interrupt()

    def _work_apart(self) -> None:
        try:
            self.run()
        finally:
            connections.close_all()

    def _work(self) -> ExecutionResult:
        # A handler may have decided all requests meanwhile: then the turn is queued again, and goes on here.
        is_worked = False
        while not self.has_left and loop.run(self._turn.execution_id, audience=self):
            is_worked = True
        if self.has_left and not is_worked:
            # Stored without asking for a worker: it was to be worked here.
            lifecycle.send_again(self._turn)
        pause = FIRST_POLL_SECONDS
        while True:
            turn = lifecycle.get(self._turn.execution_id)
            if turn.state in TERMINAL or turn.state in WAITING or draining.is_on() or self.has_left:
                return reading.result_of(turn)
            if loop.run(self._turn.execution_id, audience=self):  # it was given back to go on later, and is due
                continue
            database.release_connection()
            self._left.wait(pause)
            pause = min(pause * 1.5, LAST_POLL_SECONDS)

    def _receive(self, *, event: LoggedEvent, **_: Any) -> None:
        if event.session_pk != self._turn.session_id:
            return
        with self._telling:
            if event.sequence == self._sequence + 1:
                self._tell(event)
            elif event.sequence > self._sequence:
                self._read_log()

    def _catch_up(self) -> None:
        """Tell what other processes wrote."""
        with self._telling:
            self._read_log()

    def _read_log(self) -> None:
        session = AgentSession.objects.get(pk=self._turn.session_id)
        while page := log.read(session, after=self._sequence, limit=PAGE):
            for event in page:
                self._tell(event)

    def _tell(self, event: LoggedEvent) -> None:
        self._sequence = event.sequence
        if event.execution_id != str(self._turn.execution_id):
            return
        data = event.data or {}
        step = data.get("step") if isinstance(data.get("step"), int) else None
        self._put(StreamChunk(kind="event", event=event, step=step))
        if event.type == EventType.MESSAGE and step is not None:
            self._texts[step] = (data.get("message") or {}).get("content") or ""
        if event.type in _ENDS_STEP and step is not None:
            self._put(StreamChunk(kind="step", step=step, text=self._texts.pop(step, None)))


class TurnStream(Iterator[StreamChunk]):
    """The chunks of one turn; the last is `done`. Leaving a `for` loop, `close()` and `with` end it early.

    Ended early, the turn is given back to the queue, where a worker goes on with it: the model call in hand is let
    go at once, a tool that runs ends first.
    """

    _following: Following | None = None

    def __init__(self, turn: AgentContext, *, works: bool) -> None:
        self._items: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._is_over = False
        self._following = Following(turn, self._items.put)
        # In Django's TestCase another thread would not see the test's rows: the turn works at the first `next`.
        self._works_here = works and database.is_in_test_case()
        if not works:
            self._items.put(StreamChunk(kind="done", result=reading.result_of(turn)))
        elif not self._works_here:
            self._following.start()

    def __next__(self) -> StreamChunk:
        if self._is_over:
            raise StopIteration
        if self._works_here and self._following is not None:
            self._works_here = False
            self._following.run()
        item = self._items.get()
        if isinstance(item, BaseException):
            self._is_over = True
            raise item
        self._is_over = item.kind == "done"
        return item

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Follow no more; a second time changes nothing."""
        self._is_over = True
        if self._following is not None:
            self._following.leave()


async def follow(store: Callable[[], Enqueued]) -> AsyncGenerator[StreamChunk]:
    """Yield the chunks of the turn that `store` stores; it is called in a thread of its own.

    Nothing here waits in the event loop, nor in asgiref's thread.
    """
    items: asyncio.Queue[Item] = asyncio.Queue()
    following = await sync_to_async(_begin, thread_sensitive=False)(store, _put_from_threads(items))
    try:
        if following is not None:
            following.start()
        while True:
            item = await items.get()
            if isinstance(item, BaseException):
                raise item
            yield item
            if item.kind == "done":
                return
    finally:
        if following is not None:
            following.leave()


def _begin(store: Callable[[], Enqueued], put: Put) -> Following | None:
    """Return what follows a new turn; one that is there already is put as it stands."""
    try:
        enqueued = store()
        turn = lifecycle.get(enqueued.turn.execution_id)
        if not enqueued.duplicate:
            return Following(turn, put)
        put(StreamChunk(kind="done", result=reading.result_of(turn)))
        return None
    finally:
        connections.close_all()


def _put_from_threads(items: asyncio.Queue[Item]) -> Put:
    events = asyncio.get_running_loop()

    def put(item: Item) -> None:
        # A loop that is closed by now has nobody left who follows.
        with suppress(RuntimeError):
            events.call_soon_threadsafe(items.put_nowait, item)

    return put
