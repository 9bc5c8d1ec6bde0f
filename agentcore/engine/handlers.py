"""Handlers of a runtime: functions that are told of committed events, in order, in this process."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import async_to_sync

from agentcore.exceptions import InvalidInput
from agentcore.signals import LoggedEvent, session_event

logger = logging.getLogger("agentcore.events")

Handler = Callable[[LoggedEvent], Any]
ANY = "*"


class Handlers:
    """Handlers by event type. One that raises is logged and changes nothing."""

    def __init__(self) -> None:
        self._by_type: dict[str, list[Handler]] = {}
        self._connected = False

    def add(self, event_type: Any, handler: Any) -> None:
        """Add a handler; raise InvalidInput for what is no type or cannot be called."""
        if not isinstance(event_type, str) or not callable(handler):
            raise InvalidInput(f"on() takes an event type and a function, not {event_type!r} and {handler!r}.")
        self._by_type.setdefault(str(event_type), []).append(handler)
        if not self._connected:
            session_event.connect(self._receive)
            self._connected = True

    def remove(self, event_type: str, handler: Handler) -> None:
        """Forget a handler; one that is not there is no error."""
        present = self._by_type.get(str(event_type), [])
        if handler in present:
            present.remove(handler)

    def _receive(self, *, event: LoggedEvent, **_: Any) -> None:
        for handler in [*self._by_type.get(event.type, ()), *self._by_type.get(ANY, ())]:
            try:
                _call(handler, event)
            except Exception:
                logger.exception(
                    "An event handler failed; nothing else is changed by that",
                    extra={"event_type": event.type, "execution_id": event.execution_id},
                )


def _call(handler: Handler, event: LoggedEvent) -> None:
    result = handler(event)
    # Whatever it was that gave it: an async function, an object or a decorator round one.
    if inspect.isawaitable(result):
        async_to_sync(_awaited)(result)


async def _awaited(result: Awaitable[Any]) -> None:
    await result
