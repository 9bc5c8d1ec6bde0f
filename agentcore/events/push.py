"""Tell others of committed events: handlers in this process, and sockets through the channel layer.

Nothing depends on it: the log is the truth, and sockets read it when a push is lost.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any

from channels.layers import get_channel_layer

from agentcore.signals import LoggedEvent, session_event

logger = logging.getLogger("agentcore.events")

APPROVALS_GROUP = "agentcore.approvals"
EVENTS_MESSAGE = "agentcore.events"
PUSH_SECONDS = 1.0
# After a failed push, none is tried for this long: a layer that is down must not cost each event a timeout.
PAUSE_SECONDS = 2.0
MAX_WAITING = 10_000

_announcing = threading.local()


def session_group(session_pk: int) -> str:
    """Return the channel layer's group for the sockets of one session."""
    return f"agentcore.session.{session_pk}"


def token_group(session_pk: int) -> str:
    """Return the group for those who follow a session's answers word by word: others need not wake up for each."""
    return f"agentcore.session.{session_pk}.tokens"


def announce(events: Sequence[LoggedEvent]) -> None:
    """Tell handlers in this process and, without waiting, the channel layer.

    Handlers run in the order of the log, also when one of them makes further changes.
    """
    _pusher.submit(events)
    waiting: deque[LoggedEvent] | None = getattr(_announcing, "events", None)
    if waiting is not None:
        waiting.extend(events)
        return
    _announcing.events = waiting = deque(events)
    try:
        while waiting:
            _tell(waiting.popleft())
    finally:
        del _announcing.events


def _tell(event: LoggedEvent) -> None:
    for receiver, answer in session_event.send_robust(sender=LoggedEvent, event=event):
        if isinstance(answer, Exception):
            logger.error(
                "An event handler failed; nothing else is changed by that",
                exc_info=answer,
                extra={"handler": repr(receiver), "event_type": event.type},
            )


class _Pusher:
    """One thread with one event loop per process: layers keep connections per loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._waiting = 0
        self._paused_until = 0.0

    def submit(self, events: Sequence[LoggedEvent]) -> None:
        layer = get_channel_layer()
        if layer is None or not self.has_room():
            return
        # First the loop: a new one begins to count anew.
        loop = self.running_loop()
        self._waiting += 1
        asyncio.run_coroutine_threadsafe(self._push(self._send(layer, events)), loop)

    def has_room(self) -> bool:
        return time.monotonic() >= self._paused_until and self._waiting < MAX_WAITING

    async def send(self, group: str, message: dict[str, Any]) -> None:
        """Send a message from the loop, unless the layer is missing, down or behind."""
        layer = get_channel_layer()
        if layer is not None and self.has_room():
            self._waiting += 1
            await self._push(self._send_to(layer, group, message))

    def flush(self, seconds: float = PUSH_SECONDS) -> None:
        """Wait until what was submitted is sent, for a limited time."""
        if self._loop is None or self._pid != os.getpid():
            return
        until = time.monotonic() + seconds
        while self._waiting and time.monotonic() < until:
            time.sleep(0.01)

    async def _push(self, sending: Coroutine[Any, Any, None]) -> None:
        try:
            if time.monotonic() >= self._paused_until:
                async with asyncio.timeout(PUSH_SECONDS):
                    await sending
        except Exception:
            self._paused_until = time.monotonic() + PAUSE_SECONDS
            logger.warning("The channel layer does not answer; sockets will read the log", exc_info=True)
        finally:
            # Not begun when the layer failed meanwhile.
            sending.close()
            self._waiting -= 1

    async def _send(self, layer: Any, events: Sequence[LoggedEvent]) -> None:
        """Send the events of one change, all of one session, in one message."""
        message = {"type": EVENTS_MESSAGE, "events": [event.as_dict() for event in events]}
        await layer.group_send(session_group(events[0].session_pk), message)
        for event in events:
            if event.type.startswith("tool.approval.") and event.data:
                news = {"type": "agentcore.approval", "id": event.data.get("approval_id")}
                await layer.group_send(APPROVALS_GROUP, news)

    async def _send_to(self, layer: Any, group: str, message: dict[str, Any]) -> None:
        await layer.group_send(group, message)

    def running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            # A forked worker has the object but not the thread.
            if self._loop is None or self._pid != os.getpid():
                self._loop, self._pid, self._waiting = asyncio.new_event_loop(), os.getpid(), 0
                threading.Thread(target=self._loop.run_forever, name="agentcore-push", daemon=True).start()
            return self._loop


_pusher = _Pusher()
atexit.register(_pusher.flush)


def is_possible() -> bool:
    """Say whether there is a channel layer: without one nobody hears of anything before it is in the log."""
    return get_channel_layer() is not None


def has_room() -> bool:
    """Say whether what is sent now has a chance: a layer that failed is left alone for a while."""
    return _pusher.has_room()


def loop() -> asyncio.AbstractEventLoop:
    """Return the loop from which this process pushes."""
    return _pusher.running_loop()


async def send(group: str, message: dict[str, Any]) -> None:
    """Send a message to a group, from `loop()`. It takes at most PUSH_SECONDS, and raises nothing."""
    await _pusher.send(group, message)


def flush(seconds: float = PUSH_SECONDS) -> None:
    """Wait until what was announced is pushed, for a limited time."""
    _pusher.flush(seconds)
