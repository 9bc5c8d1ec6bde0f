"""Run a tool's code so that nothing it does, or fails to do, takes the worker with it.

Each call has a daemon thread of its own, with copied context variables and its own database connections; an async
function has its own event loop there.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

from agentcore.tools import results, savepoints, schema, threads
from agentcore.tools.context import ToolContext
from agentcore.tools.definition import ToolDefinition, bind
from agentcore.tools.threads import Bell, Outcome, abandoned_threads, has_room

__all__ = [
    "Bell",
    "Outcome",
    "abandoned_threads",
    "build_call",
    "build_links",
    "build_preview",
    "build_verify",
    "has_room",
    "needs_approval",
    "run_tool",
]

RULE_SECONDS = 5.0

logger = logging.getLogger("agentcore.tools")


def run_tool(
    function: Callable[[], Any],
    *,
    timeout: float | None,
    convert: Callable[[Any], Any] | None = None,
    on_late: Callable[[Outcome], None] | None = None,
    bell: Bell | None = None,
    in_caller: bool = False,
) -> Outcome:
    """Run a sync or async function without arguments, for at most `timeout` seconds, and tell how it ended.

    `convert` (results.to_json, for a tool) is applied to the value in the same thread and time. `on_late` is
    called from the abandoned thread. `bell` lets any thread call this one while it waits.
    With `in_caller` the function runs in the calling thread, without a limit and without a bell: inside Django's
    TestCase another thread would not see the test's rows.
    """
    if in_caller:
        with savepoints.around_tool():
            return threads.attempt(function, threads.run_in_callers_thread, convert)
    return threads.ThreadedCall(function, convert=convert, on_late=on_late, bell=bell).wait(timeout)


def build_call(
    definition: ToolDefinition, agent_class: type, arguments: dict[str, Any], ctx: ToolContext
) -> Callable[[], Any]:
    """Return the call of the tool with its stored arguments, as a function for `run_tool`.

    Raises InvalidArguments when the tool no longer takes these arguments; nothing of it has run then.
    """
    return _bound(definition, definition.function, agent_class, arguments, ctx)


def build_preview(
    definition: ToolDefinition, agent_class: type, arguments: dict[str, Any], ctx: ToolContext
) -> Callable[[], Any] | None:
    """Return the call of the tool's preview, or None when it has none."""
    return definition.preview and _bound(definition, definition.preview, agent_class, arguments, ctx)


def build_verify(
    definition: ToolDefinition, agent_class: type, arguments: dict[str, Any], ctx: ToolContext
) -> Callable[[], Any] | None:
    """Return the call that says whether the tool's call happened, or None when the tool has no such function."""
    return definition.verify and _bound(definition, definition.verify, agent_class, arguments, ctx)


def build_links(
    definition: ToolDefinition, agent_class: type, arguments: dict[str, Any], ctx: ToolContext
) -> Callable[[], Any] | None:
    """Return the call that names the rows a call is about, or None when the tool has no such function."""
    return definition.links and _bound(definition, definition.links, agent_class, arguments, ctx)


def needs_approval(
    definition: ToolDefinition,
    arguments: dict[str, Any],
    ctx: ToolContext,
    *,
    timeout: float = RULE_SECONDS,
    in_caller: bool = False,
) -> bool:
    """Say whether the deployed definition asks for an approval of a call with these stored arguments.

    A rule that raises, takes too long or answers with anything but a bool asks for one; the log has the error.
    """
    rule = definition.requires_approval
    if isinstance(rule, bool):
        return rule
    outcome = run_tool(
        lambda: rule(schema.python_arguments(definition, arguments), ctx), timeout=timeout, in_caller=in_caller
    )
    if isinstance(outcome.value, bool):
        return outcome.value
    logger.error(
        "approval_rule_failed", extra={"tool": definition.name, "outcome": outcome.kind}, exc_info=outcome.error
    )
    return True


def _bound(
    definition: ToolDefinition,
    function: Callable[..., Any],
    agent_class: type,
    arguments: dict[str, Any],
    ctx: ToolContext,
) -> Callable[[], Any]:
    binding = bind(definition, function)
    typed = schema.python_arguments(definition, arguments)
    keywords = {name: typed[name] for name in binding.names}
    if binding.context_parameter is not None:
        keywords[binding.context_parameter] = ctx

    is_async = inspect.iscoroutinefunction(inspect.unwrap(function))

    def call() -> Any:
        if is_async and binding.context_parameter is not None:
            # The ORM refuses to work inside the event loop, where the tool will ask for its user.
            _ = ctx.user
        instance = (agent_class(),) if binding.takes_instance else ()
        value = function(*instance, **keywords)
        # A generator's body is the tool: run it here, where its errors are the tool's errors.
        return results.first_items(value) if inspect.isgeneratorfunction(function) else value

    return call
