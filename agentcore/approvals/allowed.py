"""Read what people allowed of a call, and who they are: one statement, right before the call runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import FilteredRelation, Q

from agentcore import canonical
from agentcore.models import ToolApproval, ToolCall
from agentcore.states import ApprovalKind, ApprovalStatus, Verdict

_NAMES = (
    "pk",
    "kind",
    "status",
    "version",
    "votes_needed",
    "approved_arguments",
    "vote__pk",
    "vote__verdict",
    "vote__approval_version",
    "vote__arguments_digest",
    "vote__actor_name",
)


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """What the latest approval of a call was for: `digests` of what was approved and of each vote.

    `is_whole` says that there is one, with as many votes as it needs. `by` holds the names of all who ever approved
    the call, in the order they did.
    """

    is_whole: bool
    digests: frozenset[str]
    by: tuple[str, ...]

    def covers(self, call: ToolCall) -> bool:
        """Say whether people allowed the call with just the arguments it has now."""
        return self.is_whole and self.digests | {canonical.digest(call.arguments)} == {call.arguments_digest}


def find(call: ToolCall) -> Allowed:
    """Return what people allowed of a call."""
    asked = ToolApproval.objects.filter(call=call).annotate(
        vote=FilteredRelation("decisions", condition=Q(decisions__counted_key__isnull=False))
    )
    rows = [dict(zip(_NAMES, row, strict=True)) for row in asked.order_by("pk", "vote__pk").values_list(*_NAMES)]
    approvals = [row for row in rows if row["kind"] == ApprovalKind.CALL and row["status"] == ApprovalStatus.APPROVED]
    votes = sorted((row for row in rows if row["vote__verdict"] == Verdict.APPROVE), key=lambda row: row["vote__pk"])
    by = tuple(row["vote__actor_name"] for row in votes)
    if not approvals:
        return Allowed(is_whole=False, digests=frozenset(), by=by)
    latest: dict[str, Any] = approvals[-1]
    counted = [
        row["vote__arguments_digest"]
        for row in votes
        if row["pk"] == latest["pk"] and row["vote__approval_version"] == latest["version"]
    ]
    return Allowed(
        is_whole=len(counted) >= latest["votes_needed"],
        digests=frozenset({canonical.digest(latest["approved_arguments"]), *counted}),
        by=by,
    )
