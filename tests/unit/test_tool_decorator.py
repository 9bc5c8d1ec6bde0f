"""What `@tool` makes of a function, and which mistakes it names."""

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

import pytest

from agentcore.exceptions import ConfigurationError
from agentcore.messages import ToolSpec
from agentcore.tools import execution
from agentcore.tools.context import ToolContext
from agentcore.tools.decorators import Tool, tool
from agentcore.tools.definition import ApprovalPolicy
from agentcore.tools.registry import tools_of


class Shop:
    @tool(description="Look up an order", idempotent=True)
    def lookup_order(self, order_id: Annotated[str, "The order ID"]) -> dict[str, str]:
        return {"order": order_id}

    @tool(requires_approval=True)
    def process_refund(self, order_id: str, amount: int, ctx: ToolContext) -> str:
        """Refund an order."""
        return f"{order_id} {amount} {ctx.call_id}"

    @process_refund.preview
    def _(self, order_id: str, amount: int, ctx: ToolContext) -> str:
        return f"{type(self).__name__}: {amount} of {order_id} for {ctx.user}"

    @process_refund.verify
    def _(self, order_id: str) -> bool:
        return order_id == "a1"

    @tool
    @staticmethod
    def add(a: int, b: int = 1) -> int:
        return a + b

    @staticmethod
    @tool
    def subtract(a: int, b: int = 1) -> int:
        return a - b


def make(**options: Any) -> Tool[..., Any]:
    @tool(**options)
    def sample(card: str = "", amount: int = 1) -> None:
        """Do a sample."""

    return sample


