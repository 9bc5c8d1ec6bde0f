"""Tell a session's log what became of a request."""

from __future__ import annotations

from typing import Any

from agentcore.approvals.verdicts import Given
from agentcore.events.kinds import EventType
from agentcore.events.log import Journal
from agentcore.models import ToolApproval
from agentcore.tools.masking import mask


def append(
    journal: Journal,
    approval: ToolApproval,
    kind: EventType,
    *,
    given: Given | None = None,
    reason: str = "",
    arguments: Any = None,
) -> None:
    """Add an event: what a person gave, or what the system did and why. `arguments` stand in for the request's own."""
    journal.append(
        kind,
        execution_id=approval.turn.execution_id,
        approval_id=approval.pk,
        call_id=approval.call.call_id,
        tool=approval.tool,
        arguments=mask(approval.arguments if arguments is None else arguments, approval.call.sensitive),
        by=given.by.get_username() if given else "system",
        reason=given.note if given else reason,
        verdict=given.verdict if given else None,
    )
