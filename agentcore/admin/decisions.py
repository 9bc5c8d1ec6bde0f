"""The record of decisions: who decided what, and who was refused."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.db.models import QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from django.template.loader import render_to_string
from django.utils.translation import gettext_lazy as _

from agentcore import canonical
from agentcore.admin import differences, display, exporting
from agentcore.admin.base import ReadOnlyAdmin, ReadOnlyInline
from agentcore.approvals import permissions
from agentcore.models import ApprovalDecision

SHOWN_DECISIONS = 50
WHAT_CHANGED = _("What was changed")


REFUSALS = ("conflict", "invalid_input", "not_found", "permission_denied", "rate_limited", "too_large")


class DecisionInline(ReadOnlyInline):
    """The latest entries of an approval's record; the link beside leads to all of them."""

    model = ApprovalDecision
    verbose_name_plural = _("Record of decisions")
    show_change_link = False
    fields = ("created_at", "who", "decided", "refusal", "shown_note", "channel", "approval_version")

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Who may see an approval may see its record."""
        return True

    def get_queryset(self, request: HttpRequest) -> QuerySet[ApprovalDecision]:
        # Refused attempts are rows too, and anybody can make many of them.
        match = request.resolver_match
        object_id = unquote(match.kwargs.get("object_id", "")) if match else ""
        entries = super().get_queryset(request)
        if not object_id.isdecimal():
            return entries.none()
        latest = entries.filter(approval_id=int(object_id)).order_by("-id").values_list("pk", flat=True)
        return entries.filter(pk__in=list(latest[:SHOWN_DECISIONS]))

    @admin.display(description=_("by"))
    def who(self, obj: ApprovalDecision) -> str:
        return _who(obj)

    @admin.display(description=_("decision"))
    def decided(self, obj: ApprovalDecision) -> str:
        return _decided(obj)

    @admin.display(description=_("note"))
    def shown_note(self, obj: ApprovalDecision) -> str:
        return display.marked(obj.note) or display.EMPTY


class RefusalFilter(admin.SimpleListFilter):
    """Offers the codes that a refusal can have: to ask the record for those it has would read all of it."""

    title = _("refusal")
    parameter_name = "refusal"
    counted = "none"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(self.counted, _("Not refused")), *((code, code) for code in REFUSALS)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() is None:
            return queryset
        return queryset.filter(refusal="" if self.value() == self.counted else str(self.value()))


@admin.register(ApprovalDecision)
class ApprovalDecisionAdmin(ReadOnlyAdmin):
    actions = ("export_csv", "export_json")
    list_display = ("created_at", "approval_link", "who", "decided", "refusal", "channel", "short_note")
    list_filter = ("verdict", RefusalFilter, "channel", "created_at")
    list_select_related = ("approval",)
    list_loads = (
        "approval",
        "approval__tool",
        "actor",
        "actor_key",
        "actor_name",
        "note",
        "verdict",
        "arguments_digest",
        "proposed_digest",
    )
    search_fields = ("actor_name", "approval__tool")
    search_help_text = _("Name, tool, or a whole execution id.")
    execution_id_path = "approval__turn__execution_id"
    ordering = ("-id",)
    fieldsets = (
        (None, {"fields": ("approval", "approval_version", "who", "decided", "refusal", "shown_note", "channel")}),
        (WHAT_CHANGED, {"fields": ("difference", "before", "after")}),
        (None, {"fields": ("proposed_digest", "arguments_digest", "created_at")}),
    )

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        """Leave out what was changed, where nothing was, and for who may not see the request."""
        found = super().get_fieldsets(request, obj)
        if obj is not None and obj.is_edit and permissions.can_view(request.user, obj.approval):
            return found
        return [(title, options) for title, options in found if title != WHAT_CHANGED]

    @admin.action(permissions=["view"], description=_("Export the selected entries as CSV"))
    def export_csv(self, request: HttpRequest, queryset: QuerySet[ApprovalDecision]) -> StreamingHttpResponse:
        return exporting.download(request, queryset, "csv")

    @admin.action(permissions=["view"], description=_("Export the selected entries as JSON"))
    def export_json(self, request: HttpRequest, queryset: QuerySet[ApprovalDecision]) -> StreamingHttpResponse:
        return exporting.download(request, queryset, "json")

    @admin.display(description=_("difference"))
    def difference(self, obj: ApprovalDecision) -> str:
        before, after = (_kept(obj, digest) for digest in (obj.proposed_digest, obj.arguments_digest))
        if before is None or after is None:
            return display.EMPTY
        changes = differences.between(before, after, obj.approval.call.sensitive)
        words = {"changes": changes, "before": _("Before")}
        return render_to_string("admin/agentcore/toolapproval/difference.html", words)

    @admin.display(description=_("before"))
    def before(self, obj: ApprovalDecision) -> str:
        return _shown(obj, obj.proposed_digest)

    @admin.display(description=_("after"))
    def after(self, obj: ApprovalDecision) -> str:
        return _shown(obj, obj.arguments_digest)

    @admin.display(description=_("decision"), ordering="verdict")
    def decided(self, obj: ApprovalDecision) -> str:
        return _decided(obj)

    @admin.display(description=_("approval"), ordering="approval_id")
    def approval_link(self, obj: ApprovalDecision) -> str:
        return self.link(obj.approval, str(obj.approval))

    @admin.display(description=_("by"), ordering="actor_name")
    def who(self, obj: ApprovalDecision) -> str:
        return _who(obj)

    @admin.display(description=_("note"))
    def short_note(self, obj: ApprovalDecision) -> str:
        return display.shortened(obj.note)

    @admin.display(description=_("note"))
    def shown_note(self, obj: ApprovalDecision) -> str:
        return display.block(obj.note)


def _decided(decision: ApprovalDecision) -> str:
    return str(_("Changed and approved")) if decision.is_edit else str(decision.get_verdict_display())


def _shown(decision: ApprovalDecision, digest: str) -> str:
    kept = _kept(decision, digest)
    return str(_("No longer kept; the digest below is.")) if kept is None else _pretty(decision, kept)


def _pretty(decision: ApprovalDecision, arguments: Any) -> str:
    return display.pretty(arguments, decision.approval.call.sensitive)


def _kept(decision: ApprovalDecision, digest: str) -> Any:
    """Return the arguments with that digest; None when later edits replaced them."""
    approval, call = decision.approval, decision.approval.call
    kept = (call.proposed_arguments, approval.arguments, approval.approved_arguments, call.arguments)
    return next((value for value in kept if value is not None and canonical.digest(value) == digest), None)


def _who(decision: ApprovalDecision) -> str:
    if not decision.actor_key:
        return str(_("system"))
    return display.person(decision.actor_name, decision.actor_key, decision.actor_id)
