"""What a tool is: its definition, the policy of its approvals, and what a revision pins of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any, Literal, get_args

from pydantic import BaseModel

from agentcore import canonical
from agentcore.exceptions import ConfigurationError
from agentcore.messages import ToolSpec

OnExpiry = Literal["reject", "fail"]
OnUnknown = Literal["ask", "tell"]

# A rule is given the validated arguments as the tool gets them, and the call's ToolContext.
ApprovalRule = Callable[[dict[str, Any], Any], bool]

RATE_PERIODS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}


@dataclass(frozen=True, kw_only=True)
class ApprovalPolicy:
    """Who decides on a call, how many of them, and for how long the question stays open.

    `permission` is asked for besides `decide_toolapproval`. `expires_in` None means the setting
    APPROVAL_TTL, `timedelta.max` never. Raises ConfigurationError for a value that is not allowed.
    """

    permission: str | None = None
    votes: int = 1
    four_eyes: bool = True
    expires_in: timedelta | None = None
    on_expiry: OnExpiry = "reject"
    allow_edit: bool = True

    def __post_init__(self) -> None:
        _check("permission", self.permission, _is_name_or_none(self.permission), "None or 'app.codename'")
        _check("votes", self.votes, _is_count(self.votes), "a whole number of at least 1")
        _check("four_eyes", self.four_eyes, isinstance(self.four_eyes, bool), "True or False")
        _check("expires_in", self.expires_in, _is_span_or_none(self.expires_in), "None or a timedelta above 0")
        _check("on_expiry", self.on_expiry, self.on_expiry in get_args(OnExpiry), "'reject' or 'fail'")
        _check("allow_edit", self.allow_edit, isinstance(self.allow_edit, bool), "True or False")


@dataclass(frozen=True, kw_only=True, eq=False)
class ToolDefinition:
    """A tool as its decorator describes it; made by `agentcore.tool`.

    `parameters` is the JSON Schema the model is shown; `arguments_model` the pydantic model behind it, whose
    fields bear the parameters' names as aliases. `timeout` is in seconds, None for the setting TOOL_TIMEOUT.
    `context_parameter` names the parameter that takes the ToolContext, if there is one. A call of a tool that
    `asks_user` is not run: its one argument is put to the user, whose answer is the call's result.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    function: Callable[..., Any]
    arguments_model: type[BaseModel]
    is_method: bool = False
    context_parameter: str | None = None
    requires_approval: bool | ApprovalRule = False
    timeout: float | None = None
    retries: int = 0
    idempotent: bool = False
    sensitive: tuple[str, ...] = ()
    approval: ApprovalPolicy | None = None
    version: str | None = None
    on_unknown: OnUnknown = "ask"
    rate_limit: str | None = None
    preview: Callable[..., Any] | None = None
    verify: Callable[..., Any] | None = None
    links: Callable[..., Any] | None = None
    asks_user: bool = False

    @cached_property
    def fingerprint(self) -> str:
        """Return the digest of what the tool means to a reader; an approval is stale once it differs."""
        return canonical.digest(
            {
                "name": self.name,
                "description": self.description,
                "parameters": self.parameters,
                "version": self.version,
            }
        )

    @property
    def requires_approval_pinned(self) -> bool | Literal["rule"]:
        """Return whether calls need an approval: True, False, or "rule" when a callable decides each time."""
        return self.requires_approval if isinstance(self.requires_approval, bool) else "rule"

    @property
    def argument_names(self) -> tuple[str, ...]:
        """Return the names of the arguments a model may give, in the order of the signature."""
        return tuple(field.alias or name for name, field in self.arguments_model.model_fields.items())

    @property
    def rate(self) -> tuple[int, int] | None:
        """Return `rate_limit` as (calls, seconds), or None when there is no limit."""
        if self.rate_limit is None:
            return None
        calls, period = self.rate_limit.split("/")
        return int(calls), RATE_PERIODS[period]

    def spec(self) -> ToolSpec:
        """Return the tool as a model is shown it."""
        return ToolSpec(name=self.name, description=self.description, parameters=self.parameters)

    def pinned(self) -> dict[str, Any]:
        """Return the part of the definition that a revision keeps."""
        return {
            "name": self.name,
            "description": self.description,
            "schema": self.parameters,
            "version": self.version,
            "requires_approval": self.requires_approval_pinned,
        }


@dataclass(frozen=True, kw_only=True)
class Binding:
    """How a function of a tool is called: with an instance or without, with which names, with which context."""

    takes_instance: bool
    names: tuple[str, ...]
    context_parameter: str | None


def bind(definition: ToolDefinition, function: Callable[..., Any]) -> Binding:
    """Return how the tool's function, its preview or its verify is called: by the names it lists.

    A preview may list only the arguments it wants. `ctx`, the tool's own name for the context, and a
    parameter typed ToolContext take the context. Raises ConfigurationError for a name that is no argument.
    """
    parameters = list(inspect.signature(function).parameters.values())
    known = definition.argument_names
    context_parameter = next((item.name for item in parameters if _takes_context(definition, item)), None)
    takes_instance = bool(definition.is_method and parameters and parameters[0].name not in (*known, context_parameter))
    names = [item for item in parameters[takes_instance:] if item.name != context_parameter]
    for item in names:
        if item.name not in known and item.default is item.empty:
            raise ConfigurationError(
                f"Tool {definition.name!r}: {function.__qualname__} has a parameter {item.name!r}; "
                f"allowed: {', '.join([*known, 'ctx'])}."
            )
    return Binding(
        takes_instance=takes_instance,
        names=tuple(item.name for item in names if item.name in known),
        context_parameter=context_parameter,
    )


def _takes_context(definition: ToolDefinition, parameter: inspect.Parameter) -> bool:
    if parameter.name in definition.argument_names:
        return False
    hint = getattr(parameter.annotation, "__name__", parameter.annotation)
    return parameter.name in ("ctx", definition.context_parameter) or hint == "ToolContext"


def _check(field: str, value: Any, is_allowed: bool, allowed: str) -> None:
    if not is_allowed:
        raise ConfigurationError(f"ApprovalPolicy: {field} is {value!r}; allowed: {allowed}.")


def _is_name_or_none(value: Any) -> bool:
    return value is None or (isinstance(value, str) and bool(value))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_span_or_none(value: Any) -> bool:
    return value is None or (isinstance(value, timedelta) and value > timedelta(0))
