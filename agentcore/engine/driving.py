"""Run a turn by a registered driver instead of the built-in loop."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from django.db import DatabaseError

from agentcore import canonical, clock, database
from agentcore.conf import settings
from agentcore.drivers.base import Driver, DriverIO, DriverResult, DriverTurn
from agentcore.drivers.registry import registry
from agentcore.engine import limits, tool_context
from agentcore.engine.prompt import Conversation
from agentcore.engine.tool_context import EventInbox
from agentcore.exceptions import AgentError, DriverUnavailable, TooLarge, TurnCancelled, TurnFailure
from agentcore.messages import Message, ModelReply
from agentcore.tools import execution, results
from agentcore.turns import sessions, steps
from agentcore.turns.work import Work

logger = logging.getLogger("agentcore.engine")

# How often a driver at work is looked after, and how long it may go on once its turn was cancelled.
LOOK_SECONDS = 2.0
CANCEL_GRACE_SECONDS = 10.0
MAX_HANDLE = 255


def run(work: Work, conversation: Conversation) -> None:
    """Let the driver work the turn to its end; it is cut off when the turn's time is over, or soon after a cancel."""
    driver = _driver_of(work)
    # Also in this process: the database may have failed the turn after the driver began.
    if (work.turn.takeovers or work.driver_began) and not driver.resumable:
        _interrupt(work, driver)
        return
    watch = _Watch(work)
    turn, io = _turn(work, conversation), _io(work, watch)
    database.release_connection()
    work.lease.require_current()
    work.driver_began = True
    try:
        outcome = execution.run_tool(
            lambda: driver.run(turn, io),
            timeout=limits.require_time(work),
            bell=execution.Bell(watch.look, event=watch.inbox.bell.event, every=LOOK_SECONDS),
            in_caller=database.is_in_test_case(),
        )
    finally:
        watch.inbox.close()
    _record(work, outcome)


class _Watch:
    """Looks after a driver at work: writes what it emits, and cuts it off when it goes on after a cancel."""

    def __init__(self, work: Work) -> None:
        self.inbox = EventInbox(work)
        self._work = work
        self._was_cancelled = tool_context.CancelCheck(work)
        self._until: float | None = None

    def look(self) -> None:
        self.inbox.write_now()
        if self._until is None and self._is_known_to_be_cancelled():
            self._until = clock.monotonic() + CANCEL_GRACE_SECONDS
        if self._until is not None and clock.monotonic() >= self._until:
            logger.warning(
                "A driver did not end after its turn was cancelled; it is cut off",
                extra={"execution_id": str(self._work.turn.execution_id), "driver": self._work.pinned["driver"]},
            )
            raise TurnCancelled

    def _is_known_to_be_cancelled(self) -> bool:
        try:
            return self._was_cancelled()
        except DatabaseError:
            # The driver's work need not suffer when the database is away for a moment; it is asked again soon.
            logger.warning("Whether a driver's turn was cancelled cannot be read", exc_info=True)
            return False

    def is_cancelled(self) -> bool:
        """Answer the driver: yes too when it was cut off and nobody waits for it any more."""
        return self.inbox.is_closed or self._was_cancelled()


def _driver_of(work: Work) -> Driver:
    name = work.pinned["driver"]
    driver = registry.find(name)
    if driver is None:
        known = ", ".join(registry.ids())
        raise DriverUnavailable(f"The driver {name!r} is not registered here. Known: {known}.", driver=name)
    return driver


def _interrupt(work: Work, driver: Driver) -> None:
    error = TurnFailure(
        f"The turn lost its worker or database while the driver {driver.id!r} ran, which cannot take a turn up again.",
        code="process_restarted",
        driver=driver.id,
    )
    steps.interrupt_turn(work, limits.told(error))


def _turn(work: Work, conversation: Conversation) -> DriverTurn:
    session = work.turn.session
    return DriverTurn(
        execution_id=str(work.turn.execution_id),
        session_id=session.session_id,
        agent=work.turn.agent.name,
        revision=work.pinned,
        history=conversation.history(),
        input=Message(role="user", content=work.turn.input["content"]),
        driver_session_id=session.driver_session_id or None,
    )


def _io(work: Work, watch: _Watch) -> DriverIO:
    left = timedelta(seconds=limits.require_time(work))
    return DriverIO(emit=watch.inbox.send_from_driver, is_cancelled=watch.is_cancelled, deadline=clock.now() + left)


def _record(work: Work, outcome: execution.Outcome) -> None:
    if outcome.kind == "timed_out":
        raise limits.turn_timeout(work)
    if outcome.error is not None:
        raise _failure(work, outcome.error) from outcome.error
    result = outcome.value
    if not isinstance(result, DriverResult):
        raise TurnFailure(f"The driver returned a {type(result).__name__}, not a DriverResult.")
    reply = ModelReply(content=_text_of(result), model=work.pinned["driver"])
    fields, metadata = _session_fields(result), _metadata(work, result)
    steps.record_answer(work, reply, duration=outcome.duration, session_fields=fields, metadata=metadata)


def _text_of(result: DriverResult) -> str:
    message = result.message
    if isinstance(message, Message):
        if message.role != "assistant":
            raise TurnFailure(f"The driver's message has the role {message.role!r}; it must be 'assistant'.")
        message = message.content or ""
    if not isinstance(message, str):
        raise TurnFailure(f"The driver's message is a {type(message).__name__}, neither text nor a Message.")
    text = canonical.clean_text(message)
    if len(text.encode()) > settings.MAX_EVENT_BYTES:
        raise _too_large("message", settings.MAX_EVENT_BYTES, "bytes")
    return text


def _session_fields(result: DriverResult) -> dict[str, Any] | None:
    """Return what the session keeps of the driver: its handle, whole or not at all. None leaves it as it is."""
    if result.driver_session_id is None:
        return None
    handle = canonical.clean_text(str(result.driver_session_id))
    if len(handle) > MAX_HANDLE:
        raise _too_large("driver_session_id", MAX_HANDLE, "characters")
    return {"driver_session_id": handle}


def _metadata(work: Work, result: DriverResult) -> dict[str, Any]:
    given = result.metadata or {}
    if not isinstance(given, dict):
        raise TurnFailure(f"The driver's metadata is a {type(given).__name__}, not a dict.")
    added: dict[str, Any] = results.to_json(given)
    if canonical.byte_size(added) > settings.MAX_EVENT_BYTES:
        raise _too_large("metadata", settings.MAX_EVENT_BYTES, "bytes as JSON")
    return sessions.checked_metadata({**work.turn.metadata, **added})


def _too_large(what: str, limit: int, unit: str) -> TooLarge:
    return TooLarge(f"The driver's {what} is over {limit} {unit}.", limit=limit)


def _failure(work: Work, error: BaseException) -> AgentError:
    if isinstance(error, AgentError) and error.code != "internal":
        return error
    logger.error("A driver failed", exc_info=error, extra={"execution_id": str(work.turn.execution_id)})
    kind = type(error).__name__
    return TurnFailure(f"The driver failed ({kind}).", code="driver_error", kind=kind)
