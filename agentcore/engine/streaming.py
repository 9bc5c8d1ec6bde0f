"""Have a model answer, piece by piece where its provider can: hand the text on, and stop when it is of no use.

What is stored is the final reply alone. The text on its way goes to sockets and to who follows the turn in this
process; a stream that breaks off raises, and nothing it asked for is done.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

from agentcore import database
from agentcore.engine import watching
from agentcore.engine.tokens import Tokens
from agentcore.exceptions import LeaseLost, ProviderConnectionError, TurnCancelled
from agentcore.messages import ModelReply, ModelRequest
from agentcore.providers.base import ModelProvider
from agentcore.providers.resilient import Resilient
from agentcore.states import TurnState
from agentcore.tools import execution
from agentcore.turns.work import Work

logger = logging.getLogger("agentcore.engine")


class AudienceLeft(Exception):
    """Nobody follows the turn any more: the reply is let go, and the turn given back."""


def streams(provider: object) -> bool:
    """Say whether a provider really streams, and does not inherit the one piece of ModelProvider."""
    asked = provider.provider if isinstance(provider, Resilient) else provider
    own = getattr(type(asked), "stream", None)
    return own is not None and own is not ModelProvider.stream


class Answer:
    """One answer of a model, read in a thread of its own.

    `partial_text` is what came of it, as long as there is no whole reply.
    """

    # Any: whatever class has ModelProvider's methods.
    def __init__(self, work: Work, provider: Any, request: ModelRequest) -> None:
        self._work, self._provider, self._request = work, provider, request
        self._tokens = Tokens(work)
        self._is_over = threading.Event()
        self._reason: Exception | None = None
        self.bell = execution.Bell(self._raise_reason)

    @property
    def partial_text(self) -> str:
        return self._tokens.text

    def wait(self) -> execution.Outcome:
        """Return how the call ended. Raises TurnCancelled, LeaseLost or AudienceLeft when it is of no use any more."""
        if not streams(self._provider):
            return self._run(lambda: self._provider.complete(self._request))
        with watching.watched(self, is_apart=not database.is_in_test_case()):
            self._follow_audience()
            try:
                return self._run(self._read)
            finally:
                # Whatever ended it: the thread that reads must end as well, and tell nobody anything more.
                self._is_over.set()
                self._tokens.end()
                self._leave_audience()

    @property
    def turn_pk(self) -> int:
        return self._work.turn.pk

    def look(self, row: tuple[int, str] | None) -> None:
        """Take what the turn's row says, its token and state; stop when the answer is of no use any more."""
        token, state = row or (0, "")
        if token != self._work.lease.token or not self._work.lease.is_current():
            self._stop(LeaseLost(f"The lease of turn {self._work.lease.execution_id} is another's."))
        elif state == TurnState.CANCELLING:
            self._stop(TurnCancelled(f"Turn {self._work.lease.execution_id} was cancelled."))

    def _run(self, function: Any) -> execution.Outcome:
        return execution.run_tool(
            function, timeout=self._request.timeout, bell=self.bell, in_caller=database.is_in_test_case()
        )

    def _read(self) -> ModelReply:
        reply: ModelReply | None = None
        pieces = iter(self._provider.stream(self._request))
        try:
            for item in pieces:
                if self._is_over.is_set():
                    raise AudienceLeft
                if isinstance(item, ModelReply):
                    reply = item
                else:
                    self._tokens.add(item)
        finally:
            _close(pieces)
        if reply is None:
            raise ProviderConnectionError("The answer broke off before its end.")
        return reply

    def _follow_audience(self) -> None:
        if self._work.audience is not None:
            self._work.audience.call_when_left(lambda: self._stop(AudienceLeft()))

    def _leave_audience(self) -> None:
        if self._work.audience is not None:
            self._work.audience.call_when_left(None)

    def _stop(self, reason: Exception) -> None:
        self._reason = reason
        self.bell.event.set()

    def _raise_reason(self) -> None:
        if self._reason is not None:
            raise self._reason


def _close(pieces: Iterator[Any]) -> None:
    """End a stream early: a provider's generator gives its connection back then."""
    close = getattr(pieces, "close", None)
    if close is not None:
        close()
