"""Ask for a person's decision on calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentcore.approvals import policy, previews, reminders, routing
from agentcore.approvals.previews import Link
from agentcore.events.kinds import EventType
from agentcore.events.log import Journal
from agentcore.models import AgentContext, ToolApproval, ToolCall, statements
from agentcore.states import ApprovalKind
from agentcore.tools.definition import ApprovalPolicy
from agentcore.tools.masking import mask


@dataclass(frozen=True, kw_only=True)
class Question:
    """One call a person is asked about, with what they are shown beside the arguments."""

    call: ToolCall
    rules: ApprovalPolicy
    preview: str
    reason: str
    links: tuple[Link, ...] = ()
    kind: ApprovalKind = ApprovalKind.CALL


def ask(journal: Journal, turn: AgentContext, questions: Sequence[Question]) -> list[ToolApproval]:
    """Store a pending request for each question. The caller suspends the turn in the same transaction."""
    approvals = [_make(journal, turn, question) for question in questions]
    statements.insert(approvals)
    for approval, question in zip(approvals, questions, strict=True):
        previews.store_links(approval, question.links)
        journal.append(
            EventType.TOOL_APPROVAL_REQUESTED,
            execution_id=turn.execution_id,
            approval_id=approval.pk,
            call_id=question.call.call_id,
            kind=approval.kind,
            tool=approval.tool,
            arguments=mask(approval.arguments, question.call.sensitive),
            reason=approval.reason,
        )
    routing.report_new(journal, approvals)
    return approvals


def _make(journal: Journal, turn: AgentContext, question: Question) -> ToolApproval:
    call, rules = question.call, question.rules
    expires_at = policy.expiry(rules, asked_at=journal.now)
    return ToolApproval(
        kind=question.kind,
        call=call,
        turn=turn,
        session_id=turn.session_id,
        agent_id=turn.agent_id,
        tool=call.tool,
        fingerprint=call.fingerprint,
        arguments=call.arguments,
        arguments_digest=call.arguments_digest,
        preview=question.preview,
        reason=question.reason,
        requester_id=turn.user_id,
        requester_key=turn.user_key,
        requester_name=turn.user_name,
        permission=rules.permission or "",
        votes_needed=rules.votes,
        four_eyes=rules.four_eyes,
        allow_edit=rules.allow_edit,
        on_expiry=rules.on_expiry,
        requested_at=journal.now,
        updated_at=journal.now,
        expires_at=expires_at,
        remind_at=reminders.due_at(journal.now, expires_at),
    )
