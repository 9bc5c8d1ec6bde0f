"""Find the memory backend and the extractor that the settings name; each is made once per process."""

from __future__ import annotations

import threading
from typing import Any

from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from agentcore.conf import settings
from agentcore.exceptions import ConfigurationError
from agentcore.memory.base import MemoryBackend
from agentcore.memory.extraction import Extractor

BACKENDS = {
    "buffer": "agentcore.memory.buffer.BufferMemory",
    "vector": "agentcore.memory.vector.VectorMemory",
    "hybrid": "agentcore.memory.hybrid.HybridMemory",
}
EXTRACTORS = {
    "rules": "agentcore.memory.extraction.RuleExtractor",
    "model": "agentcore.memory.extraction.ModelExtractor",
}
BACKEND_VERBS = ("recall", "remember", "renew", "forget")

_made: dict[tuple[str, str], Any] = {}
_lock = threading.Lock()


def current() -> MemoryBackend:
    """Return the backend of the project, the same in every thread until AGENTCORE changes; or ConfigurationError."""
    backend: MemoryBackend = _get("MEMORY_BACKEND", settings.MEMORY_BACKEND, BACKENDS, BACKEND_VERBS)
    return backend


def extractor() -> Extractor | None:
    """Return what finds facts and entities in what was said, None unless the project wants it."""
    name = settings.MEMORY["extractor"]
    return None if name is None else _get("MEMORY']['extractor", name, EXTRACTORS, ("extract",))


def find_problem() -> str | None:
    """Return what keeps memory from being used as the settings say, in one sentence, or None."""
    try:
        current()
        extractor()
    except ConfigurationError as error:
        return str(error)
    return None


# Any: what a dotted path names may be anything; its verbs are looked for.
def _get(setting: str, name: str, built_in: dict[str, str], verbs: tuple[str, ...]) -> Any:
    with _lock:
        if (setting, name) not in _made:
            _made[setting, name] = _make(f"AGENTCORE['{setting}']", name, built_in, verbs)
        return _made[setting, name]


def _make(where: str, name: str, built_in: dict[str, str], verbs: tuple[str, ...]) -> Any:
    allowed = f"Allowed: {', '.join(repr(known) for known in built_in)} or the dotted path of a class."
    path = built_in.get(name, name)
    if "." not in path:
        raise ConfigurationError(f"{where} is {name!r}. {allowed}")
    try:
        made = import_string(path)()
    except ImportError as error:
        raise ConfigurationError(f"{where} is {name!r}, which cannot be imported: {error}. {allowed}") from error
    except TypeError as error:
        raise ConfigurationError(f"{where} is {name!r}, which cannot be made without arguments: {error}.") from error
    missing = [verb for verb in verbs if not callable(getattr(made, verb, None))]
    if missing:
        raise ConfigurationError(f"{where} is {name!r}, which has no {', '.join(missing)}().")
    return made


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "AGENTCORE":
        with _lock:
            _made.clear()


setting_changed.connect(_forget, dispatch_uid="agentcore.memory")
