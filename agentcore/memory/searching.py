"""Have a backend look for what a person wants to find."""

from __future__ import annotations

from typing import Any

from agentcore.memory.base import MemoryBackend, Recalled
from agentcore.models import Owner

# A backend that knows no kinds is asked for no more than that.
MOST = 4_096


def look_up(backend: MemoryBackend, owner: Owner, query: str, *, limit: int, kind: str | None) -> list[Recalled]:
    """Return what the backend finds of a kind, or of any, the best first. Without a `look_up` it is asked to recall."""
    own = _find_look_up(backend)
    return _recalled(backend, owner, query, limit, kind) if own is None else own(owner, query, limit=limit, kind=kind)


# Any: the method is optional.
def _find_look_up(backend: Any) -> Any:
    """Return the backend's `look_up`, or None: also where only its `recall` is its own, and the rest is inherited."""
    for part in type(backend).__mro__:
        if "look_up" in vars(part):
            break
        if "recall" in vars(part):
            return None
    return getattr(backend, "look_up", None)


def _recalled(backend: MemoryBackend, owner: Owner, query: str, limit: int, kind: str | None) -> list[Recalled]:
    wanted = limit
    while True:
        found = list(backend.recall(owner, query, limit=wanted))
        chosen = [item for item in found if kind is None or item.kind == kind]
        if len(chosen) >= limit or len(found) < wanted or wanted >= MOST:
            return chosen[:limit]
        wanted = min(wanted * 4, MOST)
