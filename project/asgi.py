"""HTTP and WebSocket in one ASGI application."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")

# First: it loads the apps, which the imports below need.
django_asgi_app = get_asgi_application()

from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402

from agentcore.routing import websocket_urlpatterns  # noqa: E402

# The consumers log the user in and check the origin themselves, so nothing is wrapped around them here.
application = ProtocolTypeRouter({"http": django_asgi_app, "websocket": URLRouter(websocket_urlpatterns)})
