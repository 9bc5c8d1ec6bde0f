"""Django signals for projects, metrics and logs. Each is sent after the commit of what it tells."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.dispatch import Signal

# One entry of a session's log was committed. Arguments: event (LoggedEvent).
session_event = Signal()

# Three quarters of a request's time are over and it still waits; once per request.
# Arguments: reminder (ApprovalReminder).
approval_reminder = Signal()

# A model was asked, and replied or failed; once for each attempt, also for one that a later attempt makes good.
# Sent in the process that asked, with no transaction open. Arguments: call (ModelCall).
model_called = Signal()


@dataclass(frozen=True, kw_only=True)
class LoggedEvent:
    """One committed entry of a session's log. `created_at` is ISO 8601 in UTC; `data` may be erased (None)."""

    session_pk: int
    session_id: str
    sequence: int
    type: str
    execution_id: str | None
    data: Any
    data_digest: str
    created_at: str
    hash: str

    def as_dict(self) -> dict[str, Any]:
        """Return the event as the API and the sockets show it."""
        return {
            "sequence": self.sequence,
            "type": self.type,
            "execution_id": self.execution_id,
            "data": self.data,
            "data_digest": self.data_digest,
            "created_at": self.created_at,
            "hash": self.hash,
        }


@dataclass(frozen=True, kw_only=True)
class ApprovalReminder:
    """A request that still waits. `permissions` are all that it takes to decide it; times are aware datetimes."""

    approval_id: int
    kind: str
    tool: str
    agent: str
    session_id: str
    execution_id: str
    requested_by: str
    permissions: tuple[str, ...]
    votes_needed: int
    requested_at: datetime
    expires_at: datetime


@dataclass(frozen=True, kw_only=True)
class ModelCall:
    """One attempt to have a model reply: never what was asked or answered.

    `error` is the name of the exception's class, "" when there was a reply. `seconds` is how long it took. Tokens are
    those that the provider counted.
    """

    execution_id: str
    session_id: str
    agent: str
    provider: str
    model: str
    attempt: int
    seconds: float
    input_tokens: int
    output_tokens: int
    finish_reason: str
    error: str
