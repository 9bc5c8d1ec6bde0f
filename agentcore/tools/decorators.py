"""The `@tool` decorator, and the Tool that it puts in the function's place."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar, get_args, overload

from agentcore.conf import FLAG, MAX_COUNT, SECONDS, Rule, optional
from agentcore.exceptions import ConfigurationError
from agentcore.tools import definition as definitions
from agentcore.tools import signature
from agentcore.tools.definition import ApprovalPolicy, ApprovalRule, OnUnknown, ToolDefinition

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_RATE = re.compile(rf"[1-9][0-9]{{0,8}}/({'|'.join(definitions.RATE_PERIODS)})")


class Tool(Generic[P, R]):
    """A function that agents may call. It is called as before; `definition` says what a model is told of it."""

    def __init__(self, function: Callable[P, R], definition: ToolDefinition) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.definition = definition

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: type) -> Tool[P, R]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., R]: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> Callable[..., R]:
        if instance is None or not self.definition.is_method:
            return self
        return MethodType(self.function, instance)

    def __repr__(self) -> str:
        return f"<Tool {self.definition.name}>"

    def preview(self, function: F) -> F:
        """Decorate what the reviewer is shown beside the arguments.

        It takes any of the tool's arguments by name, and `ctx`, and returns text.
        """
        definitions.bind(self.definition, function)
        self.definition = replace(self.definition, preview=function)
        return self._instead_of(function)

    def verify(self, function: F) -> F:
        """Decorate what says, after a crash, whether the call happened: True, False, or None for unknown.

        It takes any of the tool's arguments by name, and `ctx`.
        """
        definitions.bind(self.definition, function)
        self.definition = replace(self.definition, verify=function)
        return self._instead_of(function)

    def links(self, function: F) -> F:
        """Decorate what names the rows a call is about: reviewers are led to them, and their history tells of it.

        It takes any of the tool's arguments by name, and `ctx`, and returns a model instance, several, or None.
        """
        definitions.bind(self.definition, function)
        self.definition = replace(self.definition, links=function)
        return self._instead_of(function)

    def _instead_of(self, function: F) -> F:
        # As with a property's setter: under the tool's own name it must not take the tool's place.
        if function.__name__ == self.function.__name__:
            return self  # type: ignore[return-value]  # the class body binds it to the tool's name
        return function


@overload
def tool(description: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    description: str | None = None,
    *,
    name: str | None = None,
    requires_approval: bool | ApprovalRule = False,
    timeout: float | None = None,
    retries: int = 0,
    idempotent: bool = False,
    sensitive: Iterable[str] = (),
    approval: ApprovalPolicy | None = None,
    version: str | None = None,
    on_unknown: OnUnknown = "ask",
    rate_limit: str | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    description: Any = None,
    *,
    name: str | None = None,
    requires_approval: bool | ApprovalRule = False,
    timeout: float | None = None,
    retries: int = 0,
    idempotent: bool = False,
    sensitive: Iterable[str] = (),
    approval: ApprovalPolicy | None = None,
    version: str | None = None,
    on_unknown: OnUnknown = "ask",
    rate_limit: str | None = None,
) -> Any:
    """Make a function or method a tool of agents, and leave it callable as before.

    Use it as `@tool`, `@tool("what it does")` or `@tool(description=…, requires_approval=True, …)`. Without a
    description the docstring is it. `timeout` is in seconds. Raises ConfigurationError, which names the tool,
    what is wrong and what is allowed.
    """
    options = {
        "requires_approval": requires_approval,
        "timeout": timeout,
        "retries": retries,
        "idempotent": idempotent,
        "approval": approval,
        "version": version,
        "on_unknown": on_unknown,
        "rate_limit": rate_limit,
    }

    def decorate(function: Any, text: str | None = description) -> Tool[..., Any]:
        return _make_tool(function, description=text, name=name, sensitive=sensitive, options=options)

    # Used as a bare `@tool`, the first argument is the function itself.
    is_bare = description is not None and not isinstance(description, str)
    return decorate(description, None) if is_bare else decorate


def _make_tool(
    function: Any,
    *,
    description: str | None,
    name: str | None,
    sensitive: Any,
    options: dict[str, Any],
) -> Tool[..., Any]:
    function = _plain_function(function)
    name = function.__name__ if name is None else name
    _check_options(name, options)
    read = signature.read(name, function)
    definition = ToolDefinition(
        name=name,
        description=(inspect.getdoc(function) or "") if description is None else description,
        parameters=read.parameters,
        function=function,
        arguments_model=read.arguments_model,
        is_method=read.is_method,
        context_parameter=read.context_parameter,
        sensitive=_sensitive_names(name, sensitive),
        **options,
    )
    _check_sensitive(definition)
    return Tool(function, definition)


def _plain_function(function: Any) -> Callable[..., Any]:
    function = function.__func__ if isinstance(function, staticmethod) else function
    if not inspect.isfunction(function):
        raise ConfigurationError(
            f"@tool: {function!r} is no function; allowed: functions, methods and static methods, sync or async, "
            "and a description as text."
        )
    if inspect.isasyncgenfunction(function):
        raise ConfigurationError(
            f"Tool {function.__name__!r}: it is an async generator; allowed: functions that return their result."
        )
    return function


def _check_options(name: Any, options: dict[str, Any]) -> None:
    is_name = isinstance(name, str) and bool(_NAME.fullmatch(name))
    _check(name, "name", name, is_name, "1 to 64 of a-z A-Z 0-9 _ -")
    for option, value in options.items():
        is_allowed, allowed = _RULES[option]
        _check(name, option, value, is_allowed(value), allowed)
    # A repeated call may do twice what it should do once.
    is_safe = options["idempotent"] or not options["retries"]
    _check(name, "retries", options["retries"], is_safe, "0 unless idempotent=True")


def _sensitive_names(name: str, sensitive: Any) -> tuple[str, ...]:
    is_listing = isinstance(sensitive, list | tuple | set | frozenset)
    _check(name, "sensitive", sensitive, is_listing, "a list of argument names")
    return tuple(sensitive)


def _check_sensitive(definition: ToolDefinition) -> None:
    known = definition.argument_names
    for item in definition.sensitive:
        _check(definition.name, "sensitive", item, item in known, f"argument names ({', '.join(known)})")


def _check(name: str, option: str, value: Any, is_allowed: bool, allowed: str) -> None:
    if not is_allowed:
        raise ConfigurationError(f"Tool {name!r}: {option} is {value!r}; allowed: {allowed}.")


def _is_rule(value: Any) -> bool:
    return isinstance(value, bool) or (callable(value) and not inspect.iscoroutinefunction(value))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT


def _is_rate_or_none(value: Any) -> bool:
    return value is None or (isinstance(value, str) and bool(_RATE.fullmatch(value)))


_RULES: dict[str, Rule] = {
    "requires_approval": (_is_rule, "True, False or a callable (arguments, ctx) -> bool that is not async"),
    "timeout": optional(SECONDS),
    "retries": (_is_count, f"a whole number of at least 0, at most {MAX_COUNT:,}"),
    "idempotent": FLAG,
    "approval": (lambda value: value is None or isinstance(value, ApprovalPolicy), "None or an ApprovalPolicy"),
    "version": (lambda value: value is None or isinstance(value, str), "None or text"),
    "on_unknown": (lambda value: value in get_args(OnUnknown), "'ask' or 'tell'"),
    "rate_limit": (
        _is_rate_or_none,
        "None or a number per second, minute, hour or day, of nine digits at most, like '5/hour'",
    ),
}
