"""Durable AI agents for Django: turns that survive, tools that a person approves, a record of what happened."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agentcore.agents.decorators import agent
from agentcore.engine.results import ExecutionResult, StreamChunk
from agentcore.events.kinds import EventType
from agentcore.exceptions import AgentError, ToolError
from agentcore.messages import Message
from agentcore.states import TurnState
from agentcore.tools.context import ToolContext
from agentcore.tools.decorators import tool
from agentcore.tools.definition import ApprovalPolicy

if TYPE_CHECKING:
    from agentcore.engine.runtime import AgentRuntime

    runtime: AgentRuntime

__version__ = "0.1.0"

__all__ = [
    "AgentError",
    "AgentRuntime",
    "ApprovalPolicy",
    "EventType",
    "ExecutionResult",
    "Message",
    "StreamChunk",
    "ToolContext",
    "ToolError",
    "TurnState",
    "agent",
    "runtime",
    "tool",
]


def __getattr__(name: str) -> Any:
    # These need models, which are not ready while `agents.py` files are being imported.
    if name == "AgentRuntime":
        return import_module("agentcore.engine.runtime").AgentRuntime
    if name == "runtime":
        globals()["runtime"] = found = import_module("agentcore.engine.runtime").AgentRuntime()
        return found
    raise AttributeError(f"module 'agentcore' has no attribute {name!r}")
