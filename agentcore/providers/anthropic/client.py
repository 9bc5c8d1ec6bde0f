"""The messages API over Anthropic's SDK."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager
from typing import Any

import anthropic

from agentcore.exceptions import ConfigurationError
from agentcore.messages import ModelReply, ModelRequest
from agentcore.providers.anthropic import errors, wire
from agentcore.providers.anthropic.assembly import MessageAssembly
from agentcore.providers.anthropic.endpoint import AnthropicEndpoint
from agentcore.providers.sdk_client import SDKClient

NO_KEY = (
    "An Anthropic provider has no API key: give its entry in AGENTCORE['PROVIDERS'] an 'api_key', "
    "or set the environment variable ANTHROPIC_API_KEY."
)


class MessagesClient(SDKClient):
    """Sends messages to one server."""

    def __init__(self, endpoint: AnthropicEndpoint) -> None:
        super().__init__(endpoint)
        self._max_tokens = endpoint.max_tokens
        self._withheld = {name: anthropic.Omit() for name in endpoint.withheld_headers()}
        self._sdk = _open_sdk(endpoint)

    async def close(self) -> None:
        """Close the connections."""
        await self._sdk.close()

    async def _send(self, request: ModelRequest, *, streams: bool) -> Any:
        body = wire.request_body(request, max_tokens=self._max_tokens)
        seconds = self._endpoint.seconds(request)
        create: Any = self._sdk.messages.with_raw_response.create  # its overloads take no dict
        return await create(
            **body,
            **({"stream": True} if streams else {}),
            extra_body=wire.extra_body(request) or None,
            extra_headers=self._withheld,
            timeout=anthropic.Timeout(seconds, connect=self._endpoint.connect_seconds(request)),
        )

    def _translated(self) -> AbstractContextManager[None]:
        return errors.translated(secrets=[self._sdk.api_key, self._sdk.auth_token])

    def _read_whole(self, data: Any) -> ModelReply:
        return wire.read_reply(data)

    async def _pieces(self, answer: Any) -> AsyncGenerator[object, None]:
        async with await answer.parse(to=anthropic.AsyncStream[object]) as events:
            async for event in events:
                yield event

    def _assembly(self) -> MessageAssembly:
        return MessageAssembly()


def _open_sdk(endpoint: AnthropicEndpoint) -> anthropic.AsyncAnthropic:
    try:
        sdk = anthropic.AsyncAnthropic(
            base_url=endpoint.base_url,
            api_key=endpoint.usable_key,
            default_headers=endpoint.default_headers,
            default_query=endpoint.default_query,
            max_retries=0,
        )
    except anthropic.AnthropicError as error:
        raise ConfigurationError(NO_KEY) from error
    if sdk.api_key is None and sdk.auth_token is None and sdk.credentials is None:
        raise ConfigurationError(NO_KEY)
    return sdk
