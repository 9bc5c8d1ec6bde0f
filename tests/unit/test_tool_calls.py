"""How a call of a tool is put together, and who says whether it needs an approval."""

import asyncio
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agentcore.exceptions import Conflict, ToolError
from agentcore.tools.context import ToolContext
from agentcore.tools.decorators import tool
from agentcore.tools.execution import build_call, needs_approval, run_tool
from agentcore.tools.results import to_json
from agentcore.tools.schema import InvalidArguments

SOON = 0.01
LONG = 30


class Shop:
    made = 0

    def __init__(self) -> None:
        type(self).made += 1

    @tool
    def lookup(self, q: str, ctx: ToolContext, limit: int = 3) -> list[Any]:
        return [q, limit, ctx.call_id, threading.current_thread() is threading.main_thread()]

    @tool
    async def ask(self, q: str, ctx: ToolContext) -> list[Any]:
        return [q, ctx.user, asyncio.get_running_loop().is_running()]

    @tool
    def count(self, n: int) -> Iterator[int]:
        yield from range(n)
        raise ToolError("no more")


def test_a_call_binds_a_new_instance_typed_arguments_and_the_context() -> None:
    ctx = ToolContext.for_testing(call_id="call-1")
    made = Shop.made
    call = build_call(Shop.lookup.definition, Shop, {"q": "x"}, ctx)
    assert Shop.made == made

    assert run_tool(call, timeout=LONG).value == ["x", 3, "call-1", False]
    assert Shop.made == made + 1


@pytest.mark.parametrize("in_caller", [False, True])
def test_an_async_call_may_ask_for_its_user(in_caller: bool) -> None:
    def find_user() -> str:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return "ann"

    ctx = ToolContext(execution_id="e", session_id="s", agent="a", call_id="c", find_user=find_user)
    call = build_call(Shop.ask.definition, Shop, {"q": "x"}, ctx)

    assert run_tool(call, timeout=LONG, in_caller=in_caller).value == ["x", "ann", True]


@pytest.mark.parametrize("in_caller", [False, True])
def test_a_plain_decorator_round_an_async_tool_does_not_matter(in_caller: bool) -> None:
    def logged(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @tool
    @logged
    async def ask(q: str, ctx: ToolContext) -> list[Any]:
        return [q, ctx.user]

    call = build_call(ask.definition, Shop, {"q": "x"}, ToolContext.for_testing(user="ann"))

    assert run_tool(call, timeout=LONG, in_caller=in_caller).value == ["x", "ann"]


def test_a_call_with_arguments_that_the_tool_no_longer_takes_does_not_run() -> None:
    with pytest.raises(InvalidArguments):
        build_call(Shop.lookup.definition, Shop, {"q": 5}, ToolContext.for_testing())


def test_what_a_generator_raises_is_the_tools_error() -> None:
    call = build_call(Shop.count.definition, Shop, {"n": 2}, ToolContext.for_testing())

    assert isinstance(run_tool(call, timeout=LONG, convert=to_json).error, ToolError)


def test_a_context_emits_nothing_after_the_call() -> None:
    sent: list[tuple[str, dict[str, Any]]] = []
    ctx = ToolContext(
        execution_id="e", session_id="s", agent="a", call_id="c", send=lambda type, data: sent.append((type, data))
    )
    run_tool(lambda: ctx.emit("shop.packed"), timeout=LONG)
    ctx.end()

    with pytest.raises(Conflict, match="Call c has ended"):
        ctx.emit("shop.packed")
    assert sent == [("shop.packed", {})]


def exits() -> None:
    raise SystemExit


def never(arguments: dict[str, Any], ctx: ToolContext) -> Any:
    raise ValueError("hunter2")


@pytest.mark.parametrize(
    ("rule", "needed"),
    [
        (True, True),
        (False, False),
        (lambda arguments, ctx: arguments["amount"] > 100, False),
        (lambda arguments, ctx: arguments["amount"] <= 100 and ctx.user == "ann", True),
        (lambda arguments, ctx: None, True),
        (lambda arguments, ctx: 0, True),
        (lambda arguments, ctx: exits(), True),
        (never, True),
    ],
)
@pytest.mark.parametrize("in_caller", [False, True])
def test_apr_39_a_rule_that_cannot_decide_asks_for_an_approval(rule: Any, needed: bool, in_caller: bool) -> None:
    @tool(requires_approval=rule)
    def pay(amount: int) -> None: ...

    ctx = ToolContext.for_testing(user="ann")

    assert needs_approval(pay.definition, {"amount": 10}, ctx, in_caller=in_caller) is needed


def test_apr_39_a_rule_that_takes_too_long_asks_for_an_approval(caplog: pytest.LogCaptureFixture) -> None:
    release = threading.Event()

    @tool(requires_approval=lambda arguments, ctx: not release.wait(LONG))
    def pay(amount: int) -> None: ...

    assert needs_approval(pay.definition, {"amount": 10}, ToolContext.for_testing(), timeout=SOON)
    assert "approval_rule_failed" in caplog.text
    release.set()
