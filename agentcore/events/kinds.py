"""The types an event may have, and which of them drivers and tools may not use."""

from __future__ import annotations

import unicodedata
from enum import StrEnum
from typing import Any

from agentcore.exceptions import InvalidInput


class EventType(StrEnum):
    """Types in capitals, without a leading AGENT_. EXECUTION_* are other names of three of them."""

    SESSION_STARTED = "session.started"
    SESSION_ARCHIVED = "session.archived"
    SESSION_TRIMMED = "session.trimmed"
    SESSION_ERASED = "session.erased"
    TURN_INPUT = "turn.input"
    TURN_RUNNING = "turn.running"
    TURN_RESUMED = "turn.resumed"
    TURN_WAITING = "turn.waiting"
    TURN_CANCELLING = "turn.cancelling"
    TURN_COMPLETED = "turn.completed"
    TURN_FAILED = "turn.failed"
    TURN_CANCELLED = "turn.cancelled"
    TURN_INTERRUPTED = "turn.interrupted"
    EXECUTION_STARTED = "turn.running"
    EXECUTION_COMPLETED = "turn.completed"
    EXECUTION_FAILED = "turn.failed"
    MESSAGE = "message"
    STATE_CHANGED = "agent.state.changed"
    STEP_STARTED = "agent.step.started"
    STEP_COMPLETED = "agent.step.completed"
    STEP_FAILED = "agent.step.failed"
    TOOL_EXECUTION_STARTED = "tool.execution.started"
    TOOL_EXECUTION_COMPLETED = "tool.execution.completed"
    TOOL_EXECUTION_FAILED = "tool.execution.failed"
    TOOL_EXECUTION_UNKNOWN = "tool.execution.unknown"
    TOOL_APPROVAL_REQUESTED = "tool.approval.requested"
    TOOL_APPROVAL_CHANGED = "tool.approval.changed"
    TOOL_APPROVAL_GRANTED = "tool.approval.granted"
    TOOL_APPROVAL_DENIED = "tool.approval.denied"
    TOOL_APPROVAL_EXPIRED = "tool.approval.expired"
    TOOL_APPROVAL_CANCELLED = "tool.approval.cancelled"
    TOOL_APPROVAL_UNROUTABLE = "tool.approval.unroutable"
    INPUT_REQUESTED = "agent.input.requested"
    INPUT_RECEIVED = "agent.input.received"
    MEMORY_UPDATED = "agent.memory.updated"
    RAG_EXECUTED = "agent.rag.executed"
    RAG_FAILED = "agent.rag.failed"


FINAL = frozenset(
    {
        EventType.TURN_COMPLETED,
        EventType.TURN_FAILED,
        EventType.TURN_CANCELLED,
        EventType.TURN_INTERRUPTED,
    }
)
RESERVED_PREFIXES = ("session.", "turn.", "agent.", "tool.", "graph.", "supervisor.")
MAX_TYPE_LENGTH = 64


def assistant_message(data: Any) -> dict[str, Any]:
    """Return a message that a driver emits; raise InvalidInput unless its role is assistant and it has text."""
    message = data.get("message", data) if isinstance(data, dict) else data
    if isinstance(message, str):
        message = {"role": "assistant", "content": message}
    if (
        not isinstance(message, dict)
        or message.get("role", "assistant") != "assistant"
        or not isinstance(message.get("content"), str)
    ):
        raise InvalidInput("A driver's message needs the role 'assistant' and content that is text.")
    return {"role": "assistant", "content": message["content"]}


def custom_type(given: Any) -> str:
    """Return the type of an event that a tool or driver emits, trimmed; raise InvalidInput for a reserved one."""
    trimmed = given.strip() if isinstance(given, str) else ""
    if not 0 < len(trimmed) <= MAX_TYPE_LENGTH or not trimmed.isprintable():
        raise InvalidInput(f"An event type is 1 to {MAX_TYPE_LENGTH} printable characters, not {str(given)[:80]!r}.")
    plain = _plain(trimmed)
    if plain.startswith(RESERVED_PREFIXES) or plain == EventType.MESSAGE:
        raise InvalidInput(
            f"The event type {trimmed!r} belongs to agentcore. Choose one that does not begin with "
            f"{', '.join(RESERVED_PREFIXES)} and is not 'message'."
        )
    return trimmed


def _plain(type: str) -> str:
    """Return a type as somebody would read it: wide letters, other dots, capitals and accents do not hide a name."""
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", type).casefold())
    return "".join(letter for letter in folded if not unicodedata.combining(letter) and not letter.isspace())
