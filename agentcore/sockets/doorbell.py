"""Hear of news in groups of the channel layer. It is a courtesy: without it the feeds read the log now and then."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from channels.layers import get_channel_layer

from agentcore import clock

logger = logging.getLogger("agentcore.sockets")

# How long one call to the layer may take, and how long the replay waits for the group to be joined.
LAYER_SECONDS = 5.0
JOIN_SECONDS = 1.0
# A layer may forget who is in a group (it expires, or Redis was restarted): join again this often.
REJOIN_SECONDS = 300.0
PAUSE_SECONDS = 1.0
COMPLAIN_SECONDS = 60.0
# What is dropped here is read from the log.
MAX_WAITING = 50


class Doorbell:
    """Rings when a message for one of the groups comes, or may have been lost. Use it as an async context manager.

    Whatever the layer does (raise, hang, time out, be missing), the socket goes on.
    """

    def __init__(self, *groups: str) -> None:
        self._groups = groups
        self._rung = asyncio.Event()
        self._joined = asyncio.Event()
        self._news: deque[dict[str, Any]] = deque(maxlen=MAX_WAITING)

    async def __aenter__(self) -> Self:
        self._listening = asyncio.create_task(self._listen())
        # Joined before anything is read: what happens in between rings.
        with suppress(TimeoutError):
            async with asyncio.timeout(JOIN_SECONDS):
                await self._joined.wait()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)

    async def wait(self, seconds: float) -> list[dict[str, Any]]:
        """Return the messages that came; none after `seconds`, or when some may have been lost."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        self._rung.clear()
        news = list(self._news)
        self._news.clear()
        return news

    async def _listen(self) -> None:
        while True:
            try:
                await self._hear()
            except Exception as error:  # noqa: BLE001 - any layer may fail in any way
                _complaints.add(error)
            self._joined.set()
            self._rung.set()
            await asyncio.sleep(PAUSE_SECONDS)

    async def _hear(self) -> None:
        # Any: projects bring their own.
        layer: Any = get_channel_layer()
        if layer is None:
            self._joined.set()
            await asyncio.Event().wait()
        channel = await layer.new_channel()
        try:
            while True:
                for group in self._groups:
                    async with asyncio.timeout(LAYER_SECONDS):
                        await layer.group_add(group, channel)
                self._joined.set()
                await self._receive(layer, channel)
        finally:
            for group in self._groups:
                with suppress(Exception):
                    async with asyncio.timeout(PAUSE_SECONDS):
                        await layer.group_discard(group, channel)

    async def _receive(self, layer: Any, channel: str) -> None:
        """Take in messages until it is time to join again."""
        time_to_join = asyncio.timeout(REJOIN_SECONDS)
        try:
            async with time_to_join:
                while True:
                    self._news.append(await layer.receive(channel))
                    self._rung.set()
        except TimeoutError:
            # The layer's own time-outs are failures.
            if not time_to_join.expired():
                raise


class _Complaints:
    """Logs that the layer fails, now and then and not for each socket.

    redis-py 8 gives up a quiet read after 5 seconds unless the layer's hosts have a longer socket_timeout.
    """

    def __init__(self) -> None:
        self._next_at = 0.0

    def add(self, error: Exception) -> None:
        is_due = clock.monotonic() >= self._next_at
        if is_due:
            self._next_at = clock.monotonic() + COMPLAIN_SECONDS
        logger.log(
            logging.WARNING if is_due else logging.DEBUG,
            "The channel layer does not answer a socket; it reads the log now and then instead",
            exc_info=error,
        )


_complaints = _Complaints()
