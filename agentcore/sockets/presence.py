"""Who looks at the same thing at this moment: told from socket to socket through the channel layer, stored nowhere.

Each says every few seconds that it is here, and when it goes. Whoever is not heard of for a while is gone. Without a
layer, or while it is down, nobody is heard of, and nothing else is changed by that.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from channels.layers import get_channel_layer

from agentcore import clock
from agentcore.sockets.doorbell import Doorbell

TELL_SECONDS = 10.0
GONE_SECONDS = 25.0
SEND_SECONDS = 2.0
MAX_NAMES = 20
# A name on a badge; the whole one is on record elsewhere.
MAX_NAME = 100

HERE, GONE = "here", "gone"


class Presence:
    """One who looks. `person` tells people apart, so that two windows of one person are one."""

    def __init__(self, group: str, *, person: str, name: str) -> None:
        self._group, self._person, self._name = group, person, name[:MAX_NAME]
        self._token = uuid.uuid4().hex
        self._others: dict[str, tuple[str, str, float]] = {}

    async def watch(self) -> AsyncGenerator[list[str]]:
        """Yield the names of the others who look, each time they change."""
        shown: list[str] = []
        async with Doorbell(self._group) as bell:
            try:
                await self._say(HERE, asks=True)
                told_at = clock.monotonic()
                while True:
                    for message in await bell.wait(TELL_SECONDS / 2):
                        await self._hear(message)
                    if clock.monotonic() - told_at >= TELL_SECONDS:
                        await self._say(HERE)
                        told_at = clock.monotonic()
                    if (names := self._names()) != shown:
                        shown = names
                        yield names
            finally:
                await self._say(GONE)

    async def _hear(self, message: dict[str, Any]) -> None:
        if message.get("type") != "agentcore.looking" or message.get("token") == self._token:
            return
        token = str(message.get("token"))
        if message.get("is") == GONE:
            self._others.pop(token, None)
            return
        is_new = token not in self._others
        self._others[token] = (str(message.get("person")), str(message.get("name")), clock.monotonic())
        if is_new and message.get("asks"):
            await self._say(HERE)

    def _names(self) -> list[str]:
        since = clock.monotonic() - GONE_SECONDS
        self._others = {token: other for token, other in self._others.items() if other[2] >= since}
        people = {person: name for person, name, _heard in self._others.values() if person != self._person}
        return sorted(people.values())[:MAX_NAMES]

    async def _say(self, what: str, *, asks: bool = False) -> None:
        # Any: projects bring their own layer, and it may fail in any way.
        layer: Any = get_channel_layer()
        if layer is None:
            return
        message = {
            "type": "agentcore.looking",
            "is": what,
            "token": self._token,
            "person": self._person,
            "name": self._name,
            "asks": asks,
        }
        with suppress(Exception):
            async with asyncio.timeout(SEND_SECONDS):
                await layer.group_send(self._group, message)
