"""Hand on the text of one model call while it comes: cleaned, numbered, and each attempt told from the one before."""

from __future__ import annotations

import logging
import threading

from agentcore import canonical
from agentcore.events import push
from agentcore.events.tokens import TokenPush
from agentcore.messages import ModelDelta
from agentcore.turns.work import Work

logger = logging.getLogger("agentcore.engine")

# Each claim of a turn begins a range of its own: whoever asks the model again has the higher number.
ATTEMPTS_PER_CLAIM = 1_000


class Tokens:
    """The text of one call. `text` is what the present attempt has brought."""

    def __init__(self, work: Work) -> None:
        self._work, self._step = work, work.step.number
        self._before = work.attempts.get(self._step, 0)
        self._attempt = 0
        self._pieces: list[str] = []
        # One half of a character whose other half comes with the next piece.
        self._half = ""
        self._push = _push_of(work)
        self._lock = threading.Lock()
        self._is_over = False

    @property
    def text(self) -> str:
        return "".join(self._pieces) + canonical.clean_text(self._half)

    def add(self, delta: ModelDelta) -> None:
        """Take the next piece; a higher attempt voids what came before, and a lower one is void itself."""
        with self._lock:
            if delta.attempt > self._attempt:
                self._begin(delta.attempt)
            if delta.attempt == self._attempt and not self._is_over:
                self._tell(self._joined(delta.text))

    def end(self) -> None:
        """Tell nothing more: the reply is about to be stored, or of no use."""
        with self._lock:
            self._is_over = True
        if self._push is not None:
            self._push.end()

    def _begin(self, attempt: int) -> None:
        self._attempt = attempt
        self._pieces, self._half = [], ""
        self._work.attempts[self._step] = self._before + attempt
        if self._push is not None:
            self._push.begin(step=self._step, attempt=self._number)

    @property
    def _number(self) -> int:
        return (self._work.lease.token - 1) * ATTEMPTS_PER_CLAIM + self._before + self._attempt

    def _joined(self, piece: str) -> str:
        text = self._half + piece
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return canonical.clean_text(text[: len(text) - len(self._half)])

    def _tell(self, text: str) -> None:
        if not text:
            return
        self._pieces.append(text)
        if self._work.audience is not None:
            self._work.audience.hear(step=self._step, attempt=self._number, text=text)
        if self._push is not None:
            try:
                self._push.add(text)
            except RuntimeError:
                # The process ends, and its loop with it: the turn itself may still come to its end.
                logger.debug("Text could not be pushed", exc_info=True)


def _push_of(work: Work) -> TokenPush | None:
    """Return what sends a turn's text to sockets, one for all its steps; None when no socket could hear of it."""
    if work.token_push is None and push.is_possible():
        work.token_push = TokenPush(work.lease.session_pk, str(work.lease.execution_id))
    return work.token_push
