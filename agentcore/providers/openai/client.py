"""Chat completions over OpenAI's SDK."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager
from typing import Any

import openai

from agentcore.exceptions import ConfigurationError
from agentcore.messages import ModelReply, ModelRequest
from agentcore.providers.openai import errors, wire
from agentcore.providers.openai.assembly import ChatAssembly
from agentcore.providers.openai.endpoint import OpenAIEndpoint
from agentcore.providers.sdk_client import SDKClient

OFFICIAL_HOST = "api.openai.com"


class ChatClient(SDKClient):
    """Sends chat completions to one server."""

    def __init__(self, endpoint: OpenAIEndpoint) -> None:
        super().__init__(endpoint)
        self._sdk = _open_sdk(endpoint)

    async def close(self) -> None:
        """Close the connections."""
        await self._sdk.close()

    async def _send(self, request: ModelRequest, *, streams: bool) -> Any:
        is_official = self._sdk.base_url.host == OFFICIAL_HOST
        body = wire.request_body(request, max_tokens_name="max_completion_tokens" if is_official else "max_tokens")
        if streams:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        seconds = self._endpoint.seconds(request)
        return await self._sdk.chat.completions.with_raw_response.create(
            **body,
            extra_body=request.options or None,
            timeout=openai.Timeout(seconds, connect=self._endpoint.connect_seconds(request)),
        )

    def _translated(self) -> AbstractContextManager[None]:
        return errors.translated(secret=self._sdk.api_key)

    def _read_whole(self, data: Any) -> ModelReply:
        return wire.read_reply(data)

    async def _pieces(self, answer: Any) -> AsyncGenerator[object, None]:
        async with answer.parse(to=openai.AsyncStream[object]) as pieces:
            async for piece in pieces:
                yield piece

    def _assembly(self) -> ChatAssembly:
        return ChatAssembly()


def _open_sdk(endpoint: OpenAIEndpoint) -> openai.AsyncOpenAI:
    try:
        return openai.AsyncOpenAI(
            base_url=endpoint.base_url,
            api_key=endpoint.usable_key,
            organization=endpoint.organization,
            project=endpoint.project,
            default_headers=endpoint.default_headers,
            default_query=endpoint.default_query,
            max_retries=0,
        )
    except openai.OpenAIError as error:
        raise ConfigurationError(
            "An OpenAI provider has no API key: give its entry in AGENTCORE['PROVIDERS'] an 'api_key', "
            "or set the environment variable OPENAI_API_KEY."
        ) from error