def mistake_of(function: Callable[[], Any]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        function()
    return str(caught.value)


def test_a_method_stays_callable_as_a_method() -> None:
    assert Shop().lookup_order("a1") == {"order": "a1"}
    assert Shop.lookup_order(Shop(), "a1") == {"order": "a1"}
    assert Shop().process_refund("a1", 5, ctx=ToolContext.for_testing()) == "a1 5 test-call"


def test_static_methods_are_tools_in_either_order_of_decorators() -> None:
    assert (Shop().add(2), Shop.add(2), Shop().subtract(2)) == (3, 3, 1)
    assert {"add", "subtract"} <= tools_of(Shop).keys()


def test_a_function_stays_callable_and_keeps_its_name_and_docstring() -> None:
    @tool
    def lookup(q: str) -> str:
        """Look it up."""
        return q

    assert lookup("x") == "x"
    assert (lookup.__name__, lookup.__doc__) == ("lookup", "Look it up.")
    assert lookup.definition.spec() == ToolSpec(
        name="lookup",
        description="Look it up.",
        parameters={
            "type": "object",
            "properties": {"q": {"type": "string"}},
            "required": ["q"],
            "additionalProperties": False,
        },
    )


async def test_an_async_function_stays_awaitable() -> None:
    class Asker:
        @tool("Ask")
        async def ask(self, q: str) -> str:
            return q

    assert await Asker().ask("x") == "x"
    assert inspect.iscoroutinefunction(tools_of(Asker)["ask"].function)


def test_the_context_is_not_shown_to_the_model() -> None:
    definition = tools_of(Shop)["process_refund"]

    assert set(definition.parameters["properties"]) == {"order_id", "amount"}
    assert definition.context_parameter == "ctx"


def test_an_optional_context_is_a_context_too() -> None:
    @tool
    def lookup(q: str, context: ToolContext | None = None) -> str:
        return q

    assert lookup.definition.context_parameter == "context"
    assert lookup.definition.argument_names == ("q",)


def test_an_annotated_text_is_the_description_of_the_argument() -> None:
    parameters = Shop.lookup_order.definition.parameters

    assert parameters["properties"]["order_id"] == {"type": "string", "description": "The order ID"}


def test_names_that_pydantic_reserves_are_fine_for_parameters() -> None:
    @tool
    def odd(json: str, _private: int, model_dump: bool, title: str = "") -> None: ...

    assert list(odd.definition.parameters["properties"]) == ["json", "_private", "model_dump", "title"]


def test_preview_and_verify_may_both_be_called_underscore() -> None:
    definition = tools_of(Shop)["process_refund"]
    ctx = ToolContext.for_testing(user="ann")

    preview = execution.build_preview(definition, Shop, {"order_id": "a1", "amount": 5}, ctx)
    verify = execution.build_verify(definition, Shop, {"order_id": "a1", "amount": 5}, ctx)

    assert preview is not None
    assert verify is not None
    assert (preview(), verify()) == ("Shop: 5 of a1 for ann", True)
    assert list(tools_of(Shop)) == ["lookup_order", "process_refund", "add", "subtract"]


def test_a_preview_under_the_tools_own_name_does_not_take_its_place() -> None:
    class Agent:
        @tool
        def pay(self, amount: int) -> int:
            return amount

        @pay.preview
        def pay(self, amount: int) -> str:
            return f"pays {amount}"

    assert Agent().pay(5) == 5
    assert tools_of(Agent)["pay"].preview is not None


def test_a_preview_without_hints_takes_the_context_as_ctx() -> None:
    @tool
    def pay(amount: int) -> int:
        return amount

    @pay.preview
    def _(amount, ctx):  # type: ignore[no-untyped-def]
        return f"{amount} by {ctx.user}"

    preview = execution.build_preview(pay.definition, Shop, {"amount": 5}, ToolContext.for_testing(user="ann"))

    assert preview is not None
    assert preview() == "5 by ann"


def test_a_preview_that_asks_for_no_argument_of_the_tool_is_a_mistake() -> None:
    sample = make()

    def preview(total: int) -> str:
        return str(total)

    assert "'total'; allowed: card, amount, ctx" in mistake_of(lambda: sample.preview(preview))


def test_the_fingerprint_changes_with_what_a_reader_sees_only() -> None:
    plain = make().definition.fingerprint

    assert make(timeout=5, retries=1, idempotent=True, requires_approval=True).definition.fingerprint == plain
    assert make(version="2").definition.fingerprint != plain
    assert make(description="Other").definition.fingerprint != plain
    assert make(name="other").definition.fingerprint != plain


def test_apr_35_a_changed_schema_changes_the_fingerprint() -> None:
    @tool(name="pay", description="Pay")
    def before(amount: int, to: str) -> None: ...

    @tool(name="pay", description="Pay")
    def after(amount: int, to: str, currency: str) -> None: ...

    assert before.definition.fingerprint != after.definition.fingerprint


@pytest.mark.parametrize(("given", "pinned"), [(True, True), (False, False), (lambda arguments, ctx: True, "rule")])
def test_a_revision_pins_whether_calls_need_approval(given: Any, pinned: object) -> None:
    definition = make(requires_approval=given, version="2").definition

    assert definition.pinned() == {
        "name": "sample",
        "description": "Do a sample.",
        "schema": definition.parameters,
        "version": "2",
        "requires_approval": pinned,
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "two words"}, "name is 'two words'; allowed: 1 to 64 of a-z A-Z 0-9 _ -"),
        ({"name": "x" * 65}, "allowed: 1 to 64"),
        ({"name": ""}, "allowed: 1 to 64"),
        ({"requires_approval": "yes"}, "requires_approval is 'yes'; allowed: True, False or a callable"),
        ({"timeout": 0}, "timeout is 0; allowed: None or a number of seconds above 0"),
        ({"timeout": 1e12}, "timeout is 1000000000000.0; allowed: None or a number of seconds above 0, at most 1,000"),
        ({"retries": -1}, "retries is -1; allowed: a whole number of at least 0"),
        ({"retries": 10**10, "idempotent": True}, "allowed: a whole number of at least 0, at most 2,147,483,647"),
        ({"retries": 2}, "retries is 2; allowed: 0 unless idempotent=True"),
        ({"idempotent": "no"}, "idempotent is 'no'; allowed: True or False"),
        ({"sensitive": "card"}, "sensitive is 'card'; allowed: a list of argument names"),
        ({"sensitive": ["pin"]}, "sensitive is 'pin'; allowed: argument names (card, amount)"),
        ({"approval": {}}, "approval is {}; allowed: None or an ApprovalPolicy"),
        ({"version": 2}, "version is 2; allowed: None or text"),
        ({"on_unknown": "guess"}, "on_unknown is 'guess'; allowed: 'ask' or 'tell'"),
        ({"rate_limit": "5/week"}, "rate_limit is '5/week'; allowed: None or a number per second, minute, hour or day"),
        ({"rate_limit": "0/hour"}, "rate_limit is '0/hour'"),
        (
            {"rate_limit": "1000000000/hour"},
            "of nine digits at most, like '5/hour'",
        ),
    ],
)
def test_a_wrong_option_is_named_with_what_is_allowed(options: dict[str, Any], words: str) -> None:
    message = mistake_of(lambda: make(**options))

    assert message.startswith("Tool ")
    assert words in message


def no_hint(a):  # type: ignore[no-untyped-def]
    pass


def any_number(*values: int) -> None: ...


def any_keyword(**values: int) -> None: ...


def positional_only(a: int, /) -> None: ...


def mutable_default(a: list[int] = []) -> None: ...  # noqa: B006


