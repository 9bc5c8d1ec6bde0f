"""Documents of the knowledge base: added as text or by upload, read, and deleted. Their pieces are only read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models import Count
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from agentcore import knowledge
from agentcore.admin import display
from agentcore.admin.base import ReadOnlyAdmin, ReadOnlyInline
from agentcore.agents.registry import registry
from agentcore.conf import settings
from agentcore.exceptions import AgentError
from agentcore.knowledge import Content
from agentcore.knowledge.documents import MAX_SOURCE
from agentcore.knowledge.reading import MARKDOWN
from agentcore.models import Chunk, Document

if TYPE_CHECKING:
    ModelForm = forms.ModelForm[Document]
else:
    ModelForm = forms.ModelForm

MAX_SHOWN_CHUNKS = 200
OUTCOMES = {
    "replaced": _("was there from this source: it has the new text now, and a new version."),
    "unchanged": _("is there already, just so: nothing was changed."),
}


class NewDocumentForm(ModelForm):
    """A file or a text. The same source for the same agent replaces the document that is there.

    A valid form has put its document in: what keeps it from that is said on the form, with all that was typed.
    """

    # Who adds it; the admin makes a form for each.
    by: ClassVar[Any] = None
    document: Document

    file = forms.FileField(required=False, label=_("file"), help_text=_("Text, Markdown, HTML or PDF."))
    text = forms.CharField(required=False, label=_("text"), widget=forms.Textarea, help_text=_("Instead of a file."))
    title = forms.CharField(required=False, max_length=255, label=_("title"), help_text=_("Empty: its own."))
    source = forms.CharField(
        required=False,
        max_length=MAX_SOURCE,
        label=_("source"),
        help_text=_("Where it comes from; it names the document. Empty: the file's name."),
    )
    agent = forms.ChoiceField(required=False, label=_("agent"))

    class Meta:
        model = Document
        fields = ("title", "source", "agent", "text")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        agent: Any = self.fields["agent"]
        agent.choices = [("", _("All agents"))] + [(item.name, item.name) for item in registry.all()]

    def clean(self) -> dict[str, Any]:
        given: dict[str, Any] = super().clean() or {}
        file, text = given.get("file"), given.get("text") or ""
        if self.errors:
            return given
        if bool(file) == bool(text.strip()):
            raise ValidationError(_("Give a file or a text, and not both."))
        given["source"] = given.get("source") or (file.name if file else "")
        if not given["source"]:
            raise ValidationError({"source": _("A text needs a source.")})
        given["content"] = self._content(file, text, given["source"])
        return given

    def _content(self, file: Any, text: str, source: str) -> Content:
        limit = settings.MAX_DOCUMENT_BYTES
        if file and file.size > limit:
            raise ValidationError({"file": _("The file is over %(limit)d bytes.") % {"limit": limit}})
        try:
            if file:
                return knowledge.read(file.read(), name=file.name)
            return knowledge.read(text.encode(), name=source, media_type=MARKDOWN)
        except AgentError as problem:
            raise ValidationError(problem.message) from problem

    def _post_clean(self) -> None:
        # The row is not made of the form's fields: ingesting makes it.
        if self.errors:
            return
        given = self.cleaned_data
        try:
            self.ingested = knowledge.ingest(
                given["content"],
                source=given["source"],
                title=given["title"],
                agent=given["agent"],
                by=self.by,
                may_replace=self.by.has_perm("agentcore.change_document"),
            )
        except AgentError as problem:
            self.add_error(None, problem.message)


class ChunkInline(ReadOnlyInline):
    model = Chunk
    fields = ("position", "shown_heading", "shown_text")
    ordering = ("position",)
    show_change_link = False

    @admin.display(description=_("heading"))
    def shown_heading(self, obj: Chunk) -> str:
        return display.marked(obj.heading) or display.EMPTY

    @admin.display(description=_("text"))
    def shown_text(self, obj: Chunk) -> str:
        return display.block(obj.text)

    def get_queryset(self, request: HttpRequest) -> Any:
        # A long document has thousands: the page shows the first of them.
        return super().get_queryset(request).filter(position__lte=MAX_SHOWN_CHUNKS)


@admin.register(Document)
class DocumentAdmin(ReadOnlyAdmin):
    """Add, view and delete by the model's permissions. A document is not edited: its source is ingested again."""

    list_display = ("title", "source", "whose", "media_type", "version", "chunk_count", "owner", "updated_at")
    list_filter = ("agent", "media_type", "updated_at")
    list_loads = ("user", "user_key", "user_name")
    search_fields = ("title", "source")
    ordering = ("-id",)
    inlines = (ChunkInline,)
    fieldsets = (
        (None, {"fields": ("title", "source", "whose", "media_type", "version", "owner", "pretty_metadata")}),
        (_("Dates"), {"fields": ("created_at", "updated_at")}),
        (_("Text"), {"fields": ("shown_text",), "classes": ("collapse",)}),
    )

    @admin.display(description=_("agent"), ordering="agent")
    def whose(self, obj: Document) -> str:
        return display.marked(obj.agent) or str(_("all agents"))

    @admin.display(description=_("pieces"))
    def chunk_count(self, obj: Any) -> int:
        return int(obj.number_of_chunks)

    @admin.display(description=_("metadata"))
    def pretty_metadata(self, obj: Document) -> str:
        return display.pretty(obj.metadata)

    @admin.display(description=_("text"))
    def shown_text(self, obj: Document) -> str:
        return display.block(obj.text)

    def for_list(self, request: HttpRequest, queryset: Any) -> Any:
        return super().for_list(request, queryset).annotate(number_of_chunks=Count("chunks"))

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("agentcore.add_document")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("agentcore.delete_document")

    def get_inlines(self, request: HttpRequest, obj: Any) -> Any:
        return self.inlines if obj is not None else ()

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        if obj is None:
            return [(None, {"fields": ["file", "text", "title", "source", "agent"]})]
        return super().get_fieldsets(request, obj)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        return super().get_readonly_fields(request, obj) if obj is not None else []

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        if obj is None:
            return type("NewDocumentForm", (NewDocumentForm,), {"by": request.user})
        return super().get_form(request, obj, change, **kwargs)

    def save_form(self, request: HttpRequest, form: Any, change: bool) -> Any:
        """Return what the form has put in, instead of a row of its fields, with what became of it."""
        document: Any = form.ingested.document
        document.outcome = form.ingested.outcome
        return document

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """The document is stored by now."""

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Its pieces are, too."""

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Note in the history what became of the document."""
        if obj.outcome == "added":
            return super().log_addition(request, obj, message)
        return self.log_change(request, obj, str(OUTCOMES[obj.outcome])) if obj.outcome == "replaced" else None

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: Any = None) -> HttpResponse:
        if obj.outcome == "added":
            return super().response_add(request, obj, post_url_continue)
        self.message_user(request, format_html("{} {}", display.marked(obj.title), OUTCOMES[obj.outcome]))
        again = "_addanother" in request.POST
        return HttpResponseRedirect(request.path) if again else self.response_post_save_add(request, obj)

    def delete_model(self, request: HttpRequest, obj: Document) -> None:
        knowledge.delete(obj)

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        for document in queryset:
            knowledge.delete(document)
