"""Turns: send a message, read what became of it, answer a turn that asks."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django_filters import rest_framework as filters
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

import agentcore
from agentcore.api import access
from agentcore.api.base import ApiView, ListView
from agentcore.api.operations import described
from agentcore.api.serializers import turns as serializers
from agentcore.api.serializers.turns import Answer, NewTurn, TurnDetailSerializer, TurnSerializer
from agentcore.exceptions import InvalidInput
from agentcore.models import AgentContext
from agentcore.states import TurnState

CHANGE = "agentcore.change_agentsession"
KEY_HEADER = "Idempotency-Key"
KEY_PARAMETER = OpenApiParameter(
    KEY_HEADER, str, OpenApiParameter.HEADER, description="The same key with the same body gives the same turn."
)
ID_PARAMETER = OpenApiParameter("execution_id", OpenApiTypes.UUID, OpenApiParameter.PATH)


class TurnFilter(filters.FilterSet):  # type: ignore[misc]  # django-filter carries no types
    """Turns by state."""

    state = filters.ChoiceFilter(choices=TurnState.choices)


class TurnList(ListView):
    """The turns of a session, newest first."""

    serializer_class = TurnSerializer
    filterset_class = TurnFilter

    def get_queryset(self) -> QuerySet[AgentContext]:
        turns: QuerySet[AgentContext] = AgentContext.objects.present()
        return serializers.with_parts(turns.filter(session__session_id=self.kwargs.get("session_id", "")))

    @described("turns_list")
    def get(self, request: Request, session_id: str) -> Response:
        """List the turns of a session you may see."""
        access.session_for(request.user, session_id)
        return self.list(request)

    @described(
        "turns_create",
        parameters=[KEY_PARAMETER],
        request=NewTurn,
        responses={202: TurnSerializer, 200: TurnSerializer},
    )
    def post(self, request: Request, session_id: str) -> Response:
        """Send a message: 202 with the queued turn, 200 with the stored one for a known idempotency key."""
        session = access.session_for(request.user, session_id)
        given = self.given(NewTurn)
        enqueued = agentcore.runtime.enqueue(
            session.session_id,
            given["message"],
            idempotency_key=_key(request, given),
            user=request.user,
            metadata=given.get("metadata"),
        )
        return Response(serializers.shown(enqueued.turn), status=200 if enqueued.duplicate else 202)


class TurnDetail(ApiView):
    """One turn."""

    @described("turns_retrieve", parameters=[ID_PARAMETER], responses=TurnDetailSerializer)
    def get(self, request: Request, execution_id: str) -> Response:
        """Return a turn with its steps and tool calls."""
        turn = access.turn_for(request.user, execution_id)
        full = serializers.with_parts(AgentContext.objects.filter(pk=turn.pk)).get()
        return Response(TurnDetailSerializer(full).data)


class TurnResume(ApiView):
    """Answer a turn that waits for input."""

    @described(
        "turns_resume", parameters=[ID_PARAMETER, KEY_PARAMETER], request=Answer, responses={202: TurnSerializer}
    )
    def post(self, request: Request, execution_id: str) -> Response:
        """Answer the question a turn waits with: 202 with the turn, queued again; a conflict if it does not wait.

        The same key with the same message gives the turn as it is by then, and answers nothing else.
        """
        turn = access.turn_to_change(request.user, execution_id, permission=CHANGE)
        given = self.given(Answer)
        answered = agentcore.runtime.answer(
            turn.execution_id,
            given["message"],
            idempotency_key=_key(request, given),
            by=request.user.get_username(),
        )
        return Response(serializers.shown(answered.turn), status=202)


def _key(request: Request, given: dict[str, Any]) -> str | None:
    """Return the idempotency key of a request, which may come in two ways; raise InvalidInput when they differ."""
    header = _utf8(request.headers.get(KEY_HEADER))
    field: str | None = given.get("idempotency_key")
    if header is not None and field is not None and header != field:
        raise InvalidInput(
            f"The header {KEY_HEADER} and the field idempotency_key differ; send one.", field="idempotency_key"
        )
    return field if header is None else header


def _utf8(header: str | None) -> str | None:
    """Return a header as its sender wrote it: servers hand on its bytes as Latin-1."""
    try:
        return None if header is None else header.encode("latin-1").decode()
    except UnicodeError:
        return header
