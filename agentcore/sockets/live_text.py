"""Tell text that is still being written from text that the log has: pieces of it may arrive late."""

from __future__ import annotations

from typing import Any

from agentcore.events.kinds import FINAL, EventType

_ENDS_TEXT = frozenset({EventType.MESSAGE, EventType.STEP_COMPLETED, EventType.STEP_FAILED})


class LiveText:
    """What one socket has told of the turn at work. A session has one at a time: those before it are over."""

    def __init__(self) -> None:
        self._execution_id: str | None = None
        self._told_step = 0
        self._is_over = False
        self._place = (0, 0)

    def take(self, event: dict[str, Any]) -> None:
        """Take an event that was sent."""
        if event["execution_id"] is None:
            return
        if event["execution_id"] != self._execution_id:
            self._execution_id, self._told_step, self._is_over, self._place = event["execution_id"], 0, False, (0, 0)
        if event["type"] in FINAL:
            self._is_over = True
        step = (event["data"] or {}).get("step")
        if event["type"] in _ENDS_TEXT and isinstance(step, int):
            self._told_step = max(self._told_step, step)

    def is_news(self, frame: dict[str, Any]) -> bool:
        """Say whether a piece of text is to be shown: its step goes on, and no later attempt was begun."""
        # Whoever comes while a model writes has seen no event of its turn yet.
        self._execution_id = self._execution_id or frame["execution_id"]
        if self._execution_id != frame["execution_id"] or self._is_over or frame["step"] <= self._told_step:
            return False
        place = (frame["step"], frame["attempt"])
        is_late = place < self._place
        self._place = max(self._place, place)
        return not is_late
