"""The `@agent` decorator."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from agentcore import canonical
from agentcore.agents.definition import AgentDefinition
from agentcore.agents.registry import registry
from agentcore.conf import COUNT, FLAG, MODEL, SECONDS, Rule, optional
from agentcore.exceptions import ConfigurationError
from agentcore.tools.registry import tools_of

C = TypeVar("C", bound=type)

_NAME = re.compile(r"[a-z0-9_-]{1,64}")


def agent(
    name: str,
    *,
    description: str = "",
    system_prompt: str = "",
    model: str | None = None,
    driver: str = "model",
    max_steps: int | None = None,
    temperature: float | None = None,
    turn_timeout: float | None = None,
    enable_memory: bool = True,
    enable_rag: bool = False,
    rag_top_k: int = 5,
    tools: Iterable[Any] = (),
    permission: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Callable[[C], C]:
    """Make a class an agent: register it, and return it unchanged but for `__agentcore__`, its definition.

    None means the setting. `turn_timeout` is in seconds, `model` is 'provider:model', `tools` are functions with
    `@tool` besides the class's own methods. Raises ConfigurationError, which names the agent, what is wrong and
    what is allowed; two agents of one name are reported by the system check instead.
    """
    options = {
        "description": description,
        "system_prompt": system_prompt,
        "model": model,
        "driver": driver,
        "max_steps": max_steps,
        "temperature": temperature,
        "turn_timeout": turn_timeout,
        "enable_memory": enable_memory,
        "enable_rag": enable_rag,
        "rag_top_k": rag_top_k,
        "permission": permission,
        "metadata": {} if metadata is None else metadata,
    }
    _check_options(name, options)

    def decorate(agent_class: C) -> C:
        _check_class(name, agent_class)
        definition = AgentDefinition(
            name=name, agent_class=agent_class, tools=tools_of(agent_class, tools), **_as_stored(options)
        )
        agent_class.__agentcore__ = definition  # type: ignore[attr-defined]  # what the decorator adds
        registry.register(definition)
        return agent_class

    return decorate


def _check_options(name: Any, options: dict[str, Any]) -> None:
    is_name = isinstance(name, str) and bool(_NAME.fullmatch(name))
    _check(name, "name", name, is_name, "1 to 64 of a-z 0-9 - _, as in @agent('support-agent')")
    for option, value in options.items():
        is_allowed, allowed = _RULES[option]
        _check(name, option, value, is_allowed(value), allowed)


def _check_class(name: str, agent_class: Any) -> None:
    _check(name, "the decorated object", agent_class, inspect.isclass(agent_class), "a class")
    _check(name, "the class", agent_class, _takes_no_arguments(agent_class), "one made without arguments")


def _check(name: Any, option: str, value: Any, is_allowed: bool, allowed: str) -> None:
    if not is_allowed:
        raise ConfigurationError(f"Agent {name!r}: {option} is {value!r}; allowed: {allowed}.")


def _as_stored(options: dict[str, Any]) -> dict[str, Any]:
    # Prompts and metadata go into revisions: clean and detached from what the project may change later.
    return {option: canonical.clean(value) for option, value in options.items()}


def _takes_no_arguments(agent_class: type) -> bool:
    try:
        parameters = inspect.signature(agent_class).parameters.values()
    except (TypeError, ValueError):
        return True
    optional_kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(item.default is not item.empty or item.kind in optional_kinds for item in parameters)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_json_object(value: Any) -> bool:
    try:
        return isinstance(value, Mapping) and bool(canonical.dumps(value))
    except (TypeError, ValueError):
        return False


_TEXT: Rule = (lambda value: isinstance(value, str), "text")
_RULES: dict[str, Rule] = {
    "description": _TEXT,
    "system_prompt": _TEXT,
    "model": optional(MODEL),
    "driver": (_is_text, "the id of a driver"),
    "max_steps": optional(COUNT),
    "temperature": (lambda value: value is None or (_is_number(value) and value >= 0), "None or a number from 0"),
    "turn_timeout": optional(SECONDS),
    "enable_memory": FLAG,
    "enable_rag": FLAG,
    "rag_top_k": COUNT,
    "permission": (lambda value: value is None or _is_text(value), "None or 'app.codename'"),
    "metadata": (_is_json_object, "None or a dict that JSON can hold"),
}
