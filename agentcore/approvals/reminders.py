"""Remind of requests whose time runs out, each once. Who is told, and how, is the project's: a signal is sent."""

from __future__ import annotations

import logging
from datetime import datetime
from functools import partial
from typing import Any

from agentcore import clock, database
from agentcore.models import DECIDE_PERMISSION, ToolApproval
from agentcore.signals import ApprovalReminder, approval_reminder

logger = logging.getLogger("agentcore.approvals")

BATCH = 100
SHARE = 0.75


def due_at(asked_at: datetime, expires_at: datetime | None) -> datetime | None:
    """Return when three quarters of a request's time are over; None for one that never expires."""
    return None if expires_at is None else asked_at + (expires_at - asked_at) * SHARE


def remind_due() -> int:
    """Send the reminders that are due; return how many. Two sweeps at once send each one once."""
    due = ToolApproval.objects.due_for_reminder().order_by("remind_at").values_list("pk", flat=True)
    return sum(_remind(pk) for pk in list(due[:BATCH]))


def _remind(pk: int) -> bool:
    with database.atomic():
        due = ToolApproval.objects.due_for_reminder().filter(pk=pk)
        if not due.update(remind_at=None, reminded_at=clock.now()):
            return False
        database.on_commit(partial(_send, _reminder(pk)))
    return True


def _reminder(pk: int) -> ApprovalReminder:
    shown = ("kind", "tool", "permission", "votes_needed", "requester_name", "requested_at", "expires_at")
    related = ("agent__name", "session__session_id", "turn__execution_id")
    # Any: what is due for a reminder expires, which the field's type does not know.
    approval: Any = ToolApproval.objects.select_related("agent", "session", "turn").only(*shown, *related).get(pk=pk)
    return ApprovalReminder(
        approval_id=approval.pk,
        kind=approval.kind,
        tool=approval.tool,
        agent=approval.agent.name,
        session_id=approval.session.session_id,
        execution_id=str(approval.turn.execution_id),
        requested_by=approval.requester_name,
        permissions=(DECIDE_PERMISSION, *approval.permission.split()),
        votes_needed=approval.votes_needed,
        requested_at=approval.requested_at,
        expires_at=approval.expires_at,
    )


def _send(reminder: ApprovalReminder) -> None:
    for receiver, answer in approval_reminder.send_robust(sender=ApprovalReminder, reminder=reminder):
        if isinstance(answer, Exception):
            logger.error(
                "A receiver of a reminder failed; nothing else is changed by that",
                exc_info=answer,
                extra={"handler": repr(receiver), "approval_id": reminder.approval_id},
            )
