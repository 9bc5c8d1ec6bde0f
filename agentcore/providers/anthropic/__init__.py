"""Models behind Anthropic's messages API, and every server that speaks its format."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING

from agentcore.exceptions import ConfigurationError
from agentcore.providers.anthropic.endpoint import DEFAULT_MAX_TOKENS, AnthropicEndpoint
from agentcore.providers.connected import ConnectedProvider

if TYPE_CHECKING:
    from agentcore.providers.anthropic.client import MessagesClient


class AnthropicProvider(ConnectedProvider):
    """Talks to Anthropic, or a server like it, through the official SDK (extra `agentcore[anthropic]`).

    Without `base_url` that is Anthropic, with the key from `api_key` or what the SDK finds in the environment
    (ANTHROPIC_API_KEY); nothing of the environment is ever sent to another `base_url`. `max_tokens` bounds the
    answer of a request that names no bound itself: the API demands one. `timeout` bounds every request, in
    seconds, below what the request itself allows; `connect_timeout` bounds the wait for a connection. A
    request's `options` are added to its JSON body. Nothing is connected, nor the SDK imported, before the
    first request.
    """

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        default_headers: Mapping[str, str] | None = None,
        default_query: Mapping[str, object] | None = None,
        timeout: float | None = None,
        connect_timeout: float = 5.0,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        tool_mode: str = "native",
    ) -> None:
        if tool_mode != "native":
            raise ConfigurationError(f"The Anthropic provider has no tool_mode {tool_mode!r}. Allowed: 'native'.")
        if importlib.util.find_spec("anthropic") is None:
            raise ConfigurationError(
                "The Anthropic provider needs the package anthropic: pip install 'agentcore[anthropic]'."
            )
        super().__init__()
        self._endpoint = AnthropicEndpoint(
            base_url=base_url,
            api_key=api_key,
            default_headers=default_headers,
            default_query=default_query,
            timeout=timeout,
            connect_timeout=connect_timeout,
            max_tokens=max_tokens,
        )

    def _connect(self) -> MessagesClient:
        from agentcore.providers.anthropic.client import MessagesClient

        return MessagesClient(self._endpoint)