def unfit_default(a: str = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013


def no_schema(a: Callable[[], int]) -> None: ...


def arbitrary_class(a: Shop) -> None: ...


def unknown_name(a: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821


def two_contexts(a: ToolContext, b: ToolContext) -> None: ...


async def streams(a: int) -> Any:
    yield a


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (no_hint, "the parameter 'a' has no type hint; allowed: a type with a JSON Schema, or ToolContext"),
        (any_number, "'any_number': the parameter *values: int takes any number of values; allowed: named"),
        (any_keyword, "takes any number of values"),
        (positional_only, "is positional-only"),
        (mutable_default, "the default of 'a' is mutable ([])"),
        (unfit_default, "the default of 'a' (None) does not fit its type"),
        (no_schema, "its arguments have no JSON Schema"),
        (arbitrary_class, "its arguments have no JSON Schema"),
        (unknown_name, "a type hint cannot be read (name 'Nowhere' is not defined)"),
        (two_contexts, "a and b are both typed ToolContext"),
        (streams, "it is an async generator"),
        (Shop, "is no function"),
    ],
)
def test_a_signature_that_no_model_can_fill_is_a_mistake(function: Any, words: str) -> None:
    assert words in mistake_of(lambda: tool(function))


@pytest.mark.parametrize(("text", "rate"), [(None, None), ("5/hour", (5, 3600)), ("100/day", (100, 86_400))])
def test_a_rate_limit_is_calls_and_seconds(text: str | None, rate: tuple[int, int] | None) -> None:
    assert make(rate_limit=text).definition.rate == rate


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"permission": ""}, "permission is ''; allowed: None or 'app.codename'"),
        ({"votes": 0}, "votes is 0; allowed: a whole number of at least 1"),
        ({"votes": True}, "votes is True"),
        ({"four_eyes": None}, "four_eyes is None; allowed: True or False"),
        ({"expires_in": 60}, "expires_in is 60; allowed: None or a timedelta above 0"),
        ({"expires_in": timedelta(0)}, "expires_in is"),
        ({"on_expiry": "approve"}, "on_expiry is 'approve'; allowed: 'reject' or 'fail'"),
        ({"allow_edit": 1}, "allow_edit is 1; allowed: True or False"),
    ],
)
def test_a_wrong_policy_is_named_with_what_is_allowed(options: dict[str, Any], words: str) -> None:
    assert words in mistake_of(lambda: ApprovalPolicy(**options))


def test_a_policy_may_never_expire() -> None:
    assert ApprovalPolicy(expires_in=timedelta.max).expires_in == timedelta.max


def test_tools_of_a_subclass_are_the_inherited_ones_first() -> None:
    class Outlet(Shop):
        @tool
        def close(self) -> None: ...

        @tool(description="Look up an order in the outlet")
        def lookup_order(self, order_id: str) -> None: ...

    assert list(tools_of(Outlet)) == ["lookup_order", "process_refund", "add", "subtract", "close"]
    assert tools_of(Outlet)["lookup_order"].description == "Look up an order in the outlet"
    assert tools_of(Shop)["lookup_order"].description == "Look up an order"


def test_an_override_without_the_decorator_is_a_tool_no_more() -> None:
    class Outlet(Shop):
        def lookup_order(self, order_id: str) -> dict[str, str]:
            return {}

    assert "lookup_order" not in tools_of(Outlet)


def test_names_of_tools_differ_in_more_than_case() -> None:
    class Agent:
        @tool
        def pay(self) -> None: ...

        @tool(name="PAY")
        def pay_again(self) -> None: ...

    assert "two tools named 'pay' and 'PAY'" in mistake_of(lambda: tools_of(Agent))


def test_functions_come_after_the_methods() -> None:
    extra = make()

    assert list(tools_of(Shop, [extra, extra]))[-1] == "sample"


@pytest.mark.parametrize(
    ("extra", "words"), [(len, "is not a tool"), (Shop.lookup_order, "is a method of another class")]
)
def test_an_extra_tool_that_is_no_function_tool_is_a_mistake(extra: Any, words: str) -> None:
    class Agent:
        pass

    assert words in mistake_of(lambda: tools_of(Agent, [extra]))


def test_a_context_for_testing_keeps_what_is_emitted() -> None:
    ctx = ToolContext.for_testing(user="ann", cancelled=True, metadata={"a": [1]}, approved_by=["bob"])
    ctx.metadata["a"].append(2)
    ctx.emit("shop.packed", {"boxes": 2})

    assert (ctx.user, ctx.cancelled, ctx.metadata, ctx.approved_by) == ("ann", True, {"a": [1]}, ("bob",))
    assert ctx.emitted == [("shop.packed", {"boxes": 2})]


def test_a_context_asks_for_its_user_once_and_only_when_needed() -> None:
    asked: list[str] = []
    ctx = ToolContext(
        execution_id="e", session_id="s", agent="a", call_id="c", find_user=lambda: asked.append("user") or "ann"
    )

    assert asked == []
    assert (ctx.user, ctx.user, asked) == ("ann", "ann", ["user"])
