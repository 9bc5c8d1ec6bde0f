"""A provider whose requests run on the background loop, over connections that belong to that loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator

from agentcore.messages import ModelDelta, ModelReply, ModelRequest
from agentcore.providers import background
from agentcore.providers.base import ModelProvider
from agentcore.providers.sdk_client import SDKClient


class ConnectedProvider(ModelProvider):
    """Talks to one server through an SDK. Nothing is connected before the first request."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._client: SDKClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def complete(self, request: ModelRequest) -> ModelReply:
        """Return the model's whole answer, or raise ProviderTimeout when request.timeout seconds have passed."""
        return background.run(self._open().complete(request))

    def stream(self, request: ModelRequest) -> Generator[ModelDelta | ModelReply, None, None]:
        """Yield the text as the server sends it, then the whole answer, all within request.timeout seconds."""
        return background.iterate(self._open().stream(request))

    def close(self) -> None:
        """Close the connections; a later request opens new ones."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None and self._loop is background.loop():
            background.run(client.close())

    def _connect(self) -> SDKClient:
        """Return a new client. The place to import an SDK: it takes a second and is an optional package."""
        raise NotImplementedError

    def _open(self) -> SDKClient:
        """Return the client of this process's loop: connections belong to the loop that opened them."""
        with self._lock:
            if self._client is None or self._loop is not background.loop():
                self._loop = background.loop()
                self._client = self._connect()
            return self._client
