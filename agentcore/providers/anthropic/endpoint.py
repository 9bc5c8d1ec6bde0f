"""Where an Anthropic server is, and how long its answers may be."""

from __future__ import annotations

import os
from dataclasses import dataclass

from agentcore.exceptions import ConfigurationError
from agentcore.providers.endpoint import Endpoint

DEFAULT_MAX_TOKENS = 8192


@dataclass(frozen=True, kw_only=True)
class AnthropicEndpoint(Endpoint):
    """One server, and the bound of an answer that its request does not bound."""

    max_tokens: int = DEFAULT_MAX_TOKENS

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.max_tokens) is not int or self.max_tokens < 1:
            raise ConfigurationError(
                f"A provider's max_tokens must be a whole number of at least 1, not {self.max_tokens!r}."
            )

    def withheld_headers(self) -> tuple[str, ...]:
        """Return the names of headers that the SDK would add from the environment and that must not be sent.

        They may hold credentials for Anthropic, or for a gateway in front of it.
        """
        if self.base_url is None:
            return ()
        given = {name.lower() for name in self.default_headers or ()}
        lines = os.environ.get("ANTHROPIC_CUSTOM_HEADERS", "").splitlines()
        found = (line.partition(":")[0].strip() for line in lines if ":" in line)
        return tuple(name for name in found if name.lower() not in given)
