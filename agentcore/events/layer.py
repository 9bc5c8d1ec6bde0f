"""A channel layer for one process: the web server, the worker threads and the sockets share it."""

from __future__ import annotations

import asyncio
from typing import Any

from channels.layers import InMemoryChannelLayer


class InProcessChannelLayer(InMemoryChannelLayer):
    """The in-memory layer of Channels, made safe to send to from other threads.

    The stock layer puts into an asyncio queue from the sender's thread, which does not wake the
    reader's loop: messages then arrive up to a second late. Here a message is delivered on the loop
    that reads the channel.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._loops: dict[str, asyncio.AbstractEventLoop] = {}

    async def new_channel(self, prefix: str = "specific.") -> str:
        channel: str = await super().new_channel(prefix)
        self._loops[channel] = asyncio.get_running_loop()
        return channel

    async def send(self, channel: str, message: dict[str, Any]) -> None:
        loop = self._loops.get(channel)
        if loop is None or loop is asyncio.get_running_loop():
            await super().send(channel, message)
        elif not loop.is_closed():
            sending = asyncio.run_coroutine_threadsafe(super().send(channel, message), loop)
            await asyncio.wrap_future(sending)

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        self._clean_expired()  # type: ignore[attr-defined]  # left out of the stubs
        for channel in list(self.groups.get(group, ())):
            try:
                await self.send(channel, message)
            except Exception:  # noqa: BLE001,S112 - a full or closed channel loses its own message only
                continue

    async def group_discard(self, group: str, channel: str) -> None:
        await super().group_discard(group, channel)
        if not any(channel in members for members in self.groups.values()):
            self._loops.pop(channel, None)
