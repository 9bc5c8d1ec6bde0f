"""Flow control: do not write faster than the client reads.

Most ASGI servers hold up `send` while the client's buffer is full. Daphne does not: it queues without bound.
There, Twisted tells when its buffer is full and when it has room again, if one registers as its producer.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

MAX_WRAPPERS = 20


class Flow:
    """Says when there is room. Where the server holds up `send` itself, there always is."""

    def __init__(self, send: Any) -> None:
        self._room = asyncio.Event()
        self._room.set()
        protocol = _daphne_protocol(send)
        if protocol is not None:
            # The HTTP connection that was upgraded is still registered.
            protocol.unregisterProducer()
            protocol.registerProducer(self, True)

    async def has_room(self) -> None:
        """Return once the client's buffer is not full."""
        await self._room.wait()

    # Twisted's IPushProducer. Daphne's application runs in the reactor's own loop and thread.

    def pauseProducing(self) -> None:
        self._room.clear()

    def resumeProducing(self) -> None:
        self._room.set()

    def stopProducing(self) -> None:
        """The connection is gone: whoever waits may go on, to nowhere."""
        self._room.set()


def _daphne_protocol(send: Any) -> Any:
    """Return Daphne's protocol behind an ASGI `send`, or None.

    Daphne's `send` is a partial of Server.handle_reply with the protocol; Channels' session middleware wraps it.
    """
    for _ in range(MAX_WRAPPERS):
        if isinstance(send, partial):
            return next((item for item in send.args if hasattr(item, "registerProducer")), None)
        send = getattr(getattr(send, "__self__", None), "real_send", None)
    return None
