"""Facts and entities of a turn: found after its end, by rules or by a call of a model that may fail."""

from __future__ import annotations

import pytest

from agentcore import runtime
from agentcore.events.kinds import EventType
from agentcore.exceptions import ProviderBadRequest
from agentcore.memory import Item
from agentcore.memory.extraction import entity
from agentcore.models import Memory, SessionEvent
from agentcore.states import TurnState
from agentcore.testing import ScriptedProvider, assert_invariants, calls, make_user
from agentcore.testing.agents import TESTING_AGENT

pytestmark = pytest.mark.django_db

NOTED = {
    "facts": ["The user's name is Ada.", "The user likes tea."],
    "entities": [{"name": "A-1007", "type": "order", "attributes": {"state": "late"}}],
}


@pytest.fixture
def by_model(settings):
    settings.AGENTCORE = {"MEMORY": {"extractor": "model"}}


def stored(kind):
    return list(Memory.objects.filter(kind=kind).order_by("pk").values_list("text", flat=True))


def last_told():
    return SessionEvent.objects.filter(type=EventType.MEMORY_UPDATED).order_by("sequence").last().data


def test_rules_find_facts_beside_the_words(scripted, settings):
    settings.AGENTCORE = {"MEMORY": {"extractor": "rules"}}
    scripted(["Hello."])
    runtime.execute(TESTING_AGENT, "My name is Ada. My order number is A-1007.", user=make_user())
    assert stored("fact") == ["The user's name is Ada.", "The user's order is A-1007."]
    assert stored("entity") == ["order A-1007"]
    assert len(stored("conversation")) == 2


def test_a_model_is_asked_once_after_the_answer_with_the_schema_as_its_only_tool(scripted, by_model):
    provider = scripted(["Hello.", calls(("remember", NOTED))])
    result = runtime.execute(TESTING_AGENT, "I am Ada and my order A-1007 is late.", user=make_user())
    assert (result.state, result.response) == (TurnState.COMPLETED, "Hello.")
    assert stored("fact") == NOTED["facts"]
    assert stored("entity") == ["order A-1007 (state: late)"]
    request = provider.requests[1]
    assert [spec.name for spec in request.tools] == ["remember"]
    assert "I am Ada" in request.messages[1].content
    # What it used is not the turn's.
    assert result.usage.input_tokens == 7
    assert_invariants()


def test_another_model_can_be_named_for_it(scripted, settings):
    settings.AGENTCORE = {"MEMORY": {"extractor": "model", "model": "small:one"}}
    provider = scripted(["Hello."])
    with ScriptedProvider([calls(("remember", NOTED))]).installed("small") as small:
        runtime.execute(TESTING_AGENT, "hello", user=make_user())
    assert (provider.call_count, small.call_count) == (1, 1)
    assert small.requests[0].model == "one"
    assert len(stored("fact")) == 2


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ("I noted it.", "ExtractionFailed"),
        (calls(("remember", {"facts": 3})), "ExtractionFailed"),
        (calls(("remember", "{broken")), "ExtractionFailed"),
        (ProviderBadRequest("no"), "ProviderBadRequest"),
        (RuntimeError("broken"), "RuntimeError"),
    ],
)
def test_a_model_that_fails_at_it_costs_the_facts_and_nothing_else(scripted, by_model, reply, kind):
    scripted(["Hello.", reply])
    result = runtime.execute(TESTING_AGENT, "hello", user=make_user())
    assert result.state == TurnState.COMPLETED
    assert last_told()["extraction_error"] == kind
    assert len(last_told()["stored"]) == 2
    assert stored("conversation") == ["hello", "Hello."]
    assert stored("fact") == []
    assert_invariants()


class OddExtractor:
    """Finds one fact among what no memory can hold."""

    def extract(self, said, *, ask):
        return [
            entity("x", "thing", {"note": "z" * 20_000}),
            Item(kind="fact", text="The user likes tea."),
            Item(kind="secret", text="x"),
            Item(kind="entity", text="thing y", data={"name": "y", "type": "thing", "attributes": [1]}),
            "no item at all",
        ]


@pytest.mark.parametrize("backend", ["buffer", "vector", "hybrid"])
def test_what_cannot_be_kept_costs_nothing_but_itself(scripted, settings, caplog, backend):
    settings.AGENTCORE = {"MEMORY_BACKEND": backend, "MEMORY": {"extractor": f"{__name__}.OddExtractor"}}
    scripted(["Hello."])
    runtime.execute(TESTING_AGENT, "hello", user=make_user())
    assert stored("conversation") == ["hello", "Hello."]
    assert stored("fact") == ["The user likes tea."]
    assert Memory.objects.count() == len(last_told()["stored"]) == 3
    assert "error" not in last_told()
    assert caplog.text.count("One thing of a turn cannot be remembered") == 4
    assert_invariants()


def test_a_thing_whose_row_is_odd_is_remembered_again(scripted, settings):
    settings.AGENTCORE = {"MEMORY": {"extractor": "rules"}}
    scripted(["ok", "ok"])
    user = make_user()
    runtime.execute(TESTING_AGENT, "my order is 77123", user=user)
    # As rows may be that were written before their attributes had to be an object.
    Memory.objects.filter(kind="entity").update(data={"name": "77123", "type": "order", "attributes": [1]})
    runtime.execute(TESTING_AGENT, "my order is 77123, again", user=user)
    assert "error" not in last_told()
    assert "my order is 77123, again" in stored("conversation")
    assert Memory.objects.get(kind="entity").data == {"name": "77123", "type": "order"}


def test_without_an_extractor_no_model_is_asked(scripted):
    provider = scripted(["Hello."])
    runtime.execute(TESTING_AGENT, "My name is Ada.", user=make_user())
    assert provider.call_count == 1
    assert stored("fact") == []
