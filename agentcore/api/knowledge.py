"""The knowledge base: list, add, read and delete documents. Each needs the model's permission."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, QuerySet
from django_filters import rest_framework as filters
from drf_spectacular.utils import OpenApiResponse
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore import knowledge
from agentcore.agents.registry import registry
from agentcore.api import access
from agentcore.api.base import ApiView, ListView
from agentcore.api.operations import described
from agentcore.api.parsing import JsonBody
from agentcore.api.serializers.knowledge import DocumentSerializer, NewDocument, Upload
from agentcore.conf import settings
from agentcore.exceptions import InvalidInput, TooLarge
from agentcore.knowledge import Content, Ingested
from agentcore.models import Document


class DocumentFilter(filters.FilterSet):  # type: ignore[misc]  # django-filter carries no types
    """Documents of one agent; `?agent=` with nothing behind it means all."""

    agent = filters.CharFilter("agent")
    shared = filters.BooleanFilter(method="only_shared")

    def only_shared(self, queryset: Any, name: str, value: bool) -> Any:
        """Keep the shared documents, or leave them out."""
        return queryset.filter(agent="") if value else queryset.exclude(agent="")


class DocumentList(ListView):
    """The documents of the knowledge base, newest first."""

    serializer_class = DocumentSerializer
    filterset_class = DocumentFilter
    parser_classes: Any = (JsonBody, MultiPartParser)

    def get_queryset(self) -> QuerySet[Document]:
        return _counted(Document.objects.all())

    @described("knowledge_list")
    def get(self, request: Request) -> Response:
        """List documents, without their text."""
        access.require_documents(request.user, "view")
        return self.list(request)

    @described(
        "knowledge_create",
        request={"application/json": NewDocument, "multipart/form-data": Upload},
        responses={201: DocumentSerializer, 200: DocumentSerializer},
    )
    def post(self, request: Request) -> Response:
        """Add a document: 201; 200 when the source was there and was replaced (who may change it), or is the same."""
        access.require_documents(request.user, "add")
        ingested = self._uploaded(request) if _is_upload(request) else self._given(request)
        status = 201 if ingested.outcome == "added" else 200
        return Response(DocumentSerializer(_counted(Document.objects.all()).get(pk=ingested.document.pk)).data, status)

    def _given(self, request: Request) -> Ingested:
        given = self.given(NewDocument)
        media_type = given.pop("media_type")
        content = knowledge.read(given.pop("text").encode(), name=given["source"], media_type=media_type)
        return _ingest(content, request, given)

    def _uploaded(self, request: Request) -> Ingested:
        given = self.given(Upload)
        file = given.pop("file")
        if file.size > (limit := settings.MAX_DOCUMENT_BYTES):
            raise TooLarge(f"The file is over {limit} bytes.", limit=limit)
        given.setdefault("source", file.name)
        return _ingest(knowledge.read(file.read(), name=file.name), request, given)


class DocumentDetail(ApiView):
    """One document."""

    @described("knowledge_retrieve", responses=DocumentSerializer)
    def get(self, request: Request, id: str) -> Response:
        """Return a document, without its text."""
        found = access.document_for(request.user, id, "view")
        return Response(DocumentSerializer(_counted(Document.objects.all()).get(pk=found.pk)).data)

    @described("knowledge_destroy", responses={204: OpenApiResponse(description="It is deleted.")})
    def delete(self, request: Request, id: str) -> Response:
        """Delete a document and all that could be found of it."""
        knowledge.delete(access.document_for(request.user, id, "delete"))
        return Response(status=204)


def _ingest(content: Content, request: Request, given: dict[str, Any]) -> Ingested:
    agent = given.get("agent", "")
    if agent and registry.find(agent) is None:
        raise InvalidInput(f"There is no agent {agent!r}.", field="agent")
    may_replace = request.user.has_perm("agentcore.change_document")
    return knowledge.ingest(content, by=request.user, may_replace=may_replace, **given)


def _is_upload(request: Request) -> bool:
    return str(request.content_type).startswith("multipart/")


def _counted(documents: QuerySet[Document]) -> QuerySet[Document]:
    return documents.defer("text").annotate(chunk_count=Count("chunks"))
