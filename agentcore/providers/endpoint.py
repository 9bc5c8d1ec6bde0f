"""Where a model API is, what it is told about the caller, and how long it may take."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from agentcore.exceptions import ConfigurationError
from agentcore.messages import ModelRequest


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One server; None leaves a value to the SDK, which looks into the environment. Times are in seconds."""

    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    default_headers: Mapping[str, str] | None = field(default=None, repr=False)
    default_query: Mapping[str, object] | None = field(default=None, repr=False)
    timeout: float | None = None
    connect_timeout: float = 5.0

    def __post_init__(self) -> None:
        for name, seconds in (("timeout", self.timeout), ("connect_timeout", self.connect_timeout)):
            if seconds is None and name == "timeout":
                continue
            if type(seconds) not in (int, float) or not 0 < float(seconds or 0) < math.inf:
                raise ConfigurationError(f"A provider's {name} must be seconds, a number above 0, not {seconds!r}.")

    @property
    def usable_key(self) -> str | None:
        """Return the key to send, None to let the SDK find one."""
        # The key in the environment is for the API's own maker: another server must never be sent it.
        if self.api_key is None and self.base_url is not None:
            return "none"
        return self.api_key

    def seconds(self, request: ModelRequest) -> float:
        """Return how long `request` may take: what it allows itself, or less."""
        return request.timeout if self.timeout is None else min(request.timeout, self.timeout)

    def connect_seconds(self, request: ModelRequest) -> float:
        """Return how long the connection for `request` may take to be made."""
        return min(self.seconds(request), self.connect_timeout)
