"""What changed between the page a person decided on and the request as it is now."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import QueryDict

from agentcore.models import ToolApproval
from agentcore.reviews import seen
from agentcore.reviews.differences import Change
from agentcore.states import ApprovalStatus


@dataclass(frozen=True, kw_only=True)
class Stale:
    """A page that is no longer true. `is_known` says whether what it showed can be told; `changes` are what differs.

    `hidden_change`: the arguments differ, and nothing of what a person may be shown does.
    """

    version_seen: int
    version_now: int
    is_known: bool
    changes: list[Change]
    tool_changed: bool
    hidden_change: bool


def since(data: QueryDict, approval: ToolApproval) -> Stale | None:
    """Return what changed since the page that sent `data`; None when it showed the present version."""
    version = _number(data.get("version", ""))
    if version is None or version == approval.version or approval.status != ApprovalStatus.PENDING:
        return None
    before = seen.unpack(data.get("seen", ""), approval)
    changes = seen.changes_since(before, approval) if before else []
    return Stale(
        version_seen=version,
        version_now=approval.version,
        is_known=before is not None,
        changes=changes,
        tool_changed=before is not None and before.fingerprint != approval.fingerprint,
        hidden_change=before is not None and not changes and before.digest != approval.arguments_digest,
    )


def _number(given: str) -> int | None:
    return int(given) if given.isascii() and given.isdigit() and len(given) < 10 else None
