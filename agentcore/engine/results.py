"""What a caller gets back of a turn."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Literal

from agentcore.messages import Usage
from agentcore.signals import LoggedEvent
from agentcore.states import TurnState


class _Value:
    """Fields can be read as attributes or, as in the API's JSON, by name."""

    def __getitem__(self, name: str) -> Any:
        if name not in {item.name for item in fields(self)}:  # type: ignore[arg-type]  # a dataclass below
            raise KeyError(name)
        return getattr(self, name)


@dataclass(frozen=True, kw_only=True)
class PendingApproval(_Value):
    """A request a turn waits for."""

    id: int
    tool: str
    expires_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class CallSummary(_Value):
    """One tool call of a step. `arguments` and `result` are masked; `late_result` came after a timeout or cancel."""

    call_id: str
    tool: str
    arguments: Any
    status: str
    result: Any
    error: dict[str, Any] | None
    attempts: int
    late_result: Any


@dataclass(frozen=True, kw_only=True)
class StepSummary(_Value):
    """One step of a turn. `duration` is in seconds, None while the step goes on.

    `finish_reason` is why the model stopped, "" before it did: `length` marks a text that was cut off.
    """

    number: int
    state: str
    action: str
    message: dict[str, Any] | None
    finish_reason: str
    tool_calls: tuple[CallSummary, ...]
    usage: Usage
    duration: float | None
    error: dict[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class Citation(_Value):
    """A passage of a document that the model was shown. `heading` holds the headings above it."""

    document: int
    title: str
    source: str
    heading: str
    position: int
    score: float


@dataclass(frozen=True, kw_only=True)
class ExecutionResult(_Value):
    """How a turn stands. `duration` is in seconds from its first claim to its end, or to now.

    `citations` are the passages of the knowledge base that the model was shown, in the order they were found.
    """

    execution_id: str
    session_id: str
    agent: str
    state: TurnState
    response: str | None
    steps: tuple[StepSummary, ...]
    error: dict[str, Any] | None
    pending_approvals: tuple[PendingApproval, ...]
    question: str | None
    usage: Usage
    duration: float | None
    completed_at: datetime | None
    metadata: dict[str, Any]
    citations: tuple[Citation, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StreamChunk:
    """A piece of a turn as it happens.

    `token` brings a piece of the model's `text` in `step`; a higher `attempt` than before voids what the step's text
    was until then. `event` brings each entry of the turn's log, in order, each once; `step` follows the entry that
    ends a step, with the step's number and its final text. `done` is the last one, and brings the `result`.
    """

    kind: Literal["token", "step", "event", "done"]
    text: str | None = None
    step: int | None = None
    event: LoggedEvent | None = None
    result: ExecutionResult | None = None
    attempt: int | None = None
