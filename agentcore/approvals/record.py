"""The append-only record of an approval: votes, refused attempts, and what the system did."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import Q

from agentcore.events.log import Journal
from agentcore.models import ApprovalDecision, ToolApproval, statements
from agentcore.states import Channel, Verdict

# What counts as a vote: refused attempts and what the system did are entries too.
COUNTED = Q(counted_key__isnull=False)


def vote(
    journal: Journal,
    approval: ToolApproval,
    verdict: Verdict,
    *,
    by: Any,
    channel: Channel,
    note: str,
    digest: str,
    proposed: str,
) -> ApprovalDecision:
    """Record a vote that counts, with the digests of what it is for and of what it was asked on.

    A second one of the same person on one version breaks a constraint."""
    return _write(
        journal,
        approval,
        verdict,
        by=by,
        channel=channel,
        note=note,
        arguments_digest=digest,
        proposed_digest=proposed,
        counted_key=_counted_key(approval, by),
    )


def refused(
    journal: Journal,
    approval: ToolApproval,
    verdict: Verdict,
    *,
    by: Any,
    channel: Channel,
    refusal: str,
    note: str,
) -> ApprovalDecision:
    """Record an attempt that changed nothing, and why."""
    return _write(
        journal,
        approval,
        verdict,
        by=by,
        channel=channel,
        refusal=refusal,
        note=note,
        arguments_digest=approval.arguments_digest,
    )


def by_system(journal: Journal, approval: ToolApproval, verdict: Verdict, *, note: str) -> ApprovalDecision:
    """Record that the system expired or cancelled a request."""
    return _write(
        journal,
        approval,
        verdict,
        by=None,
        channel=Channel.SYSTEM,
        note=note,
        arguments_digest=approval.arguments_digest,
    )


def counted(approval: ToolApproval) -> list[ApprovalDecision]:
    """Return the votes that count for the present version, oldest first."""
    votes = approval.decisions.filter(COUNTED, approval_version=approval.version)
    return list(votes.order_by("id"))


def of(user: Any, votes: Iterable[ApprovalDecision]) -> list[ApprovalDecision]:
    """Return those of the votes that are this user's."""
    return [vote for vote in votes if vote.actor_key == str(user.pk)]


def has_voted(approval: ToolApproval, user: Any) -> bool:
    return approval.decisions.filter(counted_key=_counted_key(approval, user)).exists()


def _counted_key(approval: ToolApproval, user: Any) -> str:
    return f"{approval.version}:{user.pk}"[:64]


def _write(journal: Journal, approval: ToolApproval, verdict: Verdict, *, by: Any, **fields: Any) -> ApprovalDecision:
    decision = ApprovalDecision(
        approval=approval,
        approval_version=approval.version,
        verdict=verdict,
        actor=by,
        actor_key=str(by.pk) if by is not None else "",
        actor_name=by.get_username()[:255] if by is not None else "",
        created_at=journal.now,
        **fields,
    )
    statements.insert([decision])
    return decision
