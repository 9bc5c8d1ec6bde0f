"""What a hot copy of a turn says, and how: its state, its ended steps, and the working memory that no row has yet.

Fields: `state`; `step:N` for each step that ended, which never changes again; `memory:KEY` for each key of working
memory that was set in an idempotent call, with the time of that.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agentcore import canonical, clock
from agentcore.models import AgentStep, ToolCall

logger = logging.getLogger("agentcore.state")

# A larger step is left to the database.
MAX_STEP_CHARS = 262_144

STEP_COLUMNS = ("number", "message", "action")
# All that a request says of a call; not what is kept for people.
CALL_COLUMNS = (
    "position",
    "call_id",
    "provider_call_id",
    "tool",
    "raw_arguments",
    "arguments",
    "proposed_arguments",
    "status",
    "result",
    "error",
    "attempts",
)

Ended = tuple[AgentStep, list[ToolCall]]


def step_fields(ended: Sequence[Ended]) -> dict[str, str]:
    """Return the fields of steps that ended, but for those too large to be kept."""
    documents = {f"step:{step.number}": _step_document(step, calls) for step, calls in ended}
    return {name: text for name, text in documents.items() if len(text) <= MAX_STEP_CHARS}


def memory_fields(changes: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of working memory that was set now and is in no row yet."""
    at = clock.now().isoformat()
    return {f"memory:{key}": canonical.dumps([value, at]) for key, value in changes.items()}


@dataclass(frozen=True, kw_only=True)
class Copy:
    """A copy as it was read: the ended steps by number, each with its calls, and working memory with its times."""

    steps: Mapping[int, Ended]
    memory: Mapping[str, tuple[Any, datetime]]

    def unsaved(self, stored: Mapping[str, datetime]) -> dict[str, Any]:
        """Return the working memory that is in no row; `stored` says when each key got its row last."""
        # What was stored since is newer.
        return {key: value for key, (value, at) in self.memory.items() if key not in stored or stored[key] < at}


def read(fields: Mapping[str, str]) -> Copy | None:
    """Return what the fields of a copy say; None for no copy, and for one that another version or hand wrote."""
    if not fields:
        return None
    try:
        ended = [_ended(json.loads(text)) for name, text in fields.items() if name.startswith("step:")]
        memory = {
            name.removeprefix("memory:"): _kept(json.loads(text))
            for name, text in fields.items()
            if name.startswith("memory:")
        }
    except (ValueError, TypeError, LookupError, AttributeError):
        logger.warning("A turn's hot copy cannot be read; the turn goes on from its rows", exc_info=True)
        return None
    return Copy(steps={step.number: (step, calls) for step, calls in ended}, memory=memory)


def _step_document(step: AgentStep, calls: Sequence[ToolCall]) -> str:
    asked = [{name: getattr(call, name) for name in CALL_COLUMNS} | {"is_over": not call.is_open} for call in calls]
    return canonical.dumps({**{name: getattr(step, name) for name in STEP_COLUMNS}, "calls": asked})


def _kept(document: Any) -> tuple[Any, datetime]:
    value, at = document
    moment = datetime.fromisoformat(at)
    if moment.tzinfo is None:
        raise ValueError(f"{at!r} is a time without a zone")
    return value, moment


def _ended(document: dict[str, Any]) -> Ended:
    asked = document.pop("calls")
    return AgentStep(**document), [_call(item) for item in asked]


def _call(document: dict[str, Any]) -> ToolCall:
    is_over = document.pop("is_over")
    # When it ended is not told to a model, only that it did.
    return ToolCall(**document, completed_at=clock.now() if is_over else None)
