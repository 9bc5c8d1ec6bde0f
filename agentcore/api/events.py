"""The log of a session, from any number on."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore.api import access, parsing
from agentcore.api.base import ApiView
from agentcore.api.operations import described
from agentcore.api.serializers.events import EventSerializer, LogSerializer
from agentcore.events import log

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000


class SessionEvents(ApiView):
    """The events of a session, in order."""

    @described(
        "events_list",
        parameters=[
            OpenApiParameter("after", int, description="The number of the last event you have; 0 for none."),
            OpenApiParameter("limit", int, description=f"At most {MAX_LIMIT}, {DEFAULT_LIMIT} by default."),
        ],
        responses=LogSerializer,
    )
    def get(self, request: Request, session_id: str) -> Response:
        """Return up to `limit` events that follow number `after`, and the number of the last one there is."""
        session = access.session_for(request.user, session_id)
        asked = request.query_params
        last = session.last_sequence
        after = parsing.whole_number(asked.get("after", "0"), name="after", least=0, most=last)
        limit = parsing.whole_number(asked.get("limit", str(DEFAULT_LIMIT)), name="limit", least=1, most=MAX_LIMIT)
        events = log.read(session, after=after, limit=limit)
        # Others write meanwhile: what is returned is never newer than the number beside it.
        newest = max(last, events[-1].sequence if events else 0)
        return Response({"results": EventSerializer(events, many=True).data, "last_sequence": newest})
