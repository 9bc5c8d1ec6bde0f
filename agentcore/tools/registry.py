"""Find the tools of an agent class."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Any

from agentcore.exceptions import ConfigurationError
from agentcore.tools.decorators import Tool
from agentcore.tools.definition import ToolDefinition


def tools_of(agent_class: type, extra_tools: Iterable[Any] = ()) -> dict[str, ToolDefinition]:
    """Return the tools of a class by name: inherited ones first, then its own, then `extra_tools`.

    An attribute that a subclass overrides without `@tool` is a tool no more. Raises ConfigurationError when two
    tools have names that differ in case only, or when an extra tool is not a function with `@tool`.
    """
    extra = [_extra_tool(agent_class, item) for item in extra_tools]
    found: dict[str, Tool[..., Any]] = {}
    for item in (*_tools_in_class(agent_class), *extra):
        name = item.definition.name
        twin = found.setdefault(name.lower(), item)
        if twin is not item:
            raise ConfigurationError(
                f"{agent_class.__name__} has two tools named {twin.definition.name!r} and {name!r}; "
                "the names of an agent's tools must differ in more than case."
            )
    return {item.definition.name: item.definition for item in found.values()}


def _tools_in_class(agent_class: type) -> Iterator[Tool[..., Any]]:
    names = dict.fromkeys(name for base in reversed(agent_class.__mro__) for name in vars(base))
    for name in names:
        attribute = inspect.getattr_static(agent_class, name)
        if isinstance(attribute, staticmethod):
            attribute = attribute.__func__
        if isinstance(attribute, Tool):
            yield attribute


def _extra_tool(agent_class: type, item: Any) -> Tool[..., Any]:
    if not isinstance(item, Tool):
        raise ConfigurationError(
            f"{agent_class.__name__}: {item!r} in tools is not a tool; allowed: functions decorated with @tool."
        )
    if item.definition.is_method:
        raise ConfigurationError(
            f"{agent_class.__name__}: the tool {item.definition.name!r} in tools is a method of another class; "
            "allowed: functions decorated with @tool."
        )
    return item
