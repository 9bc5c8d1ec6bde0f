"""Where an OpenAI-compatible server is, and for whom it counts what is used."""

from __future__ import annotations

from dataclasses import dataclass

from agentcore.providers.endpoint import Endpoint


@dataclass(frozen=True, kw_only=True)
class OpenAIEndpoint(Endpoint):
    """One server, and the organization and project the caller belongs to."""

    organization: str | None = None
    project: str | None = None
