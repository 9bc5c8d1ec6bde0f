"""The settings of memory: what is allowed, and that anything else is named by the system check."""

from datetime import timedelta

import pytest

from agentcore import conf
from agentcore.checks import check_settings
from agentcore.memory import current
from agentcore.memory.base import Recalled
from agentcore.memory.buffer import BufferMemory
from agentcore.memory.hybrid import HybridMemory, merged
from agentcore.models import MemoryKind


class NeedsArguments(BufferMemory):
    def __init__(self, place):
        self.place = place


class Halfway:
    def recall(self):
        pass


def problems(settings, **given):
    settings.AGENTCORE = given
    return [str(problem.msg) for problem in check_settings()]


@pytest.mark.parametrize("name", ["buffer", "vector", "hybrid", "agentcore.memory.buffer.BufferMemory"])
def test_a_backend_is_one_of_ours_or_a_dotted_path(settings, name):
    assert problems(settings, MEMORY_BACKEND=name) == []


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("vectors", "AGENTCORE['MEMORY_BACKEND'] is 'vectors'. Allowed: 'buffer', 'vector', 'hybrid' or the dotted"),
        ("nowhere.at.All", "cannot be imported"),
        (f"{__name__}.NeedsArguments", "cannot be made without arguments"),
        (f"{__name__}.Halfway", "has no remember, renew, forget()"),
    ],
)
def test_a_backend_that_is_none_is_named_by_the_check(settings, name, problem):
    [found] = problems(settings, MEMORY_BACKEND=name)
    assert problem in found


@pytest.mark.parametrize("name", [None, "rules", "model", "agentcore.memory.extraction.RuleExtractor"])
def test_an_extractor_is_none_one_of_ours_or_a_dotted_path(settings, name):
    assert problems(settings, MEMORY={"extractor": name}) == []


def test_an_extractor_that_is_none_is_named_by_the_check(settings):
    [found] = problems(settings, MEMORY={"extractor": "magic"})
    assert "AGENTCORE['MEMORY']['extractor'] is 'magic'. Allowed: 'rules', 'model' or the dotted" in found


def test_a_model_of_the_extractor_that_cannot_be_used_is_named_by_the_check(settings):
    [found] = problems(settings, MEMORY={"extractor": "model", "model": "nope:x"})
    assert found.startswith("AGENTCORE['MEMORY']['model'] is 'nope:x': ")
    assert problems(settings, MEMORY={"extractor": "model", "model": "demo:support"}) == []


@pytest.mark.parametrize(
    "given",
    [
        {"recall": 0},
        {"recall": True},
        {"extractor": 1},
        {"model": "no colon"},
        {"unknown": 1},
        {"expires_in": {"facts": None}},
        {"expires_in": {"fact": 3}},
        {"expires_in": {"fact": timedelta(0)}},
        [],
    ],
)
def test_what_memory_does_not_know_is_refused_with_what_is_allowed(settings, given):
    [found] = problems(settings, MEMORY=given)
    assert "AGENTCORE['MEMORY']" in found
    assert "conversation, entity, fact, working_memory, event" in found


def test_the_kinds_that_settings_know_are_those_there_are():
    assert sorted(conf.MEMORY_KINDS) == sorted(MemoryKind.values)


def test_what_a_dict_in_the_dict_leaves_out_keeps_its_default(settings):
    settings.AGENTCORE = {"MEMORY": {"recall": 3, "expires_in": {"fact": timedelta(days=1)}}}
    assert conf.settings.MEMORY["recall"] == 3
    assert conf.settings.MEMORY["extractor"] is None
    assert conf.settings.MEMORY["expires_in"]["fact"] == timedelta(days=1)
    assert conf.settings.MEMORY["expires_in"]["conversation"] == timedelta(days=90)
    settings.AGENTCORE = {"MEMORY_BACKEND": "hybrid"}
    assert isinstance(current(), HybridMemory)
    assert conf.settings.MEMORY["expires_in"]["fact"] is None


def test_two_lists_are_merged_by_reciprocal_rank():
    one, two, three = (Recalled(kind="fact", text=str(number), id=number) for number in range(3))
    found = merged([[one, two], [three, two]])
    assert [item.text for item in found] == ["1", "0", "2"]
    assert found[0].score == pytest.approx(2 / 62)
    assert merged([[], []]) == []
