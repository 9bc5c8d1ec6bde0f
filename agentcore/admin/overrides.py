"""Stricter rules: what staff ask of a tool's approvals beyond what its code asks, with a history of every change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.models import DELETION, LogEntry
from django.contrib.admin.widgets import AdminTextInputWidget
from django.contrib.auth.models import Permission
from django.core.validators import RegexValidator
from django.db.models import Q
from django.http import HttpRequest
from django.utils.decorators import method_decorator
from django.utils.html import format_html, format_html_join
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _
from django.utils.translation import override as in_language
from django.views.decorators.clickjacking import xframe_options_deny

from agentcore.admin import display
from agentcore.admin.base import ModelAdmin
from agentcore.agents.registry import registry
from agentcore.approvals.visible import made_visible
from agentcore.models import Agent, ToolOverride
from agentcore.models.overrides import EVERY_TOOL

if TYPE_CHECKING:
    ModelForm = forms.ModelForm[ToolOverride]
else:
    ModelForm = forms.ModelForm

LOGGED = (
    "agent",
    "tool",
    "is_active",
    "always_ask",
    "permission",
    "votes",
    "four_eyes",
    "forbid_edit",
    "expires_in",
    "note",
)

DURATION = _("For instance 2 days, or 04:30:00 for four and a half hours, or both: 2 04:30:00.")

tool_name = RegexValidator(r"\A(?:\*|[A-Za-z0-9_-]{1,64})\Z", _("It must be the name of a tool, or * for every tool."))


class Suggestions(AdminTextInputWidget):
    """A line of text with suggestions, which work without a script."""

    def __init__(self, suggestions: Iterable[str]) -> None:
        super().__init__()
        self.suggestions = list(suggestions)

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> Any:
        list_id = f"suggestions_{name}"
        field = super().render(name, value, {**(attrs or {}), "list": list_id, "autocomplete": "off"}, renderer)
        options = format_html_join("", '<option value="{}"></option>', ((text,) for text in self.suggestions))
        return format_html('{}<datalist id="{}">{}</datalist>', field, list_id, options)


class ToolOverrideForm(ModelForm):
    """The form of a rule. The tool need not be deployed here: a worker may have what this process has not."""

    class Meta:
        model = ToolOverride
        fields = LOGGED

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.fields:
            # Shown to who may only view it.
            return
        self.fields["tool"].widget = Suggestions([EVERY_TOOL, *deployed_tools()])
        self.fields["tool"].validators.append(tool_name)
        self.fields["expires_in"].help_text = format_lazy("{} {}", self.fields["expires_in"].help_text, DURATION)
        self.fields["expires_in"].error_messages["invalid"] = DURATION
        agents: Any = self.fields["agent"]
        agents.queryset = Agent.objects.filter(Q(deleted_at=None) | Q(pk=self.instance.agent_id))

    def clean_permission(self) -> str:
        name: str = self.cleaned_data["permission"]
        app_label, _dot, codename = name.partition(".")
        # What has no dot is refused by the rule's own check.
        if codename and not Permission.objects.filter(content_type__app_label=app_label, codename=codename).exists():
            raise forms.ValidationError(_("There is no permission %(name)s."), params={"name": made_visible(name)})
        return name


@admin.register(ToolOverride)
@method_decorator(xframe_options_deny, name="changelist_view")
@method_decorator(xframe_options_deny, name="changeform_view")
@method_decorator(xframe_options_deny, name="delete_view")
@method_decorator(xframe_options_deny, name="history_view")
class ToolOverrideAdmin(ModelAdmin):
    """A form like any other of Django's: who has the permission to change rules changes them, and history keeps how."""

    form = ToolOverrideForm
    list_display = ("rule", "is_active", "asks", "shown_note", "changed_by", "changed_at")
    list_filter = ("is_active", "agent", "always_ask")
    list_select_related = ("agent", "changed_by")
    search_fields = ("tool", "note", "permission")
    readonly_fields = ("changed_by", "changed_at")
    show_facets = admin.ShowFacets.NEVER
    fieldsets = (
        (
            None,
            {
                "fields": ("agent", "tool", "is_active"),
                "description": _("A rule holds for what is asked from then on; what waits already stays as it is."),
            },
        ),
        (
            _("What it asks for"),
            {
                "fields": ("always_ask", "permission", "votes", "four_eyes", "forbid_edit", "expires_in"),
                "description": _("It can only make a tool's own rules stricter. Of several that match, each is kept."),
            },
        ),
        (None, {"fields": ("note", "changed_by", "changed_at")}),
    )

    class Media:
        css = {"all": ("agentcore/admin.css",)}

    @admin.display(description=_("rule"), ordering="tool")
    def rule(self, obj: ToolOverride) -> str:
        return display.marked(obj)

    @admin.display(description=_("asks for"))
    def asks(self, obj: ToolOverride) -> str:
        return display.marked("; ".join(demands(obj))) or display.EMPTY

    @admin.display(description=_("note"))
    def shown_note(self, obj: ToolOverride) -> str:
        return display.shortened(obj.note) or display.EMPTY

    def save_model(self, request: Any, obj: ToolOverride, form: Any, change: bool) -> None:
        obj.changed_by = request.user
        super().save_model(request, obj, form, change)
        self._warn(request, obj)

    def construct_change_message(self, request: HttpRequest, form: Any, formsets: Any, add: bool = False) -> Any:
        """Return for the history what each changed value was and is."""
        if add:
            return f"Added: {described(form.instance)}."
        return "; ".join(
            f"{_label(name)}: {_text(name, form.initial.get(name))} → {_text(name, form.cleaned_data[name])}"
            for name in form.changed_data
        )

    def log_deletions(self, request: Any, queryset: Any) -> Any:
        """Keep what each deleted rule said: its row is gone after this."""
        return [
            LogEntry.objects.log_actions(
                request.user.pk, [rule], DELETION, change_message=f"Deleted: {described(rule)}.", single_object=True
            )
            for rule in queryset
        ]

    def _warn(self, request: HttpRequest, rule: ToolOverride) -> None:
        if rule.tool != EVERY_TOOL and rule.tool not in deployed_tools(rule.agent):
            text = _("No tool of this name is known here. The rule holds wherever there is one.")
            self.message_user(request, text, messages.WARNING)
        if not demands(rule):
            self.message_user(request, _("This rule makes nothing stricter yet."), messages.WARNING)


