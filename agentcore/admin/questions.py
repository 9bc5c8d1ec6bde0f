"""Questions to users, and who answered what."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from agentcore.admin import display
from agentcore.admin.base import ReadOnlyAdmin
from agentcore.models import UserQuestion


@admin.register(UserQuestion)
class UserQuestionAdmin(ReadOnlyAdmin):
    list_display = ("__str__", "turn_link", "answered_by", "asked_at", "answered_at")
    list_filter = (("answered_at", admin.EmptyFieldListFilter), "asked_at")
    list_select_related = ("turn",)
    list_loads = ("turn", "turn__execution_id")
    search_fields = ("answered_by",)
    search_help_text = _("User name, or a whole execution id.")
    execution_id_path = "turn__execution_id"
    ordering = ("-id",)
    fieldsets = (
        (None, {"fields": ("turn", "call", "shown_question", "shown_answer", "answered_by")}),
        (_("Dates"), {"fields": ("asked_at", "answered_at")}),
    )

    @admin.display(description=_("question"))
    def shown_question(self, obj: UserQuestion) -> str:
        return display.block(obj.question)

    @admin.display(description=_("answer"))
    def shown_answer(self, obj: UserQuestion) -> str:
        return display.block(obj.answer)
