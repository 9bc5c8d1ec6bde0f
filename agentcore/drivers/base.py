"""What a driver is: the seam behind which a turn is run by something else than the built-in loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from agentcore.messages import Message


@dataclass(frozen=True, kw_only=True)
class DriverTurn:
    """What a driver is given of a turn. `revision` is the pinned definition, `history` what was said before."""

    execution_id: str
    session_id: str
    agent: str
    revision: Mapping[str, Any]
    history: tuple[Message, ...]
    input: Message
    driver_session_id: str | None


@dataclass(frozen=True, kw_only=True)
class DriverIO:
    """What a driver may do: emit events, look whether it was cancelled; after `deadline` it is cut off."""

    emit: Callable[[str, dict[str, Any]], None]
    is_cancelled: Callable[[], bool]
    deadline: datetime

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked the turn to end."""
        return self.is_cancelled()


@dataclass(frozen=True, kw_only=True)
class DriverResult:
    """What a driver returns: its last message, its own handle on the session, and metadata."""

    message: str | Message
    driver_session_id: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


@runtime_checkable
class Driver(Protocol):
    """Runs whole turns. `resumable` says that a turn may be run again after a crash."""

    id: str
    resumable: bool

    def run(self, turn: DriverTurn, io: DriverIO) -> DriverResult:
        """Work the turn to its end and return its result."""
        ...
