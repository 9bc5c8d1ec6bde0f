"""What a state backend is: a few fields for each turn, set one by one, that live as long as the turn needs them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

from agentcore.conf import settings
from agentcore.states import TERMINAL, WAITING, TurnState


class Phase(StrEnum):
    """How far a turn is: it says how long its hot copy lives."""

    ACTIVE = "active"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"


class StateBackend(Protocol):
    """Keeps the hot copy of turns: fields of text by name, for each turn its own.

    Nothing durable depends on it: it may lose every copy at any moment. No method raises because a server is away;
    `write` says so by its answer. All may be called from any thread and after a fork, and outside of transactions.
    """

    # Without a hot copy nothing is written or read, and working memory is stored with each result.
    is_hot: bool

    def is_up(self) -> bool:
        """Say whether a write now is likely to be taken."""

    def write(self, execution_id: str, fields: Mapping[str, str], *, phase: Phase) -> bool:
        """Set these fields of a turn's copy, and no others, and let it live as long as its phase says.

        Returns False when they were not taken.
        """

    def read(self, execution_id: str) -> dict[str, str]:
        """Return all fields of a turn's copy, {} when there is none."""

    def forget(self, execution_id: str) -> bool:
        """Drop a turn's copy; say whether there was one. Raises what the server says: erasure must know."""


def phase_of(state: str) -> Phase:
    """Return the phase of a turn in a state; one that was cancelled or interrupted is kept as long as a failed one."""
    if state in WAITING:
        return Phase.WAITING
    if state not in TERMINAL:
        return Phase.ACTIVE
    return Phase.COMPLETED if state == TurnState.COMPLETED else Phase.FAILED


def seconds_to_live(phase: Phase) -> float | None:
    """Return how long a copy lives after its last change: STATE_TTL, and None, which is for ever, while it waits."""
    return None if phase is Phase.WAITING else float(settings.STATE_TTL[phase])
