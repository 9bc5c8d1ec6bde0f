"""The record of erasures."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from agentcore.admin import display
from agentcore.admin.base import ReadOnlyAdmin
from agentcore.models import Erasure


@admin.register(Erasure)
class ErasureAdmin(ReadOnlyAdmin):
    list_display = ("pseudonym", "by", "started_at", "completed_at")
    list_filter = ("started_at", ("completed_at", admin.EmptyFieldListFilter))
    fieldsets = ((None, {"fields": ("pseudonym", "by", "started_at", "completed_at", "subject_digest", "what")}),)

    @admin.display(description=_("what was erased"))
    def what(self, obj: Erasure) -> str:
        return display.pretty(obj.counts)
