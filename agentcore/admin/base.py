"""What every admin of agentcore shares: it is read-only, lists no large values, and links what belongs together.

A record is changed by the product's own verbs only. A form that is saved while a turn runs would write
old values over new ones; so there is no such form, not even for superusers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.utils import flatten_fieldsets, quote
from django.contrib.admin.views.main import ChangeList
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import NoReverseMatch, reverse
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.translation import gettext_lazy as _
from django.views.decorators.clickjacking import xframe_options_deny

from agentcore.admin import columns, display, lookups
from agentcore.approvals import visible

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
    TabularInline = admin.TabularInline[Any, Any]
else:
    # Django's own classes take no parameters when they run.
    ModelAdmin = admin.ModelAdmin
    TabularInline = admin.TabularInline

Link = tuple[Any, str]


class LightChangeList(ChangeList):
    """A list that loads only what it shows."""

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        found = super().get_queryset(request, exclude_parameters)
        if _holds_nul(request):
            # No stored text holds one, and PostgreSQL takes none: nothing is found, without asking.
            found = found.none()
        return self.model_admin.for_list(request, found)  # type: ignore[attr-defined, no-any-return]  # a ReadOnlyAdmin


class ReadOnly:
    """Nobody adds, changes or deletes here."""

    @admin.display(description=_("duration"), ordering="duration")
    def took(self, obj: Any) -> str:
        return display.seconds(obj.duration)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@method_decorator(xframe_options_deny, name="changelist_view")
@method_decorator(xframe_options_deny, name="changeform_view")
@method_decorator(xframe_options_deny, name="history_view")
class ReadOnlyAdmin(ReadOnly, ModelAdmin):
    """Base of the admins.

    A list loads the columns it displays, and those that `list_loads` names because its methods read them.
    `execution_id_path` is the lookup that a search for an execution id uses.
    """

    list_loads: ClassVar[tuple[str, ...]] = ()
    execution_id_path: ClassVar[str] = ""
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER

    class Media:
        css = {"all": ("agentcore/admin.css",)}

    @cached_property
    def _shown(self) -> dict[Any, Any]:
        # Kept: Django compares columns by identity.
        return {}

    def visible(self, names: Iterable[Any], link: columns.LinkTo) -> list[Any]:
        """Return the names of columns or fields with those of text put so that hidden characters show."""
        return [self._shown.setdefault((name, link), columns.shown(self.model, name, link)) for name in names]

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        return self.visible(self.list_display, columns.unlinked)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        found = super().get_fieldsets(request, obj)
        return [(title, {**options, "fields": self.visible(options["fields"], self.link)}) for title, options in found]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        return flatten_fieldsets(self.get_fieldsets(request, obj))

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return LightChangeList

    def for_list(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows as the list needs them."""
        columns = {column.name for column in self.opts.concrete_fields}
        return queryset.only(*columns.intersection(self.list_display), *self.list_loads)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Allow what the list's own filters and links ask; other fields may be masked on every page."""
        return lookups.is_offered(self, lookup, request) and super().lookup_allowed(lookup, value, request)  # type: ignore[arg-type]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        execution_id = _find_uuid(search_term) if self.execution_id_path else None
        if execution_id is not None:
            return queryset.filter(**{self.execution_id_path: execution_id}), False
        return super().get_search_results(request, queryset, search_term)

    def related(self, request: HttpRequest, obj: Any) -> Iterator[Link | None]:
        """Yield the links to what belongs to a record, made by `listing`."""
        yield from ()

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        obj = kwargs.get("obj")
        if obj is not None:
            context["related_links"] = [link for link in self.related(request, obj) if link]
            context["subtitle"] = visible.made_visible(str(obj))
        response = super().render_change_form(request, context, *args, **kwargs)
        _show_hidden(response)
        return response

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        response = super().history_view(request, object_id, extra_context)
        _show_hidden(response)
        return response

    def listing(self, request: HttpRequest, label: Any, model: type[Model], **filters: Any) -> Link | None:
        """Return the link to a filtered list of `model`, None for who may not see it."""
        if not self.admin_site.is_registered(model):
            return None
        if not self.admin_site.get_model_admin(model).has_view_permission(request):
            return None
        return label, f"{self.url(model, 'changelist')}?{urlencode(filters)}"

    def link(self, record: Model | None, text: Any) -> str:
        """Return a link to a record's page, or the text alone when that page does not exist."""
        if record is None:
            return display.EMPTY
        label = text if hasattr(text, "__html__") else display.marked(text)
        try:
            url = self.url(type(record), "change", record.pk)
        except NoReverseMatch:
            return str(label)
        return format_html('<a href="{}">{}</a>', url, label)

    def url(self, model: type[Model], page: str, pk: Any = None) -> str:
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}"
        arguments = [] if pk is None else [quote(pk)]
        return reverse(name, args=arguments, current_app=self.admin_site.name)

    @admin.display(description=_("session"), ordering="session_id")
    def session_link(self, obj: Any) -> str:
        return self.link(obj.session, obj.session.session_id)

    @admin.display(description=_("turn"), ordering="turn_id")
    def turn_link(self, obj: Any) -> str:
        if obj.turn is None:
            return display.EMPTY
        return self.link(obj.turn, display.shortened(str(obj.turn.execution_id), 9))

    @admin.display(description=_("user"), ordering="user_name")
    def owner(self, obj: Any) -> str:
        return display.person(obj.user_name, obj.user_key, obj.user_id)


class ReadOnlyInline(ReadOnly, TabularInline):
    """Rows shown on the page of the record they belong to."""

    # Django's own shows each row as a text, too, with whatever hides in it.
    template = "admin/agentcore/inline.html"
    extra = 0
    can_delete = False
    show_change_link = True

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        return list(self.fields or ())


class _Visible:
    """Stands for a record in Django's templates, whose text then shows what hides in it."""

    def __init__(self, record: Any) -> None:
        self._record = record

    def __str__(self) -> str:
        return visible.made_visible(str(self._record))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._record, name)


def _show_hidden(response: HttpResponse) -> None:
    """Have a page of Django's, not rendered yet, show what hides in its record's name and history."""
    context = getattr(response, "context_data", None) or {}
    for name in ("original", "object"):
        if context.get(name) is not None:
            context[name] = _Visible(context[name])
    if "action_list" in context:
        context["title"] = visible.made_visible(str(context["title"]))
        _show_hidden_in_history(context["action_list"])


def _show_hidden_in_history(page: Any) -> None:
    page.object_list = list(page.object_list)
    for entry in page.object_list:
        message = entry.get_change_message()
        if visible.has_hidden(message):
            entry.change_message = visible.made_visible(message)


def _holds_nul(request: HttpRequest) -> bool:
    return any("\0" in value for values in request.GET.lists() for value in values[1])


def _find_uuid(text: str) -> UUID | None:
    try:
        return UUID(text.strip())
    except ValueError:
        return None
