"""Sessions: begin, list, read, rename, archive, delete; and cancel the turn under way."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django_filters import rest_framework as filters
from drf_spectacular.utils import OpenApiResponse
from rest_framework.request import Request
from rest_framework.response import Response

import agentcore
from agentcore.api import access
from agentcore.api.base import ApiView, ListView
from agentcore.api.operations import described
from agentcore.api.serializers import turns as turn_serializers
from agentcore.api.serializers.sessions import NewSession, Nothing, SessionChange, SessionSerializer
from agentcore.api.serializers.turns import TurnSerializer
from agentcore.models import AgentSession
from agentcore.states import SessionStatus
from agentcore.turns import sessions

CHANGE = "agentcore.change_agentsession"
DELETE = "agentcore.delete_agentsession"
ALL = "all"


class SessionFilter(filters.FilterSet):  # type: ignore[misc]  # django-filter carries no types
    """Archived sessions are left out unless they are asked for."""

    agent = filters.CharFilter("agent__name")
    status = filters.ChoiceFilter(choices=[*SessionStatus.choices, (ALL, "All")])

    def filter_queryset(self, queryset: Any) -> Any:
        """Return the sessions asked for."""
        chosen = self.form.cleaned_data
        if chosen["agent"]:
            queryset = queryset.filter(agent__name=chosen["agent"])
        status = chosen["status"] or SessionStatus.ACTIVE
        return queryset if status == ALL else queryset.filter(status=status)


class SessionList(ListView):
    """The sessions you may see, newest first."""

    serializer_class = SessionSerializer
    filterset_class = SessionFilter

    def get_queryset(self) -> QuerySet[AgentSession]:
        visible: QuerySet[AgentSession] = AgentSession.objects.present().visible_to(self.request.user)
        return visible.select_related("agent", "revision", "active_turn")

    @described("sessions_list")
    def get(self, request: Request) -> Response:
        """List sessions; archived ones with `?status=archived` or `?status=all`."""
        return self.list(request)

    @described("sessions_create", request=NewSession, responses={201: SessionSerializer})
    def post(self, request: Request) -> Response:
        """Begin a session with an agent. A `session_id` that is taken is a conflict."""
        session = agentcore.runtime.create_session(user=request.user, **self.given(NewSession))
        return Response(SessionSerializer(session).data, status=201)


class SessionDetail(ApiView):
    """One session."""

    @described("sessions_retrieve", responses=SessionSerializer)
    def get(self, request: Request, session_id: str) -> Response:
        """Return a session you may see."""
        return Response(SessionSerializer(access.session_for(request.user, session_id)).data)

    @described("sessions_partial_update", request=SessionChange, responses=SessionSerializer)
    def patch(self, request: Request, session_id: str) -> Response:
        """Change the title, the metadata or both."""
        session = access.session_to_change(request.user, session_id, permission=CHANGE)
        changed = sessions.change(session, **self.given(SessionChange))
        return Response(SessionSerializer(changed).data)

    @described("sessions_destroy", responses={204: OpenApiResponse(description="It is deleted.")})
    def delete(self, request: Request, session_id: str) -> Response:
        """Delete a session; a conflict while a turn is active."""
        sessions.delete(access.session_to_change(request.user, session_id, permission=DELETE))
        return Response(status=204)


class SessionArchive(ApiView):
    """Close a session to new turns."""

    @described("sessions_archive", request=Nothing, responses=SessionSerializer)
    def post(self, request: Request, session_id: str) -> Response:
        """Archive a session; a conflict while a turn is active."""
        self.given(Nothing)
        session = access.session_to_change(request.user, session_id, permission=CHANGE)
        return Response(SessionSerializer(agentcore.runtime.archive(session.session_id)).data)


class SessionCancel(ApiView):
    """Cancel the turn under way."""

    @described("sessions_cancel", request=Nothing, responses={202: TurnSerializer})
    def post(self, request: Request, session_id: str) -> Response:
        """Cancel the session's active turn; a conflict when there is none."""
        self.given(Nothing)
        session = access.session_to_change(request.user, session_id, permission=CHANGE)
        turn = agentcore.runtime.cancel(session.session_id, by=request.user.get_username())
        return Response(turn_serializers.shown(turn), status=202)
