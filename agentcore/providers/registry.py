"""Find the provider that an agent's `model` names; each is made once per process."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from agentcore.conf import settings
from agentcore.exceptions import ConfigurationError
from agentcore.providers.base import ModelProvider
from agentcore.resilience import rate_limit
from agentcore.resilience.rate_limit import Allowance

# Making one of these connects to nothing, so a system check may do it.
BUILT_IN = {
    "anthropic": "agentcore.providers.anthropic.AnthropicProvider",
    "demo": "agentcore.providers.demo.DemoProvider",
    "openai": "agentcore.providers.openai.OpenAIProvider",
}
# Keys of an entry that are for us, not for the provider's class.
OWN_KEYS = frozenset({"class", "context_tokens", "rate_limit"})

_made: dict[str, ModelProvider] = {}
_overrides: dict[str, ModelProvider] = {}
_lock = threading.Lock()


def split_model(model: str) -> tuple[str, str]:
    """Return provider name and model name of "openai:gpt-5-mini"; raise ConfigurationError for any other form."""
    provider, separator, name = model.partition(":")
    if not (provider and separator and name):
        raise ConfigurationError(f"The model {model!r} must be written 'provider:model', as in 'openai:gpt-5-mini'.")
    return provider, name


def get_provider(name: str) -> ModelProvider:
    """Return the provider of that name, the same one in every thread until AGENTCORE changes.

    Raises ConfigurationError for an unknown name, a class that cannot be imported or refuses its
    arguments, and for an optional package that is not installed.
    """
    if name in _overrides:
        return _overrides[name]
    with _lock:
        if name not in _made:
            _made[name] = _make(name)
        return _made[name]


@contextmanager
def override(name: str, provider: ModelProvider) -> Iterator[None]:
    """Let `provider` be the one of that name in this process; for tests."""
    before = _overrides.get(name)
    _overrides[name] = provider
    try:
        yield
    finally:
        if before is None:
            _overrides.pop(name, None)
        else:
            _overrides[name] = before


def get_context_tokens(name: str) -> int:
    """Return how many tokens a request to that provider may have: its own setting, else CONTEXT_TOKENS."""
    if name in _overrides:
        return int(settings.CONTEXT_TOKENS)
    tokens: int = _entry(name).get("context_tokens", settings.CONTEXT_TOKENS)
    return tokens


def get_allowance(name: str) -> Allowance | None:
    """Return what the `rate_limit` of a provider's entry allows to all of the project, or None for no limit.

    Raises ConfigurationError for one that is not allowed.
    """
    entry = settings.PROVIDERS.get(name, {})
    given = entry.get("rate_limit") if isinstance(entry, Mapping) else None
    if given is None:
        return None
    rate = rate_limit.parse(given)
    if rate is None:
        raise ConfigurationError(f"{_where(name)} has the rate_limit {given!r}. Allowed: {rate_limit.ALLOWED}.")
    return Allowance(name=f"provider:{name}", rate=rate)


def find_problem(model: str) -> str | None:
    """Return what keeps `model` from being used, in one sentence, or None. Connects to nothing."""
    try:
        name, _ = split_model(model)
        if name in _overrides:
            return None
        path = _class_path(name)
        provider_class = _import(name, path)
        _check_arguments(name, provider_class)
        get_allowance(name)
        if path in BUILT_IN.values():
            provider_class(**_arguments(name))
    except ConfigurationError as error:
        return str(error)
    return None


def _make(name: str) -> ModelProvider:
    provider_class = _import(name, _class_path(name))
    _check_arguments(name, provider_class)
    provider: ModelProvider = provider_class(**_arguments(name))
    return provider


def _entry(name: str) -> Mapping[str, Any]:
    providers = settings.PROVIDERS
    if name not in providers and name not in BUILT_IN:
        allowed = ", ".join(repr(known) for known in sorted({*providers, *BUILT_IN}))
        raise ConfigurationError(f"There is no provider {name!r} in AGENTCORE['PROVIDERS']. Allowed: {allowed}.")
    entry = providers.get(name, {})
    if not isinstance(entry, Mapping):
        raise ConfigurationError(f"{_where(name)} must be a dict, not {type(entry).__name__}.")
    return entry


def _class_path(name: str) -> str:
    given = _entry(name).get("class", name)
    if given in BUILT_IN:
        return BUILT_IN[given]
    if not isinstance(given, str) or "." not in given:
        allowed = ", ".join(repr(known) for known in BUILT_IN)
        raise ConfigurationError(f"{_where(name)} needs a 'class': a dotted path, or one of {allowed}.")
    return given


def _import(name: str, path: str) -> Any:
    try:
        return import_string(path)
    except ImportError as error:
        raise ConfigurationError(
            f"{_where(name)} names the class {path!r}, which cannot be imported: {error}"
        ) from error


def _check_arguments(name: str, provider_class: Any) -> None:
    signature = inspect.signature(provider_class)
    try:
        signature.bind(**_arguments(name))
    except TypeError as error:
        allowed = ", ".join(sorted({*signature.parameters, *OWN_KEYS}))
        raise ConfigurationError(
            f"{_where(name)} does not suit {provider_class.__name__}: {error}. Allowed: {allowed}."
        ) from error


def _arguments(name: str) -> dict[str, Any]:
    return {key: value for key, value in _entry(name).items() if key not in OWN_KEYS}


def _where(name: str) -> str:
    return f"AGENTCORE['PROVIDERS'][{name!r}]"


def _forget(*, setting: str, **_: Any) -> None:
    if setting != "AGENTCORE":
        return
    with _lock:
        providers = list(_made.values())
        _made.clear()
    for provider in providers:
        # A project's provider need not inherit ours.
        getattr(provider, "close", lambda: None)()


setting_changed.connect(_forget, dispatch_uid="agentcore.providers.registry")
