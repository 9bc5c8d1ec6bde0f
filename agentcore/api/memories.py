"""What is remembered of the user who asks: list, search, correct, delete, take along, erase. Nobody sees another's."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django_filters import rest_framework as filters
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore import clock
from agentcore.api import parsing
from agentcore.api.base import ApiView, ListView
from agentcore.api.errors import absent
from agentcore.api.operations import described
from agentcore.api.serializers.memories import (
    ErasedSerializer,
    ExportSerializer,
    FoundSerializer,
    MemoryChange,
    MemorySerializer,
    SearchSerializer,
)
from agentcore.exceptions import InvalidInput, NotFound
from agentcore.memory import MemoryKind, Owner, keeping
from agentcore.models import Memory

DEFAULT_LIMIT = 10
MAX_QUERY = 4_000


class MemoryFilter(filters.FilterSet):  # type: ignore[misc]  # django-filter carries no types
    """By kind."""

    kind = filters.ChoiceFilter(choices=MemoryKind.choices)


class MemoryList(ListView):
    """All that is remembered of you, newest first."""

    serializer_class = MemorySerializer
    filterset_class = MemoryFilter

    def get_queryset(self) -> QuerySet[Memory]:
        yours: QuerySet[Memory] = Memory.objects.of(Owner.of_user(self.request.user))
        return yours.select_related("session", "agent")

    @described("memory_list")
    def get(self, request: Request) -> Response:
        """List your memories; those of one kind with `?kind=`."""
        return self.list(request)

    @described("memory_erase", responses=ErasedSerializer)
    def delete(self, request: Request) -> Response:
        """Erase all your memories. Conversations are not touched."""
        return Response(ErasedSerializer({"erased": keeping.erase(Owner.of_user(request.user))}).data)


class MemoryExport(ApiView):
    """All that is remembered of you, to take along."""

    @described("memory_export", responses=ExportSerializer)
    def get(self, request: Request) -> Response:
        """Return all your memories at once, oldest first."""
        owner = Owner.of_user(request.user)
        told = {"user": owner.user_name, "exported_at": clock.now(), "memories": list(keeping.export(owner))}
        return Response(ExportSerializer(told).data)


class MemorySearch(ApiView):
    """Your memories that a text finds."""

    @described(
        "memory_search",
        parameters=[
            OpenApiParameter("q", str, required=True, description=f"What to look for, up to {MAX_QUERY} characters."),
            OpenApiParameter("kind", str, enum=MemoryKind.values, description="Only those of that kind."),
            OpenApiParameter("limit", int, description=f"1 to {keeping.MAX_FOUND}; {DEFAULT_LIMIT} if left out."),
        ],
        responses=SearchSerializer,
    )
    def get(self, request: Request) -> Response:
        """Search your memories, by their words, their meaning or both as the project has it, the best first."""
        query = request.query_params.get("q", "")
        if not query.strip() or len(query) > MAX_QUERY:
            raise InvalidInput(f"q must be 1 to {MAX_QUERY} characters to look for.", field="q")
        asked = request.query_params.get("limit", str(DEFAULT_LIMIT))
        limit = parsing.whole_number(asked, name="limit", least=1, most=keeping.MAX_FOUND)
        kind = request.query_params.get("kind") or None
        found = keeping.search(Owner.of_user(request.user), query, limit=limit, kind=kind)
        scores = {memory.pk: score for memory, score in found}
        rows = FoundSerializer([memory for memory, _ in found], many=True, context={"scores": scores})
        return Response({"results": rows.data})


class MemoryDetail(ApiView):
    """One memory of yours."""

    @described("memory_retrieve", responses=MemorySerializer)
    def get(self, request: Request, memory_id: str) -> Response:
        """Return a memory of yours."""
        return Response(MemorySerializer(_yours(request.user, memory_id)).data)

    @described("memory_partial_update", request=MemoryChange, responses=MemorySerializer)
    def patch(self, request: Request, memory_id: str) -> Response:
        """Correct the text, the data or both; a conflict where you have a memory that says the same."""
        memory = _yours(request.user, memory_id)
        return Response(MemorySerializer(keeping.correct(memory, **self.given(MemoryChange))).data)

    @described("memory_destroy", responses={204: OpenApiResponse(description="It is deleted.")})
    def delete(self, request: Request, memory_id: str) -> Response:
        """Delete a memory of yours."""
        keeping.delete(_yours(request.user, memory_id))
        return Response(status=204)


def _yours(user: Any, memory_id: str) -> Memory:
    try:
        return keeping.get(Owner.of_user(user), parsing.find_number(memory_id) or 0)
    except NotFound as error:
        raise absent() from error
