"""What came of a request after it was decided: the call, and the turn it belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from agentcore.models import ToolApproval, ToolCall
from agentcore.reviews import reading
from agentcore.reviews.reading import Shown
from agentcore.states import ApprovalKind, ApprovalStatus, CallStatus
from agentcore.tools import masking

MAX_RESULT = 20_000
QUICK_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class Aftermath:
    """What came of it. `tone` is good, bad, or wait while there is more to come; `asked_again` is a later request."""

    status: str
    tone: str
    text: str
    result: Shown | None = None
    error: str = ""
    late_result: Shown | None = None
    asked_again: int | None = None


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of a call that began. `attempts` (0 once it was decided) have begun so far."""

    text: str
    attempts: int
    late_result: Shown | None


def of(approval: ToolApproval) -> Aftermath | None:
    """Return what came of a decided request; None while it is pending."""
    if approval.status == ApprovalStatus.PENDING:
        return None
    call = approval.call
    later = approval.call.approvals.filter(pk__gt=approval.pk, status=ApprovalStatus.PENDING).order_by("pk").first()
    tone, text = _words(approval, call)
    return Aftermath(
        status=call.status,
        tone="wait" if later else tone,
        text=text,
        result=_shown(call.result, call) if call.status == CallStatus.COMPLETED else None,
        error=_error(call),
        late_result=late_result(call),
        asked_again=later.pk if later else None,
    )


def _words(approval: ToolApproval, call: ToolCall) -> tuple[str, str]:
    is_outcome = approval.kind == ApprovalKind.OUTCOME
    if approval.status == ApprovalStatus.RESPONDED and is_outcome:
        return "good", _("The agent was told the result that was given.")
    if approval.status == ApprovalStatus.RESPONDED:
        return "good", _("Not run: the agent was told the result that was given.")
    if approval.status == ApprovalStatus.REJECTED and is_outcome:
        return "bad", _("The turn has ended. Nobody knows how the call ended.")
    return {
        CallStatus.PENDING: ("wait", _("Not begun.")),
        CallStatus.APPROVED: ("wait", _("Queued: a worker runs it next.")),
        CallStatus.EXECUTING: ("wait", _("Running now.")),
        CallStatus.COMPLETED: ("good", _completed(call)),
        CallStatus.FAILED: ("bad", _failed(approval)),
        CallStatus.REJECTED: ("good", _("Not run: the agent was told that a person declined, and why.")),
        CallStatus.EXPIRED: ("bad", _("Not run: nobody decided in time.")),
        CallStatus.CANCELLED: ("bad", _("Cancelled.")),
        CallStatus.UNKNOWN: ("bad", _("It began, and nobody knows how it ended.")),
    }[CallStatus(call.status)]


def _completed(call: ToolCall) -> str:
    if call.duration is None:
        return _("Done.")
    if call.duration < QUICK_SECONDS:
        return _("Done in under 0.1 s.")
    return _("Done in %(seconds).1f s.") % {"seconds": call.duration}


def _failed(approval: ToolApproval) -> str:
    if approval.status == ApprovalStatus.CANCELLED and approval.kind == ApprovalKind.CALL:
        return _("Not run.")
    return _("It ran and failed; the agent was told the error.")


def _error(call: ToolCall) -> str:
    if not call.error or call.status in (CallStatus.REJECTED, CallStatus.EXPIRED, CallStatus.COMPLETED):
        return ""
    return reading.brief(call.error.get("message", ""), MAX_RESULT)


def known(approval: ToolApproval) -> Known | None:
    """Return what is known of a call nobody knows the end of; None for a request that asks another question."""
    if approval.kind != ApprovalKind.OUTCOME:
        return None
    call = approval.call
    is_pending = approval.status == ApprovalStatus.PENDING
    return Known(
        text=approval.preview,
        attempts=call.attempts if is_pending else 0,
        late_result=late_result(call) if is_pending else None,
    )


def late_result(call: ToolCall) -> Shown | None:
    """Return what a call returned after its time was over, masked; None when it did not."""
    return None if call.late_result is None else _shown(call.late_result, call)


def _shown(value: Any, call: ToolCall) -> Shown:
    shown = reading.whole("", masking.mask(value, call.sensitive))
    if shown.length <= MAX_RESULT:
        return shown
    return Shown(name="", text=shown.text[:MAX_RESULT], length=shown.length, is_cut=True, is_block=True)
