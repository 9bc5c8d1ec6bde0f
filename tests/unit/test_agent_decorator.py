"""What `@agent` makes of a class, what a revision pins of it, and who holds which name."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import override_settings

from agentcore import canonical
from agentcore.agents.decorators import agent
from agentcore.agents.definition import AgentDefinition
from agentcore.agents.registry import AgentRegistry, definition_of, registry
from agentcore.exceptions import ConfigurationError, NotFound
from agentcore.tools.decorators import tool


@pytest.fixture(autouse=True)
def only_own_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_by_name", {})


def make(name: str = "shop", **options: Any) -> type:
    @agent(name, **options)
    class Shop:
        @tool
        def lookup(self, q: str) -> str:
            """Look it up."""
            return q

    return Shop


def test_the_class_comes_back_unchanged_and_registered() -> None:
    shop = make(system_prompt="Be kind.")

    assert shop().lookup("x") == "x"
    assert definition_of(shop) is registry.get("shop")
    assert registry.get("shop").agent_class is shop
    assert list(registry.get("shop").tools) == ["lookup"]


def test_functions_may_be_tools_besides_the_methods() -> None:
    @tool
    def add(a: int, b: int) -> int:
        return a + b

    assert list(definition_of(make(tools=[add])).tools) == ["lookup", "add"]


@override_settings(AGENTCORE={"DEFAULT_MODEL": "demo:x", "MAX_STEPS": 4, "TURN_TIMEOUT": 60})
def test_what_is_pinned_has_the_settings_for_what_was_left_open() -> None:
    definition = definition_of(make(description="A shop", metadata={"team": "a", "share": 1.0}, temperature=0.5))

    assert definition.resolved() == {
        "name": "shop",
        "description": "A shop",
        "system_prompt": "",
        "model": "demo:x",
        "driver": "model",
        "max_steps": 4,
        "temperature": 0.5,
        "turn_timeout": 60,
        "enable_memory": True,
        "enable_rag": False,
        "rag_top_k": 5,
        "metadata": {"team": "a", "share": 1},
        "tools": [definition.tools["lookup"].pinned()],
    }
    assert definition.definition_hash == canonical.digest(definition.resolved())


def test_the_hash_follows_the_settings() -> None:
    definition = definition_of(make())
    with override_settings(AGENTCORE={"MAX_STEPS": 3}):
        few = definition.definition_hash
    with override_settings(AGENTCORE={"MAX_STEPS": 30}):
        many = definition.definition_hash

    assert few != many


def test_a_permission_is_not_pinned() -> None:
    assert definition_of(make()).definition_hash == definition_of(make(permission="shop.use")).definition_hash


def test_prompts_are_clean_text_and_metadata_is_detached() -> None:
    metadata = {"a": [1]}
    definition = definition_of(make(system_prompt="a\x00", metadata=metadata))
    metadata["a"].append(2)

    assert definition.system_prompt == "a\ufffd"
    assert definition.metadata == {"a": [1]}


def mistake_of(function: Callable[[], Any]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        function()
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "Support Agent"}, "name is 'Support Agent'; allowed: 1 to 64 of a-z 0-9 - _"),
        ({"name": "x" * 65}, "allowed: 1 to 64"),
        ({"description": None}, "description is None; allowed: text"),
        ({"system_prompt": 5}, "system_prompt is 5; allowed: text"),
        ({"model": "gpt"}, "model is 'gpt'; allowed: None or 'provider:model'"),
        ({"model": "openai:"}, "allowed: None or 'provider:model'"),
        ({"driver": ""}, "driver is ''; allowed: the id of a driver"),
        ({"max_steps": 0}, "max_steps is 0; allowed: None or a whole number of at least 1"),
        ({"temperature": -1}, "temperature is -1; allowed: None or a number from 0"),
        ({"turn_timeout": 0}, "turn_timeout is 0; allowed: None or a number of seconds above 0, at most 1,000,000,000"),
        ({"turn_timeout": 1e12}, "turn_timeout is 1000000000000.0; allowed: None or a number of seconds above 0, at"),
        ({"turn_timeout": float("inf")}, "turn_timeout is inf; allowed: None or a number of seconds above 0, at most"),
        ({"max_steps": 2**31}, "max_steps is 2147483648; allowed: None or a whole number of at least 1, at most 2,147"),
        ({"enable_memory": None}, "enable_memory is None; allowed: True or False"),
        ({"enable_rag": 1}, "enable_rag is 1; allowed: True or False"),
        ({"rag_top_k": 0}, "rag_top_k is 0; allowed: a whole number of at least 1"),
        ({"permission": ""}, "permission is ''; allowed: None or 'app.codename'"),
        ({"metadata": {"a": object()}}, "allowed: None or a dict that JSON can hold"),
        ({"metadata": {"a": float("nan")}}, "allowed: None or a dict that JSON can hold"),
        ({"tools": [len]}, "is not a tool"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_allowed(options: dict[str, Any], words: str) -> None:
    assert words in mistake_of(lambda: make(**options))


def test_a_class_that_needs_arguments_is_a_mistake() -> None:
    class Needs:
        def __init__(self, client: object) -> None: ...

    assert "allowed: one made without arguments" in mistake_of(lambda: agent("needs")(Needs))


@pytest.mark.parametrize("decorated", [len, 5])
def test_only_classes_are_agents(decorated: Any) -> None:
    assert "allowed: a class" in mistake_of(lambda: agent("shop")(decorated))


def test_the_decorator_without_a_name_is_a_mistake() -> None:
    class Shop:
        pass

    assert "as in @agent('support-agent')" in mistake_of(lambda: agent(Shop))  # type: ignore[arg-type]


def test_an_unknown_agent_is_not_found() -> None:
    assert registry.find("nobody") is None
    with pytest.raises(NotFound, match="There is no agent named 'nobody'"):
        registry.get("nobody")


def test_agents_are_listed_by_name() -> None:
    make("b")
    make("a")

    assert registry.names() == ["a", "b"]
    assert [item.name for item in registry.all()] == ["a", "b"]
    registry.unregister("a")
    assert registry.names() == ["b"]


def test_two_classes_of_one_name_are_a_problem_and_the_first_stays() -> None:
    first = make()

    @agent("shop")
    class Other:
        pass

    assert registry.get("shop").agent_class is first
    assert len(registry.problems()) == 1
    assert "'shop': tests.unit.test_agent_decorator.make" in registry.problems()[0]
    assert "Other" in registry.problems()[0]


def test_the_same_class_again_takes_its_own_place() -> None:
    make()
    again = make(description="Reloaded")

    assert registry.get("shop").agent_class is again
    assert registry.problems() == []


def test_a_registry_of_ones_own_is_apart() -> None:
    own = AgentRegistry()
    own.register(AgentDefinition(name="shop", agent_class=object))

    assert own.names() == ["shop"]
    assert registry.names() == []


def test_a_subclass_of_an_agent_is_no_agent_by_itself() -> None:
    class Outlet(make()):  # type: ignore[misc]
        pass

    assert "Outlet is no agent" in mistake_of(lambda: definition_of(Outlet))
