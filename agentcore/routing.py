"""WebSocket routes, for the URLRouter of the project's ASGI application.

Nothing need be wrapped around them: they read the session cookie and check the origin themselves. The user
is looked up by the consumers, after the socket was accepted and in threads of their own.
"""

from __future__ import annotations

from typing import Any

from channels.sessions import SessionMiddlewareStack
from django.urls import path

from agentcore.consumers import ApprovalsConsumer, SessionConsumer
from agentcore.sockets.feed import Feed


# Any: to Django a route leads to a view, to Channels an ASGI application; neither's types allow the other.
def _route(address: str, consumer: type[Feed], *, name: str) -> Any:
    application: Any = SessionMiddlewareStack(consumer.as_asgi())
    return path(address, application, name=name)


websocket_urlpatterns = [
    _route("ws/agentcore/sessions/<str:session_id>/", SessionConsumer, name="agentcore-session-socket"),
    _route("ws/agentcore/approvals/", ApprovalsConsumer, name="agentcore-approvals-socket"),
]
