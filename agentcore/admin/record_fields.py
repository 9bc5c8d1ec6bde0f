"""What the page of one approval shows: the request, its decision, and what came of the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.template.loader import render_to_string
from django.utils.translation import gettext_lazy as _

from agentcore.admin import differences, display, votes
from agentcore.approvals import record
from agentcore.models import ToolApproval
from agentcore.states import ApprovalKind, ApprovalStatus, CallStatus

CAME_OF_IT = _("What came of it")
FIELDSETS: Any = (
    (
        _("Request"),
        {
            "fields": (
                "tool",
                "pretty_arguments",
                "shown_difference",
                "shown_preview",
                "shown_reason",
                "agent",
                "requested_by",
                "requested_at",
                "expires_at",
                "kind",
            )
        },
    ),
    (_("Decision"), {"fields": ("status", "votes", "decided_at", "pretty_approved", "pretty_response")}),
    (CAME_OF_IT, {"fields": ("call_state", "call_result", "call_error", "call_late_result")}),
    (_("Where it comes from"), {"fields": ("session", "turn", "call")}),
    (
        _("Policy"),
        {
            "classes": ("collapse",),
            "fields": ("permission", "votes_needed", "four_eyes", "allow_edit", "on_expiry", "is_unroutable"),
        },
    ),
    (
        _("Identity"),
        {"classes": ("collapse",), "fields": ("version", "arguments_digest", "fingerprint", "updated_at")},
    ),
)

# Fields that are left out when they have nothing to say.
_SAYS: dict[str, Callable[[ToolApproval], Any]] = {
    "shown_difference": differences.of_approval,
    "shown_preview": lambda approval: approval.preview,
    "shown_reason": lambda approval: approval.reason,
    "decided_at": lambda approval: approval.decided_at,
    "pretty_approved": lambda approval: approval.approved_arguments is not None,
    "pretty_response": lambda approval: approval.status == ApprovalStatus.RESPONDED,
    "call_state": lambda approval: approval.call.status != CallStatus.PENDING,
    "call_result": lambda approval: _came_back(approval) and approval.status != ApprovalStatus.RESPONDED,
    "call_error": lambda approval: approval.call.error is not None,
    "call_late_result": lambda approval: approval.call.late_result is not None,
}


def fieldsets_of(approval: ToolApproval, fieldsets: list[Any]) -> list[Any]:
    """Return the fieldsets without those, and without the fields, that have nothing to say."""
    said = [
        (title, options, [name for name in options["fields"] if _says(name, approval)]) for title, options in fieldsets
    ]
    return [(_title(title, approval), {**options, "fields": names}) for title, options, names in said if names]


def _title(title: Any, approval: ToolApproval) -> Any:
    """Return the title, of a call nobody knows the end of as long as a person is asked for it."""
    is_open = approval.kind == ApprovalKind.OUTCOME and approval.status == ApprovalStatus.PENDING
    return _("What is known") if is_open and title == CAME_OF_IT else title


def _says(name: Any, approval: ToolApproval) -> bool:
    says = _SAYS.get(name) if isinstance(name, str) else None
    return says is None or bool(says(approval))


def _came_back(approval: ToolApproval) -> bool:
    return bool(approval.call.status == CallStatus.COMPLETED)


class RecordFields:
    """The methods behind the fields."""

    @admin.display(description=_("arguments"))
    def pretty_arguments(self, obj: ToolApproval) -> str:
        return display.pretty(obj.arguments, obj.call.sensitive)

    @admin.display(description=_("changed by a person"))
    def shown_difference(self, obj: ToolApproval) -> str:
        return render_to_string(
            "admin/agentcore/toolapproval/difference.html", {"changes": differences.of_approval(obj)}
        )

    @admin.display(description=_("approved arguments"))
    def pretty_approved(self, obj: ToolApproval) -> str:
        return display.pretty(obj.approved_arguments, obj.call.sensitive)

    @admin.display(description=_("response in place of the tool's"))
    def pretty_response(self, obj: ToolApproval) -> str:
        return display.pretty_result(obj.response, obj.call.sensitive)

    @admin.display(description=_("preview"))
    def shown_preview(self, obj: ToolApproval) -> str:
        return display.block(obj.preview)

    @admin.display(description=_("why a person is asked"))
    def shown_reason(self, obj: ToolApproval) -> str:
        return display.marked(obj.reason) or display.EMPTY

    @admin.display(description=_("votes"))
    def votes(self, obj: ToolApproval) -> str:
        return str(votes.told(len(record.counted(obj)), obj.votes_needed))

    @admin.display(description=_("call"))
    def call_state(self, obj: ToolApproval) -> str:
        call = obj.call
        if not call.attempts:
            return str(call.get_status_display())
        return _("%(status)s, attempts: %(attempts)d") % {
            "status": call.get_status_display(),
            "attempts": call.attempts,
        }

    @admin.display(description=_("result"))
    def call_result(self, obj: ToolApproval) -> str:
        return display.pretty_result(obj.call.result, obj.call.sensitive)

    @admin.display(description=_("error"))
    def call_error(self, obj: ToolApproval) -> str:
        return display.pretty(obj.call.error, obj.call.sensitive)

    @admin.display(description=_("late result"))
    def call_late_result(self, obj: ToolApproval) -> str:
        return display.pretty_result(obj.call.late_result, obj.call.sensitive)
