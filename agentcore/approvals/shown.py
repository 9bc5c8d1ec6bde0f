"""Show an approval to those who may decide it: the one shape that leaves the process, secrets masked."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from django.db.models import QuerySet

from agentcore import canonical
from agentcore.models import ApprovalDecision, ToolApproval
from agentcore.states import Verdict
from agentcore.tools.masking import mask

# These may be as large as they like. In a frame (below 64 KiB) and in a list each may take so much, as JSON.
LARGE = ("arguments", "approved_arguments", "preview", "late_result")
MAX_FRAMED = 10_000
MAX_LISTED = 1_000
MAX_TEXT = 1_000
MAX_NOTE = 500


def with_parts(approvals: QuerySet[ToolApproval]) -> QuerySet[ToolApproval]:
    """Return the queryset with all that `approval_as_dict` reads: two queries for any number of approvals."""
    return approvals.select_related("call", "turn__revision", "session", "agent").prefetch_related("decisions")


def approval_as_dict(approval: ToolApproval) -> dict[str, Any]:
    """Return an approval as the API and the sockets show it, ready for JSON."""
    turn, secrets = approval.turn, approval.call.sensitive
    decisions = _decisions(approval)
    return {
        "id": approval.pk,
        "kind": approval.kind,
        "execution_id": str(turn.execution_id),
        "session_id": approval.session.session_id,
        "agent": approval.agent.name,
        "revision": {"number": turn.revision.number, "hash": turn.revision.hash},
        "call_id": approval.call.call_id,
        "tool": approval.tool,
        "arguments": mask(approval.arguments, secrets),
        "arguments_digest": approval.arguments_digest,
        "preview": approval.preview,
        "status": approval.status,
        "version": approval.version,
        "requested_by": approval.requester_name or None,
        "votes": {"needed": approval.votes_needed, "approve": _approving(decisions)},
        "decisions": [_decision(item) for item in decisions],
        "requested_at": moment(approval.requested_at),
        "expires_at": moment(approval.expires_at),
        "decided_at": moment(approval.decided_at),
        "approved_arguments": mask(approval.approved_arguments, secrets),
        "late_result": mask(approval.call.late_result, secrets),
    }


def approval_in_list(approval: ToolApproval) -> dict[str, Any]:
    """Return the same for a list, of limited size whatever the arguments are.

    Where parts were too long, `cut` names them; then arguments are {"bytes", "sha256"}, and texts end early.
    """
    return _limited(approval, most=MAX_LISTED)


def approval_as_frame(approval: ToolApproval) -> dict[str, Any]:
    """Return the same for a socket's frame, limited as in a list but not so much.

    `is_unroutable`, which only the pages need, is there when it is so.
    """
    frame = _limited(approval, most=MAX_FRAMED)
    return {**frame, "is_unroutable": True} if approval.is_unroutable else frame


def _limited(approval: ToolApproval, *, most: int) -> dict[str, Any]:
    limited = approval_as_dict(approval)
    cut = [name for name in LARGE if len(json.dumps(limited[name])) > most]
    for name in cut:
        limited[name] = _in_brief(limited[name])
    limited["decisions"] = [{**item, "note": item["note"][:MAX_NOTE]} for item in limited["decisions"]]
    return {**limited, "cut": cut} if cut else limited


def _in_brief(value: Any) -> Any:
    if isinstance(value, str):
        return value[:MAX_TEXT]
    return {"bytes": canonical.byte_size(value), "sha256": canonical.digest(value)}


def _decisions(approval: ToolApproval) -> list[ApprovalDecision]:
    """Return what counts for the present version, oldest first: refused attempts and void votes decided nothing."""
    record = approval.decisions.all()
    counting = [item for item in record if not item.refusal and item.approval_version == approval.version]
    return sorted(counting, key=lambda item: item.pk)


def _approving(decisions: list[ApprovalDecision]) -> int:
    return sum(1 for item in decisions if item.verdict == Verdict.APPROVE and item.counted_key is not None)


def _decision(item: ApprovalDecision) -> dict[str, Any]:
    return {
        "by": item.actor_name or None,
        "verdict": item.verdict,
        "note": item.note,
        "at": moment(item.created_at),
    }


def moment(value: datetime | None) -> str | None:
    """Return a time as the API writes it: ISO 8601 in UTC."""
    return None if value is None else value.astimezone(UTC).isoformat().replace("+00:00", "Z")
