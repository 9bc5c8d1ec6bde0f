"""Push a model's text to sockets as it comes, a few frames a second. It is told to nobody else and kept nowhere.

Whatever the layer does, whoever adds text does not wait: what cannot be sent in time is left out.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from agentcore.events import push

FRAME_SECONDS = 0.05
# The rest of a larger piece goes into the next frame.
MAX_FRAME_TEXT = 8_192
# Of a model that writes faster than frames go out, what has waited so long is left out: a gap is harmless.
MAX_WAITING_TEXT = 8 * MAX_FRAME_TEXT


class TokenPush:
    """Sends the text of one turn. `add` may be called from any thread; the frames go out in its order."""

    def __init__(self, session_pk: int, execution_id: str) -> None:
        self._group = push.token_group(session_pk)
        self._execution_id = execution_id
        self._lock = threading.Lock()
        self._step = self._attempt = self._offset = 0
        self._text = ""
        self._is_sending = False
        self._next_at = 0.0

    def begin(self, *, step: int, attempt: int) -> None:
        """Begin another attempt's text; what is left of the one before is not sent."""
        with self._lock:
            self._step, self._attempt, self._offset, self._text = step, attempt, 0, ""

    def add(self, text: str) -> None:
        """Take a piece of text to send with the next frame."""
        with self._lock:
            self._text += text
            if len(self._text) > MAX_WAITING_TEXT or not push.has_room():
                self._drop()
            if self._is_sending or not self._text:
                return
            self._is_sending = True
        asyncio.run_coroutine_threadsafe(self._send_all(), push.loop())

    def end(self) -> None:
        """Let one more frame go out, and no others: the text is about to be in the log."""
        with self._lock:
            self._text = self._text[:MAX_FRAME_TEXT]

    async def _send_all(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(max(self._next_at - loop.time(), 0))
            frame = self._take()
            if frame is None:
                return
            self._next_at = loop.time() + FRAME_SECONDS
            await push.send(self._group, {"type": "agentcore.token", "frame": frame})

    def _take(self) -> dict[str, Any] | None:
        """Return the next frame; without one, whoever adds text next begins to send again."""
        with self._lock:
            text, self._text = self._text[:MAX_FRAME_TEXT], self._text[MAX_FRAME_TEXT:]
            if not text:
                self._is_sending = False
                return None
            offset, self._offset = self._offset, self._offset + len(text)
            return {
                "execution_id": self._execution_id,
                "step": self._step,
                "attempt": self._attempt,
                "offset": offset,
                "text": text,
            }

    def _drop(self) -> None:
        self._offset, self._text = self._offset + len(self._text), ""
