"""What an agent is: everything its decorator says, and the part of it that a revision pins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentcore import canonical
from agentcore.conf import settings
from agentcore.tools.definition import ToolDefinition


@dataclass(frozen=True, kw_only=True, eq=False)
class AgentDefinition:
    """An agent as its decorator describes it; made by `agentcore.agent`.

    None for `model`, `max_steps` and `turn_timeout` (seconds) means the setting, read when it is asked for; None
    for `temperature` leaves it to the provider.
    """

    name: str
    agent_class: type
    description: str = ""
    system_prompt: str = ""
    model: str | None = None
    driver: str = "model"
    max_steps: int | None = None
    temperature: float | None = None
    turn_timeout: float | None = None
    enable_memory: bool = True
    enable_rag: bool = False
    rag_top_k: int = 5
    permission: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tools: Mapping[str, ToolDefinition] = field(default_factory=dict)

    def resolved(self) -> dict[str, Any]:
        """Return what a revision pins, as plain JSON, with today's settings for what the agent leaves open."""
        result: dict[str, Any] = canonical.normalise(
            {
                "name": self.name,
                "description": self.description,
                "system_prompt": self.system_prompt,
                "model": settings.DEFAULT_MODEL if self.model is None else self.model,
                "driver": self.driver,
                "max_steps": settings.MAX_STEPS if self.max_steps is None else self.max_steps,
                "temperature": self.temperature,
                "turn_timeout": settings.TURN_TIMEOUT if self.turn_timeout is None else self.turn_timeout,
                "enable_memory": self.enable_memory,
                "enable_rag": self.enable_rag,
                "rag_top_k": self.rag_top_k,
                "metadata": self.metadata,
                "tools": [tool.pinned() for tool in self.tools.values()],
            }
        )
        return result

    @property
    def definition_hash(self) -> str:
        """Return the digest of `resolved()`: what a revision is recognised by."""
        return canonical.digest(self.resolved())
