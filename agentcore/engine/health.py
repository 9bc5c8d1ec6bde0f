"""Is the runtime able to work? All parts are asked at once: the whole takes at most HEALTH["timeout"].

Only the database is waited for that long. What nothing depends on is given half: it may hang for hours, and whoever
watches the health should be told of everything else soon.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from django.core.cache import cache

from agentcore import clock, database, dispatch, state
from agentcore.agents.registry import registry
from agentcore.conf import settings
from agentcore.engine import probing
from agentcore.engine.probing import Answer, Probe
from agentcore.models import AgentContext
from agentcore.resilience import circuit_breaker
from agentcore.states import TurnState
from agentcore.tools import execution
from agentcore.turns import heartbeats

logger = logging.getLogger("agentcore.health")

# Without these nothing works; without the others something is slower or waits.
VITAL = frozenset({"database"})
MAX_ABANDONED = 50
CLOSED = "closed"


def _breakers() -> Mapping[str, str]:
    """Return the states of the breakers of all agents' models: the same in every process."""
    models = {str(definition.model or settings.DEFAULT_MODEL) for definition in registry.all()}
    return circuit_breaker.states(models)


# Which circuit breakers there are, by provider and model, each "closed", "open", "half_open" or "paused".
BREAKERS: Callable[[], Mapping[str, str]] = _breakers


def report() -> dict[str, Any]:
    """Return `{"status": healthy, degraded or unhealthy, "checked_at", "parts": {name: {"status", "detail"}}}`."""
    answers = probing.ask_all(_probes(), seconds=_seconds, in_caller=database.is_in_test_case())
    parts = {name: _part(name, answer) for name, answer in answers.items()}
    failing = {name for name, part in parts.items() if part["status"] != "healthy"}
    status = "healthy" if not failing else "unhealthy" if failing & VITAL else "degraded"
    return {"status": status, "checked_at": clock.now().isoformat(), "parts": parts}


def _seconds(name: str) -> float:
    """Return how long a part's answer is waited for."""
    timeout: float = settings.HEALTH["timeout"]
    return timeout if name in VITAL else timeout / 2


def _probes() -> dict[str, Probe]:
    probes = {
        "database": _database,
        "cache": _cache,
        "turns": _turns,
        "providers": _providers,
        "tools": _tools,
    }
    if state.current().is_hot:
        probes["state"] = _state
    if settings.DISPATCH == "celery":
        # With threads this process is the worker, and it needs no broker.
        probes |= {"broker": _broker, "workers": _workers}
    return probes


def _part(name: str, answer: Answer) -> dict[str, str]:
    if answer.error is not None:
        logger.warning("A health probe failed", exc_info=answer.error, extra={"part": name})
        return {"status": "unhealthy", "detail": type(answer.error).__name__}
    if answer.detail is None:
        return {"status": "unhealthy", "detail": f"no answer within {_seconds(name):g} seconds"}
    return {"status": "degraded" if answer.detail else "healthy", "detail": answer.detail}


def _database() -> str:
    AgentContext.objects.order_by("pk").values_list("pk").first()
    return ""


def _cache() -> str:
    cache.set("agentcore:health", "1", timeout=10)
    return "" if cache.get("agentcore:health") == "1" else "the cache does not keep what is put into it"


def _state() -> str:
    backend = state.current()
    backend.read("health")
    return "" if backend.is_up() else "the state backend does not answer: turns go on from the database"


def _broker() -> str:
    dispatch.ping(_seconds("broker"))
    return ""


def _workers() -> str:
    """Nobody misses a worker while nothing waits for one."""
    if heartbeats.seen().exists() or not AgentContext.objects.filter(state=TurnState.QUEUED).exists():
        return ""
    return f"turns wait, and no worker was seen for {heartbeats.window_seconds():g} seconds"


def _turns() -> str:
    overdue = AgentContext.objects.overdue().count()
    abandoned = AgentContext.objects.abandoned().count()
    if overdue or abandoned:
        return f"{overdue} turns nobody claimed, {abandoned} whose worker is gone: is a worker and a sweep running?"
    return ""


def _providers() -> str:
    """Tell of model APIs that are not asked just now, or only tried."""
    failing = sorted((name, state) for name, state in BREAKERS().items() if state != CLOSED)
    return ", ".join(f"{name} is {state.replace('_', '-')}" for name, state in failing)


def _tools() -> str:
    count = execution.abandoned_threads()
    return f"{count} threads still run a call that timed out" if count > MAX_ABANDONED else ""
