"""What a running tool knows and may do: the ToolContext that the runtime passes to it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from functools import cached_property
from typing import Any

from agentcore.exceptions import Conflict


class ToolContext:
    """The call in hand, seen from inside a tool. A parameter typed ToolContext receives it.

    `call_id` stays the same over retries and restarts: hand it on as an idempotency key.
    `approved_by` holds the user names of those who approved the call, () when nobody had to.
    `working_memory` is the turn's, saved key by key.
    """

    def __init__(
        self,
        *,
        execution_id: str,
        session_id: str,
        agent: str,
        call_id: str,
        find_user: Callable[[], Any] = lambda: None,
        approved_by: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
        is_cancelled: Callable[[], bool] = lambda: False,
        send: Callable[[str, dict[str, Any]], None] | None = None,
        working_memory: MutableMapping[str, Any] | None = None,
        search: Callable[[str, int], list[dict[str, Any]]] | None = None,
    ) -> None:
        self.execution_id = execution_id
        self.session_id = session_id
        self.agent = agent
        self.call_id = call_id
        self.approved_by = tuple(approved_by)
        self.working_memory: MutableMapping[str, Any] = {} if working_memory is None else working_memory
        # Where events go when there is no runtime behind the context, as in a unit test.
        self.emitted: list[tuple[str, dict[str, Any]]] = []
        self._find_user = find_user
        self._metadata = dict(metadata or {})
        self._is_cancelled = is_cancelled
        self._send = send
        self._search = search
        self._has_ended = False

    @classmethod
    def for_testing(cls, *, user: Any = None, cancelled: bool = False, **overrides: Any) -> ToolContext:
        """Return a context to call a tool with in a unit test; what it emits is kept in `emitted`."""
        given: dict[str, Any] = {
            "execution_id": "00000000-0000-0000-0000-000000000000",
            "session_id": "test-session",
            "agent": "test-agent",
            "call_id": "test-call",
        }
        return cls(find_user=lambda: user, is_cancelled=lambda: cancelled, **(given | overrides))

    # Any: the project chooses its own user model.
    @cached_property
    def user(self) -> Any:
        """The user the turn belongs to, or None; read from the database at the first access."""
        return self._find_user()

    @property
    def metadata(self) -> dict[str, Any]:
        """A copy of the turn's metadata: changing it changes nothing."""
        return copy.deepcopy(self._metadata)

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked the turn to end; a long tool looks now and then, and stops."""
        return self._is_cancelled()

    def emit(self, type: str, data: Mapping[str, Any] | None = None) -> None:
        """Write an event of the tool's own into the session's log, from any thread.

        Raises Conflict after the call has ended.
        """
        if self._has_ended:
            raise Conflict(f"Call {self.call_id} has ended: it emits no more events.", call_id=self.call_id)
        payload = dict(data or {})
        if self._send is None:
            self.emitted.append((type, payload))
        else:
            self._send(type, payload)

    def search_knowledge(self, query: str, limit: int = 5) -> list[dict[str, Any]]:
        """Return at most `limit` passages of the agent's documents and the shared ones, best first.

        Each has `document, title, source, heading, position, text, score`. It is for a sync tool; an async one calls
        it by `asyncio.to_thread`. Raises EmbedderFailed. A context for testing without `search` finds nothing.
        """
        return self._search(query, limit) if self._search is not None else []

    def end(self) -> None:
        """Let the context emit nothing more. The runtime calls it when the call is over."""
        self._has_ended = True
