"""Which agents there are: the process-wide registry that `@agent` fills."""

from __future__ import annotations

from agentcore.agents.definition import AgentDefinition
from agentcore.exceptions import ConfigurationError, NotFound


class AgentRegistry:
    """Agents by name. The first class that takes a name keeps it; another one is a problem for the system check."""

    def __init__(self) -> None:
        self._by_name: dict[str, dict[str, AgentDefinition]] = {}

    def register(self, definition: AgentDefinition) -> None:
        """Add an agent; the same class again, as after a reload, takes its own place."""
        self._by_name.setdefault(definition.name, {})[_path(definition)] = definition

    def unregister(self, name: str) -> None:
        """Forget the agent of that name, if there is one."""
        self._by_name.pop(name, None)

    def get(self, name: str) -> AgentDefinition:
        """Return the agent of that name; raise NotFound if there is none."""
        found = self.find(name)
        if found is None:
            raise NotFound(f"There is no agent named {name!r}.", agent=name)
        return found

    def find(self, name: str) -> AgentDefinition | None:
        """Return the agent of that name, or None."""
        return next(iter(self._by_name.get(name, {}).values()), None)

    def names(self) -> list[str]:
        """Return the names of all agents, sorted."""
        return sorted(self._by_name)

    def all(self) -> list[AgentDefinition]:
        """Return all agents, sorted by name."""
        return [self.get(name) for name in self.names()]

    def problems(self) -> list[str]:
        """Return one sentence for each name that several classes took."""
        return [
            f"Several classes define an agent named {name!r}: {', '.join(found)}. Names of agents must be unique."
            for name, found in sorted(self._by_name.items())
            if len(found) > 1
        ]


registry = AgentRegistry()


def definition_of(agent_class: type) -> AgentDefinition:
    """Return what `@agent` said about a class; raise ConfigurationError if it is not decorated itself."""
    found = vars(agent_class).get("__agentcore__")
    if not isinstance(found, AgentDefinition):
        raise ConfigurationError(
            f"{agent_class.__qualname__} is no agent; allowed: classes decorated with @agent(...)."
        )
    return found


def _path(definition: AgentDefinition) -> str:
    return f"{definition.agent_class.__module__}.{definition.agent_class.__qualname__}"
