"""The providers that a project's settings name: found, made once, closed, and their mistakes told."""

import os
import re
import subprocess
import sys
from typing import Any

import pytest
from django.test import override_settings

from agentcore.conf import settings
from agentcore.exceptions import ConfigurationError
from agentcore.messages import ModelReply, ModelRequest
from agentcore.providers import registry
from agentcore.providers.anthropic import AnthropicProvider
from agentcore.providers.base import ModelProvider
from agentcore.providers.demo import DemoProvider
from agentcore.providers.openai import OpenAIProvider
from tests.contracts import openai_server as server_side
from tests.contracts.requests import KEY, request


class CountingProvider(ModelProvider):
    """A project's own provider."""

    made = 0
    closed = 0

    def __init__(self, *, greeting: str = "Hi") -> None:
        type(self).made += 1
        self.greeting = greeting

    def complete(self, request: ModelRequest) -> ModelReply:
        return ModelReply(content=self.greeting)

    def close(self) -> None:
        type(self).closed += 1


class NotOurs:
    """A provider that inherits nothing."""

    def complete(self, request: ModelRequest) -> ModelReply:
        return ModelReply(content="Hi")


COUNTING = f"{__name__}.CountingProvider"


def with_providers(**providers: Any) -> override_settings:
    return override_settings(AGENTCORE={"PROVIDERS": providers})


def test_a_model_is_split_at_its_first_colon():
    assert registry.split_model("openai:gpt-5-mini") == ("openai", "gpt-5-mini")
    assert registry.split_model("local:org/model:7b") == ("local", "org/model:7b")


@pytest.mark.parametrize("model", ["gpt-5-mini", "openai:", ":gpt-5-mini", ""])
def test_a_model_of_another_form_is_a_mistake(model):
    with pytest.raises(ConfigurationError, match="provider:model"):
        registry.split_model(model)


@with_providers()
def test_what_is_built_in_needs_no_entry():
    assert isinstance(registry.get_provider("anthropic"), AnthropicProvider)
    assert isinstance(registry.get_provider("demo"), DemoProvider)
    assert isinstance(registry.get_provider("openai"), OpenAIProvider)


def test_an_entry_names_a_class_and_its_arguments():
    with with_providers(mine={"class": COUNTING, "greeting": "Servus", "context_tokens": 8000}):
        provider = registry.get_provider("mine")
        assert provider.complete(request()).content == "Servus"
        assert registry.get_context_tokens("mine") == 8000
        assert registry.get_context_tokens("demo") == settings.CONTEXT_TOKENS


def test_several_servers_may_be_openai_compatible(server):
    entry = {"class": "openai", "base_url": server.url, "api_key": KEY}
    with with_providers(local=entry, openai={"base_url": server.url, "api_key": KEY}):
        server.will_answer(server_side.text("local"), server_side.text("openai"))
        assert registry.get_provider("local").complete(request()).content == "local"
        assert registry.get_provider("openai").complete(request()).content == "openai"


def test_a_provider_is_made_once_and_closed_when_the_settings_change(monkeypatch):
    monkeypatch.setattr(CountingProvider, "made", 0)
    monkeypatch.setattr(CountingProvider, "closed", 0)
    with with_providers(mine={"class": COUNTING}):
        first = registry.get_provider("mine")
        assert registry.get_provider("mine") is first
        assert (CountingProvider.made, CountingProvider.closed) == (1, 0)
    assert CountingProvider.closed == 1
    with with_providers(mine={"class": COUNTING, "greeting": "Moin"}):
        assert registry.get_provider("mine").complete(request()).content == "Moin"


def test_a_provider_need_not_inherit_ours():
    with with_providers(mine={"class": f"{__name__}.NotOurs"}):
        assert registry.get_provider("mine").complete(request()).content == "Hi"


MISTAKES = [
    ("nobody:x", {}, "'anthropic', 'demo', 'mine', 'openai'"),
    ("mine", {}, "provider:model"),
    ("mine:x", {"class": "no.such.Provider"}, "no.such.Provider"),
    ("mine:x", {"class": f"{__name__}.NoSuchClass"}, "NoSuchClass"),
    ("mine:x", {"class": "demon"}, "'class'"),
    ("mine:x", {}, "'class'"),
    ("mine:x", {"class": 3}, "'class'"),
    ("mine:x", "openai", "must be a dict, not str"),
    ("mine:x", {"class": COUNTING, "greetings": "Hi"}, "greetings"),
    ("mine:x", {"class": "openai", "base_uri": "http://localhost"}, "base_uri'. Allowed: api_key, base_url, class, "),
    ("mine:x", {"class": "openai", "tool_mode": "telepathy"}, "'telepathy'. Allowed: 'native', 'json_schema'."),
    ("mine:x", {"class": "openai", "timeout": -1}, "timeout must be seconds, a number above 0, not -1"),
    ("mine:x", {"class": "anthropic", "tool_mode": "json_schema"}, "'json_schema'. Allowed: 'native'."),
    ("mine:x", {"class": "anthropic", "max_tokens": 0}, "max_tokens must be a whole number of at least 1, not 0"),
    ("mine:x", {"class": "anthropic", "max_tokens": "many"}, "max_tokens must be a whole number"),
    ("mine:x", {"class": "anthropic", "organization": "org-1"}, "organization"),
]


@pytest.mark.parametrize(("model", "entry", "words"), MISTAKES)
def test_a_mistake_is_found_before_it_is_used(model, entry, words):
    with with_providers(mine=entry):
        assert words in (registry.find_problem(model) or "")


@pytest.mark.parametrize(("model", "entry", "words"), [case for case in MISTAKES if ":" in case[0]])
def test_a_mistake_is_raised_when_it_is_used(model, entry, words):
    with with_providers(mine=entry), pytest.raises(ConfigurationError, match=re.escape(words)):
        registry.get_provider(registry.split_model(model)[0])


def test_what_is_right_has_no_problem():
    local = {"class": "openai", "base_url": "http://x", "tool_mode": "json_schema", "context_tokens": 4000}
    with with_providers(mine={"class": COUNTING, "greeting": "Hi"}, local=local, anthropic={"max_tokens": 4000}):
        found = [registry.find_problem(model) for model in ("demo:a", "openai:b", "mine:c", "local:d", "anthropic:e")]
    assert found == [None] * 5


def test_looking_for_a_problem_makes_none_of_the_projects_providers(monkeypatch):
    monkeypatch.setattr(CountingProvider, "made", 0)
    with with_providers(mine={"class": COUNTING}):
        registry.find_problem("mine:x")
    assert CountingProvider.made == 0


@with_providers()
@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_a_missing_package_names_its_extra(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    assert f"agentcore[{name}]" in (registry.find_problem(f"{name}:x") or "")
    with pytest.raises(ConfigurationError, match=re.escape(f"agentcore[{name}]")):
        registry.get_provider(name)


def test_looking_for_a_problem_imports_no_sdk():
    looked = (
        "import sys, django; django.setup();"
        "from agentcore.providers import registry;"
        "found = [registry.find_problem(f'{name}:x') for name in ('openai', 'anthropic')];"
        "assert found == [None, None], found;"
        "assert not {'openai', 'anthropic', 'httpx2'} & set(sys.modules)"
    )
    subprocess.run(
        [sys.executable, "-c", looked], check=True, env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    )
