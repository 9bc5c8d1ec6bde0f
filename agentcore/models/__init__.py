"""The rows. Rules that must hold are constraints here; everything else is decided above."""

from agentcore.models.agents import Agent, AgentRevision
from agentcore.models.approvals import (
    DECIDE_PERMISSION,
    VIEW_PERMISSION,
    ApprovalDecision,
    ApprovalLink,
    ToolApproval,
)
from agentcore.models.base import owner_fields
from agentcore.models.erasures import Erasure
from agentcore.models.events import SessionEvent
from agentcore.models.knowledge import SHARED, Chunk, Document
from agentcore.models.memory import Memory, MemoryKind, Owner, Shown
from agentcore.models.metrics import MetricsSum, MetricsWindow
from agentcore.models.overrides import ToolOverride
from agentcore.models.questions import UserQuestion
from agentcore.models.rates import RateCount
from agentcore.models.sessions import AgentSession
from agentcore.models.steps import AgentStep, ToolCall
from agentcore.models.turns import AgentContext, ContextEntry, EntryKind
from agentcore.models.vectors import Vector
from agentcore.models.workers import WorkerHeartbeat

__all__ = [
    "DECIDE_PERMISSION",
    "SHARED",
    "VIEW_PERMISSION",
    "Agent",
    "AgentContext",
    "AgentRevision",
    "AgentSession",
    "AgentStep",
    "ApprovalDecision",
    "ApprovalLink",
    "Chunk",
    "ContextEntry",
    "Document",
    "EntryKind",
    "Erasure",
    "Memory",
    "MemoryKind",
    "MetricsSum",
    "MetricsWindow",
    "Owner",
    "RateCount",
    "SessionEvent",
    "Shown",
    "ToolApproval",
    "ToolCall",
    "ToolOverride",
    "UserQuestion",
    "Vector",
    "WorkerHeartbeat",
    "owner_fields",
]