def deployed_tools(agent: Agent | None = None) -> list[str]:
    """Return the names of the tools that are defined in this process, of one agent or of all."""
    known = [found for found in registry.all() if agent is None or found.name == agent.name]
    return sorted({name for found in known for name in found.tools})


def demands(rule: ToolOverride) -> list[str]:
    """Return in words what a rule makes stricter."""
    said = {
        _("a person for each call"): rule.always_ask,
        _("the permission %s") % rule.permission: rule.permission,
        _("%d votes") % rule.votes: rule.votes > 1,
        _("four eyes"): rule.four_eyes,
        _("no edits"): rule.forbid_edit,
        _("at most %s") % rule.expires_in: rule.expires_in is not None,
    }
    return [str(words) for words, holds in said.items() if holds]


def described(rule: ToolOverride) -> str:
    """Return all that a rule says, for the history."""
    return "; ".join(f"{_label(name)}: {_text(name, getattr(rule, name))}" for name in LOGGED)


def _label(name: str) -> str:
    # The history is kept in one language, whoever reads it.
    with in_language(None):
        return str(ToolOverride._meta.get_field(name).verbose_name)  # type: ignore[union-attr]  # a plain field


def _text(name: str, value: Any) -> str:
    if name == "agent" and isinstance(value, int):
        value = Agent.objects.filter(pk=value).first() or value
    if isinstance(value, bool):
        return "yes" if value else "no"
    return display.EMPTY if value in (None, "") else made_visible(str(value))
