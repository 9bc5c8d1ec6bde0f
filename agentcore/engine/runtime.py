"""The runtime: every verb a project has, each with an async twin that begins with `a`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from asgiref.sync import sync_to_async
from django.db.models import QuerySet

from agentcore import database
from agentcore.agents.definition import AgentDefinition
from agentcore.agents.registry import definition_of, registry
from agentcore.approvals import decisions, ending
from agentcore.conf import WAIT, optional
from agentcore.drivers.base import Driver
from agentcore.drivers.registry import registry as drivers
from agentcore.engine import access, draining, handlers, loop, reading, starting, twins
from agentcore.engine.following import TurnStream, follow
from agentcore.engine.results import ExecutionResult, StreamChunk
from agentcore.engine.upkeep import Upkeep
from agentcore.exceptions import Conflict
from agentcore.models import AgentContext, AgentSession, ToolApproval
from agentcore.states import TERMINAL, WAITING, TurnState
from agentcore.tools.definition import ToolDefinition
from agentcore.turns import claims, enqueuing, inputs, lifecycle, questions, sessions
from agentcore.turns.enqueuing import Enqueued, TurnOptions
from agentcore.turns.work import Work

FIRST_POLL_SECONDS = 0.02
LAST_POLL_SECONDS = 0.5


class AgentRuntime(Upkeep):
    """Runs agents. `agentcore.runtime` is the project's; it keeps nothing but its event handlers."""

    def __init__(self) -> None:
        self._handlers = handlers.Handlers()

    def register(self, agent_class: type) -> type:
        """Add a class decorated with @agent; `@agent` itself does so already."""
        registry.register(definition_of(agent_class))
        return agent_class

    def register_driver(self, driver: Driver) -> None:
        """Add a driver; a second one with its id is a Conflict."""
        drivers.register(driver)

    def driver_ids(self) -> list[str]:
        """Return the ids of all drivers, sorted; `model` is the built-in one."""
        return drivers.ids()

    def agents(self, user: Any = None) -> list[AgentDefinition]:
        """Return all agents by name, or those that exist for `user`."""
        return [definition for definition in registry.all() if access.can_use(user, definition)]

    def tools(self, agent_name: str) -> dict[str, ToolDefinition]:
        """Return an agent's tools by name; raise NotFound."""
        return dict(registry.get(agent_name).tools)

    def create_session(
        self,
        agent: str,
        *,
        session_id: str | None = None,
        user: Any = None,
        metadata: dict[str, Any] | None = None,
        title: str = "",
    ) -> AgentSession:
        """Begin a session, pinned to the agent's current revision.

        Raises NotFound (no such agent for this user), InvalidInput, or Conflict for a taken `session_id`.
        """
        definition = access.agent_for(user, agent)
        return sessions.create(definition, session_id=session_id, user=user, metadata=metadata, title=title)

    def enqueue(
        self,
        session_id: str,
        message: Any,
        *,
        idempotency_key: str | None = None,
        user: Any = None,
        metadata: dict[str, Any] | None = None,
    ) -> Enqueued:
        """Store a turn and dispatch it after the commit, yours if a transaction is open.

        The same key with the same message and metadata gives the same turn, `duplicate=True`. Raises
        NotFound, InvalidInput, TooLarge, or Conflict (active turn, archived session, key used otherwise).
        """
        session = access.session_for(user, session_id)
        return self._enqueue(session, message, idempotency_key, user, metadata)

    def send(
        self,
        session_id: str,
        message: Any,
        *,
        idempotency_key: str | None = None,
        user: Any = None,
        metadata: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> ExecutionResult:
        """`enqueue`, then `wait` for up to `timeout` seconds until a worker ended or paused the turn."""
        database.require_no_transaction("send")
        inputs.require("timeout", timeout, optional(WAIT))
        enqueued = self.enqueue(session_id, message, idempotency_key=idempotency_key, user=user, metadata=metadata)
        return self.wait(enqueued.turn.execution_id, timeout)

    def execute(
        self,
        agent: str,
        message: Any,
        *,
        session_id: str | None = None,
        user: Any = None,
        idempotency_key: str | None = None,
        max_steps: int | None = None,
        timeout: float | None = None,
        enable_memory: bool | None = None,
        enable_rag: bool | None = None,
        initial_context: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> ExecutionResult:
        """Run a turn in this process until it ends or pauses; the session is made if there is none.

        `timeout` is in seconds of work. A known idempotency key runs nothing: it returns what is stored.
        Raises RuntimeError inside an open transaction.
        """
        started = starting.start(
            "execute",
            agent,
            message,
            session_id=session_id,
            user=user,
            idempotency_key=idempotency_key,
            max_steps=max_steps,
            timeout=timeout,
            enable_memory=enable_memory,
            enable_rag=enable_rag,
            initial_context=initial_context,
            metadata=metadata,
        )
        if isinstance(started, Work):
            return self._go_on(started.turn, started)
        return self.result(started.turn.execution_id) if started.duplicate else self._run(started.turn)

    def stream(self, agent: str, message: Any, **same: Any) -> TurnStream:
        """`execute` with the same keywords, as an iterator of `StreamChunk`: text and events as they come, then `done`.

        What is refused is raised here, before the first chunk. Leaving the iterator early gives the turn back to
        the queue, for a worker to go on with.
        """
        enqueued = starting.store("stream", agent, message, **same)
        return TurnStream(lifecycle.get(enqueued.turn.execution_id), works=not enqueued.duplicate)

    async def astream(self, agent: str, message: Any, **same: Any) -> AsyncIterator[StreamChunk]:
        """Async twin of `stream`: `async for chunk in runtime.astream(…)`."""
        if await sync_to_async(database.is_in_test_case)():
            for chunk in await sync_to_async(lambda: list(self.stream(agent, message, **same)))():
                yield chunk
            return
        await sync_to_async(database.require_no_transaction)("stream")
        async with aclosing(follow(lambda: starting.store("stream", agent, message, **same))) as chunks:
            async for chunk in chunks:
                yield chunk

    def answer(self, execution_id: Any, message: Any, *, idempotency_key: str | None = None, by: str = "") -> Enqueued:
        """Answer a turn that waits for input and dispatch it after the commit, yours if a transaction is open.

        The same key with the same message changes nothing more, `duplicate=True`, also once the turn went on. `by`
        is for the record. Raises NotFound, InvalidInput, TooLarge, or Conflict (it does not wait, key used otherwise).
        """
        return self._answer(execution_id, message, idempotency_key, by)

    def resume(
        self, execution_id: Any, message: Any = None, *, idempotency_key: str | None = None, by: str = ""
    ) -> ExecutionResult:
        """Answer a turn that waits for input, and run it here until it ends or pauses, as `execute` does.

        Without a message: run a queued turn here. Raises Conflict for any other turn, and what `answer` raises.
        """
        database.require_no_transaction("resume")
        if message is not None:
            answered = self._answer(execution_id, message, idempotency_key, by, send=False)
            return self.result(execution_id) if answered.duplicate else self._run(answered.turn)
        turn = lifecycle.get(execution_id)
        if turn.state != TurnState.QUEUED:
            raise Conflict(f"Turn {turn.execution_id} is {turn.state}; only a queued turn is run.", state=turn.state)
        return self._run(turn)

    def approve(
        self, approval_id: int, by: Any, *, arguments: Any = None, note: str = "", version: int | None = None
    ) -> ToolApproval:
        """Allow a call, with edited `arguments` in place of those shown if they are given."""
        return decisions.approve(approval_id, by, arguments=arguments, note=note, version=version)

    def reject(self, approval_id: int, by: Any, *, reason: str = "", version: int | None = None) -> ToolApproval:
        """Refuse a call; the model is told the reason word for word."""
        return decisions.reject(approval_id, by, reason=reason, version=version)

    def respond(
        self, approval_id: int, by: Any, result: Any, *, note: str = "", version: int | None = None
    ) -> ToolApproval:
        """Give the model `result` in place of running the tool."""
        return decisions.respond(approval_id, by, result, note=note, version=version)

    def pending_approvals(self, user: Any = None) -> QuerySet[ToolApproval]:
        """Return what waits for a decision; with `user`, what that user may decide."""
        pending: QuerySet[ToolApproval] = ToolApproval.objects.pending().filter(session__deleted_at=None)
        return pending if user is None else pending.for_reviewer(user)  # type: ignore[attr-defined]

    def result(self, execution_id: Any) -> ExecutionResult:
        """Return how a turn stands now; raise NotFound."""
        return reading.result_of(lifecycle.get(execution_id))

    def wait(self, execution_id: Any, timeout: float | None = None) -> ExecutionResult:
        """Return once the turn has ended or waits for people, or as it stands after `timeout` seconds."""
        inputs.require("timeout", timeout, optional(WAIT))
        until = None if timeout is None else time.monotonic() + timeout
        pause = FIRST_POLL_SECONDS
        while True:
            turn = lifecycle.get(execution_id)
            settled = turn.state in TERMINAL or turn.state in WAITING
            if settled or (until is not None and time.monotonic() >= until):
                return reading.result_of(turn)
            database.release_connection()
            time.sleep(pause if until is None else min(pause, max(until - time.monotonic(), 0)))
            pause = min(pause * 1.5, LAST_POLL_SECONDS)

    def session_turns(self, session_id: str) -> QuerySet[AgentContext]:
        """Return the turns of a session, oldest first; raise NotFound."""
        turns: QuerySet[AgentContext] = AgentContext.objects.present().filter(session=sessions.get(session_id))
        return turns.order_by("pk")

    def cancel(self, session_id: str, *, by: str = "") -> AgentContext:
        """Cancel the session's active turn and return it; raise Conflict when there is none.

        A turn that a worker has is `cancelling` until the call in hand returns or times out.
        """
        return ending.cancel(sessions.get(session_id), by=by)

    def archive(self, session_id: str) -> AgentSession:
        """Close a session to new turns; raise Conflict while one is active."""
        return sessions.archive(sessions.get(session_id))

    def delete(self, session_id: str) -> None:
        """Remove a session from sight, or for good with SOFT_DELETE off; raise Conflict while a turn is active."""
        sessions.delete(sessions.get(session_id))

    def restore(self, session_id: str) -> AgentSession:
        """Bring a deleted session back as it was; raise NotFound, or Conflict for one that was erased."""
        return sessions.restore(session_id)

    def on(self, event_type: str, handler: handlers.Handler) -> None:
        """Call `handler(event)` after the commit of each event of a type, in this process."""
        self._handlers.add(event_type, handler)

    def off(self, event_type: str, handler: handlers.Handler) -> None:
        """Forget a handler that `on` added."""
        self._handlers.remove(event_type, handler)

    def on_any(self, handler: handlers.Handler) -> None:
        """Call `handler(event)` after the commit of every event; `off("*", handler)` forgets it."""
        self._handlers.add(handlers.ANY, handler)

    acreate_session = twins.short(create_session)
    aenqueue = twins.short(enqueue)
    asend = twins.long(send)
    aexecute = twins.long(execute)
    aanswer = twins.short(answer)
    aresume = twins.long(resume)
    aapprove = twins.short(approve)
    areject = twins.short(reject)
    arespond = twins.short(respond)
    aresult = twins.short(result)
    asession_turns = twins.short(session_turns)
    apending_approvals = twins.short(pending_approvals)
    # `a` + `wait` would spell a keyword of Python.
    await_ = twins.long(wait)
    acancel = twins.short(cancel)
    aarchive = twins.short(archive)
    adelete = twins.short(delete)
    arestore = twins.short(restore)

    def _enqueue(
        self,
        session: AgentSession,
        message: Any,
        idempotency_key: str | None,
        user: Any,
        metadata: dict[str, Any] | None,
    ) -> Enqueued:
        return enqueuing.enqueue(
            session,
            message=inputs.checked_message(message),
            key=inputs.checked_key(idempotency_key),
            user=user,
            metadata=sessions.checked_metadata(metadata),
            options=TurnOptions(),
        )

    def _answer(
        self, execution_id: Any, message: Any, idempotency_key: str | None, by: str, *, send: bool = True
    ) -> Enqueued:
        return questions.answer(
            lifecycle.get(execution_id),
            message=inputs.checked_message(message),
            key=inputs.checked_key(idempotency_key),
            by=by,
            send=send,
        )

    def _run(self, turn: AgentContext) -> ExecutionResult:
        """Work on a turn that was just read as queued, here, until it ends or waits."""
        return self._go_on(turn, None if draining.is_on() else claims.take(turn))

    def _go_on(self, turn: AgentContext, work: Work | None) -> ExecutionResult:
        # A handler may have decided all requests meanwhile: then the turn is queued again, and goes on here.
        while True:
            if work is not None:
                loop.go_on(work)
                if (result := reading.result_in_hand(work)) is not None:
                    return result
            turn = lifecycle.get(turn.execution_id)
            if turn.state != TurnState.QUEUED or draining.is_on():
                break
            work = None if _waits_a_moment(turn) else claims.take(turn)
        is_settled = turn.state in TERMINAL or turn.state in WAITING or draining.is_on()
        return reading.result_of(turn) if is_settled else self.wait(turn.execution_id)


def _waits_a_moment(turn: AgentContext) -> bool:
    """Wait a little for a turn that was given back to go on later; False for one that is due."""
    seconds = lifecycle.seconds_until_due(turn)
    if not seconds:
        return False
    database.release_connection()
    time.sleep(min(max(seconds, FIRST_POLL_SECONDS), LAST_POLL_SECONDS))
    return True
