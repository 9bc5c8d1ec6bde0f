"""What agentcore's own tests use, for yours: a scripted model, a clock to set, makers, and the invariants.

With pytest the fixtures of the same names are there by themselves (see `agentcore.testing.plugin`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentcore.testing.agents import TESTING_AGENT, TestingAgent
    from agentcore.testing.clock import clock
    from agentcore.testing.invariants import assert_invariants
    from agentcore.testing.makers import make_approval, make_session, make_turn, make_user
    from agentcore.testing.provider import ScriptedProvider, calls, stream, text
    from agentcore.testing.turns import run_turns

# Found when they are asked for: pytest imports this package before Django's models are ready.
_HOMES = {
    "TESTING_AGENT": "agents",
    "TestingAgent": "agents",
    "clock": "clock",
    "assert_invariants": "invariants",
    "make_approval": "makers",
    "make_session": "makers",
    "make_turn": "makers",
    "make_user": "makers",
    "ScriptedProvider": "provider",
    "calls": "provider",
    "stream": "provider",
    "text": "provider",
    "run_turns": "turns",
}

__all__ = [
    "TESTING_AGENT",
    "ScriptedProvider",
    "TestingAgent",
    "assert_invariants",
    "calls",
    "clock",
    "make_approval",
    "make_session",
    "make_turn",
    "make_user",
    "run_turns",
    "stream",
    "text",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # The module `clock` becomes an attribute of the package when it is imported; the object replaces it.
    globals()[name] = found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return found
