"""The shop's rows in the admin. What tool calls made is read only: it is a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.http import HttpRequest

from project.models import Lead, Meeting, Order, Quote, Refund, Ticket

# Generic for the type checker alone.
if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin


@admin.register(Order)
class OrderAdmin(ModelAdmin):
    list_display = ("number", "customer", "item", "status", "total", "refunded", "placed_on")
    list_filter = ("status",)
    search_fields = ("number", "customer", "item")


class RecordAdmin(ModelAdmin):
    search_fields = ("call_id",)
    date_hierarchy = "created_at"

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Refund)
class RefundAdmin(RecordAdmin):
    list_display = ("__str__", "order", "amount", "approved_by", "created_at")
    list_select_related = ("order",)


@admin.register(Ticket)
class TicketAdmin(RecordAdmin):
    list_display = ("__str__", "subject", "priority", "requested_by", "is_open", "created_at")
    list_filter = ("priority", "is_open")
    readonly_fields = ("subject", "description", "priority", "requested_by", "created_at")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Allow to close a ticket: that is a person's work."""
        return bool(request.user.has_perm("project.change_ticket"))


@admin.register(Lead)
class LeadAdmin(RecordAdmin):
    list_display = ("__str__", "company_name", "company_size", "budget", "is_qualified", "created_at")
    list_filter = ("is_qualified",)


@admin.register(Quote)
class QuoteAdmin(RecordAdmin):
    list_display = ("__str__", "lead", "amount", "approved_by", "created_at")
    list_select_related = ("lead",)


@admin.register(Meeting)
class MeetingAdmin(RecordAdmin):
    list_display = ("__str__", "lead", "date", "minutes", "created_at")
    list_select_related = ("lead",)
