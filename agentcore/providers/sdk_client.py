"""An official SDK, used so that every request is tried once and ends by its deadline."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, aclosing
from typing import Any, Protocol

from agentcore.messages import ModelDelta, ModelReply, ModelRequest
from agentcore.providers.endpoint import Endpoint


class Assembly(Protocol):
    """A streamed answer so far."""

    def add(self, piece: Any) -> str:
        """Take one decoded piece; return the text in it that a reader may be shown."""

    def end(self) -> str:
        """Return text that was held back until the stream's end."""

    def reply(self) -> ModelReply:
        """Return the whole answer; raise ProviderConnectionError when it broke off before its end."""


class SDKClient(ABC):
    """Sends requests to one server. Made and used on one event loop only.

    An SDK's raw answer is `Any` here: it has `headers` and `http_response`, and no public type in either SDK.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Return the whole answer."""
        with self._translated():
            async with asyncio.timeout(self._endpoint.seconds(request)):
                answer = await self._send(request, streams=False)
                content = await answer.http_response.aread()
            return self._read_whole(json.loads(content))

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelReply, None]:
        """Yield the answer's text as it comes, then the whole answer."""
        with self._translated():
            # background.iterate takes each item at once, so a slow reader does not use up the time.
            async with asyncio.timeout(self._endpoint.seconds(request)):
                answer = await self._send(request, streams=True)
                async with aclosing(self._read_answer(answer)) as items:
                    async for item in items:
                        yield item

    @abstractmethod
    async def close(self) -> None:
        """Close the connections."""

    @abstractmethod
    async def _send(self, request: ModelRequest, *, streams: bool) -> Any:
        """Return the SDK's raw answer."""

    @abstractmethod
    def _translated(self) -> AbstractContextManager[None]:
        """Return what raises the SDK's errors as ours."""

    @abstractmethod
    def _read_whole(self, data: Any) -> ModelReply:
        """Return the reply in a decoded answer; raise ProviderBadReply when it holds none."""

    @abstractmethod
    def _pieces(self, answer: Any) -> AsyncGenerator[object, None]:
        """Return the decoded events of a streamed answer."""

    @abstractmethod
    def _assembly(self) -> Assembly:
        """Return what puts a streamed answer together."""

    async def _read_answer(self, answer: Any) -> AsyncGenerator[ModelDelta | ModelReply, None]:
        # Small servers ignore `stream` and answer with one piece of JSON.
        if answer.headers.get("content-type", "").startswith("application/json"):
            reply = self._read_whole(json.loads(await answer.http_response.aread()))
            if reply.content:
                yield ModelDelta(text=reply.content)
            yield reply
            return
        assembly = self._assembly()
        async with aclosing(self._pieces(answer)) as pieces:
            async for piece in pieces:
                if text := assembly.add(piece):
                    yield ModelDelta(text=text)
        if text := assembly.end():
            yield ModelDelta(text=text)
        yield assembly.reply()
