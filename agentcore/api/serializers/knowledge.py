"""Documents of the knowledge base, as answers show them and bodies describe them."""

from __future__ import annotations

from rest_framework import serializers

from agentcore.api.parsing import Body, JsonObject, Text
from agentcore.knowledge.reading import HTML, MARKDOWN, PLAIN
from agentcore.models import Document

AGENT_HELP = "The agent that may read it; left out or empty, all may."


class DocumentSerializer(serializers.ModelSerializer[Document]):
    """A document, without its text. `chunks` is how many pieces of it can be found."""

    agent = serializers.CharField(read_only=True, allow_blank=True, help_text="Empty: shared by all agents.")
    metadata = serializers.DictField(read_only=True)
    added_by = serializers.SerializerMethodField(help_text="A user name.")
    chunks = serializers.IntegerField(source="chunk_count", read_only=True)

    class Meta:
        model = Document
        fields = (
            "id",
            "title",
            "source",
            "agent",
            "media_type",
            "version",
            "chunks",
            "metadata",
            "added_by",
            "created_at",
            "updated_at",
        )
        read_only_fields = fields

    def get_added_by(self, document: Document) -> str | None:
        return document.user_name or None


class NewDocument(Body):
    """A document as text. The same `source` given again, for the same agent, replaces what was there."""

    text = Text(allow_blank=False)
    source = Text(max_length=1000, allow_blank=False, help_text="Where it comes from; it names the document.")  # type: ignore[assignment]  # the field, not the option
    title = Text(required=False, max_length=255)
    media_type = serializers.ChoiceField(choices=(PLAIN, MARKDOWN, HTML), required=False, default=MARKDOWN)
    agent = Text(required=False, max_length=64, help_text=AGENT_HELP)
    metadata = JsonObject(required=False)


class Upload(Body):
    """A document as a file: text, Markdown, HTML or PDF. Its name is its `source` if none is given."""

    file = serializers.FileField()
    source = Text(required=False, max_length=1000, allow_blank=False)  # type: ignore[assignment]  # the field, not the option
    title = Text(required=False, max_length=255)
    agent = Text(required=False, max_length=64, help_text=AGENT_HELP)
