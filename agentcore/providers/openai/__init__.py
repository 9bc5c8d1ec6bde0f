"""Models behind OpenAI's chat completions: OpenAI itself and every server that speaks its format."""

from __future__ import annotations

import importlib.util
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING

from agentcore.exceptions import ConfigurationError
from agentcore.messages import ModelDelta, ModelReply, ModelRequest
from agentcore.providers import structured
from agentcore.providers.connected import ConnectedProvider
from agentcore.providers.openai.endpoint import OpenAIEndpoint

if TYPE_CHECKING:
    from agentcore.providers.openai.client import ChatClient

TOOL_MODES = ("native", "json_schema")


class OpenAIProvider(ConnectedProvider):
    """Talks to one OpenAI-compatible server through the official SDK (extra `agentcore[openai]`).

    Without `base_url` that is OpenAI, with the key from `api_key` or the environment's OPENAI_API_KEY; the
    environment's key is never sent to another `base_url`. `timeout` bounds every request, in seconds, below
    what the request itself allows; `connect_timeout` bounds the wait for a connection. A request's
    `options` are added to its JSON body. With `tool_mode="json_schema"` the model asks for tools through the
    response format, for models that cannot call tools by themselves. Nothing is connected, nor the SDK
    imported, before the first request.
    """

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        organization: str | None = None,
        project: str | None = None,
        default_headers: Mapping[str, str] | None = None,
        default_query: Mapping[str, object] | None = None,
        timeout: float | None = None,
        connect_timeout: float = 5.0,
        tool_mode: str = "native",
    ) -> None:
        if tool_mode not in TOOL_MODES:
            allowed = ", ".join(repr(mode) for mode in TOOL_MODES)
            raise ConfigurationError(f"The OpenAI provider has no tool_mode {tool_mode!r}. Allowed: {allowed}.")
        if importlib.util.find_spec("openai") is None:
            raise ConfigurationError("The OpenAI provider needs the package openai: pip install 'agentcore[openai]'.")
        super().__init__()
        self._is_structured = tool_mode == "json_schema"
        self._endpoint = OpenAIEndpoint(
            base_url=base_url,
            api_key=api_key,
            organization=organization,
            project=project,
            default_headers=default_headers,
            default_query=default_query,
            timeout=timeout,
            connect_timeout=connect_timeout,
        )

    def complete(self, request: ModelRequest) -> ModelReply:
        """Return the model's whole answer, or raise ProviderTimeout when request.timeout seconds have passed."""
        if self._is_structured:
            return structured.complete(request, by=super().complete)
        return super().complete(request)

    def stream(self, request: ModelRequest) -> Generator[ModelDelta | ModelReply, None, None]:
        """Yield the text as the server sends it, then the whole answer, all within request.timeout seconds."""
        if self._is_structured:
            return structured.stream(request, by=super().stream)
        return super().stream(request)

    def _connect(self) -> ChatClient:
        from agentcore.providers.openai.client import ChatClient

        return ChatClient(self._endpoint)
