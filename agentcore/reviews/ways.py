"""What the ways to decide are called: for a call that waits, and for one nobody knows the end of."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.translation import gettext as _

from agentcore.approvals.visible import made_visible
from agentcore.models import ToolApproval
from agentcore.states import ApprovalKind, ApprovalStatus


@dataclass(frozen=True, kw_only=True)
class Ways:
    """The words on the buttons, and beside them. `confirm` asks for Enter; `#` in it is the request's name."""

    approve: str
    approve_hint: str
    confirm: str
    reject: str
    reason: str
    respond: str
    respond_hint: str
    give: str


def of(approval: ToolApproval) -> Ways:
    """Return the words for a request, by what it asks."""
    return _outcome() if approval.kind == ApprovalKind.OUTCOME else _call()


def told(approval: ToolApproval) -> str:
    """Return what a person is told after their decision."""
    if approval.status == ApprovalStatus.PENDING:
        return _("Your vote counts. The request waits for another one.")
    if approval.kind == ApprovalKind.OUTCOME:
        return {
            ApprovalStatus.APPROVED: _("It runs again."),
            ApprovalStatus.RESPONDED: _("The agent is told your result."),
            ApprovalStatus.REJECTED: _("The turn has ended."),
        }[ApprovalStatus(approval.status)]
    text = {
        ApprovalStatus.APPROVED: _("Approved. %(tool)s runs next."),
        ApprovalStatus.RESPONDED: _("Answered. The agent is told your result; %(tool)s does not run."),
        ApprovalStatus.REJECTED: _("Rejected. %(tool)s does not run."),
    }[ApprovalStatus(approval.status)]
    return text % {"tool": made_visible(approval.tool)}


def settled(approval: ToolApproval) -> str:
    """Return what became of a decided request, with %(names)s for who decided it."""
    is_outcome = approval.kind == ApprovalKind.OUTCOME
    return {
        ApprovalStatus.APPROVED: _("Run again by %(names)s.") if is_outcome else _("Approved by %(names)s."),
        ApprovalStatus.REJECTED: _("The turn was ended by %(names)s.") if is_outcome else _("Rejected by %(names)s."),
        ApprovalStatus.RESPONDED: _("The result was given by %(names)s.")
        if is_outcome
        else _("Answered by %(names)s in the tool's place."),
        ApprovalStatus.EXPIRED: _("Nobody decided in time."),
        ApprovalStatus.CANCELLED: _("The turn ended before this was decided."),
    }[ApprovalStatus(approval.status)]


def _call() -> Ways:
    return Ways(
        approve=_("Approve"),
        approve_hint="",
        confirm=_("Press Enter to approve #, Escape to go back."),
        reject=_("Reject"),
        reason=_("Reason, told to the agent"),
        respond=_("Answer in its place"),
        respond_hint=_("The tool does not run; the agent is told this as its result."),
        give=_("Give this result"),
    )


def _outcome() -> Ways:
    return Ways(
        approve=_("Run it again"),
        approve_hint=_("It runs once more with the same arguments, even if it happened before."),
        confirm=_("Press Enter to run # again, Escape to go back."),
        reject=_("End the turn"),
        reason=_("Reason: the turn fails with it, and its other requests are cancelled"),
        respond=_("This is the result"),
        respond_hint=_("It does not run again; the agent is told this as its result."),
        give=_("This is the result"),
    )
