"""Pytest fixtures: `clock`, `make_session`, `make_turn`, `make_approval`, `run_turns`, `assert_invariants`, `scripted`.

Nothing is imported before a fixture is used: pytest loads this before Django is set up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest


def _testing(name: str) -> Any:
    return getattr(import_module("agentcore.testing"), name)


@pytest.fixture
def clock() -> Iterator[Any]:
    """The clock of agentcore; it is reset after the test."""
    found = _testing("clock")
    yield found
    found.reset()


@pytest.fixture
def make_session() -> Callable[..., Any]:
    return _testing("make_session")  # type: ignore[no-any-return]  # looked up by name


@pytest.fixture
def make_turn() -> Callable[..., Any]:
    return _testing("make_turn")  # type: ignore[no-any-return]  # looked up by name


@pytest.fixture
def make_approval() -> Callable[..., Any]:
    return _testing("make_approval")  # type: ignore[no-any-return]  # looked up by name


@pytest.fixture
def run_turns() -> Callable[[], int]:
    return _testing("run_turns")  # type: ignore[no-any-return]  # looked up by name


@pytest.fixture
def assert_invariants() -> Callable[[], None]:
    return _testing("assert_invariants")  # type: ignore[no-any-return]  # looked up by name


@pytest.fixture
def scripted() -> Iterator[Callable[..., Any]]:
    """Install a script as the provider `scripted` until the end of the test: `scripted([...])`.

    Circuit breakers that opened in the test are closed after it.
    """
    provider_class, open_ones = _testing("ScriptedProvider"), []

    def install(replies: Any = ()) -> Any:
        provider = provider_class(replies)
        context = provider.installed()
        context.__enter__()
        open_ones.append(context)
        return provider

    yield install
    for context in reversed(open_ones):
        context.__exit__(None, None, None)
    breakers = import_module("agentcore.resilience.circuit_breaker")
    for model in breakers.states():
        breakers.reset(model)
