"""The embedder and the index that the settings EMBEDDER and VECTOR_INDEX name; each is made once per process."""

from __future__ import annotations

import threading
from typing import Any

from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from agentcore.conf import settings
from agentcore.exceptions import ConfigurationError
from agentcore.vectors.base import Embedder, VectorIndex, checked_id
from agentcore.vectors.guarded import GuardedIndex
from agentcore.vectors.openai import OpenAIEmbedder

EMBEDDERS = {
    "hashing": "agentcore.vectors.hashing.HashingEmbedder",
    "wordllama": "agentcore.vectors.wordllama.WordLlamaEmbedder",
}
INDEXES = {
    "exact": "agentcore.vectors.exact.ExactIndex",
    "pgvector": "agentcore.vectors.pgvector.index.PgvectorIndex",
}

_made: dict[str, Any] = {}
_lock = threading.Lock()


def embedder() -> Embedder:
    """Return the embedder of the setting EMBEDDER; raise ConfigurationError when it cannot be made."""
    made: Embedder = _once("EMBEDDER", _make_embedder)
    return made


def index() -> VectorIndex:
    """Return the index of the setting VECTOR_INDEX; raise ConfigurationError when it cannot be made.

    Whatever index it is: what goes wrong in it is an IndexFailed, or the database's own error.
    """
    made: VectorIndex = _once("VECTOR_INDEX", _make_index)
    return made


def problems() -> list[str]:
    """Return one sentence for each of the two settings that cannot be used. Connects to nothing."""
    found = []
    for make in (embedder, index):
        try:
            make()
        except ConfigurationError as mistake:
            found.append(str(mistake))
    return found


def _once(name: str, make: Any) -> Any:
    with _lock:
        if name not in _made:
            _made[name] = make(getattr(settings, name))
        return _made[name]


def _make_embedder(given: str) -> Any:
    provider, separator, model = given.partition(":")
    if separator:
        made: Any = OpenAIEmbedder(provider, model)
    else:
        made = _instance("EMBEDDER", given, EMBEDDERS, more="'provider:model' as in 'openai:text-embedding-3-small'")
    checked_id(made)
    return _having("EMBEDDER", given, made, ("embed",))


def _make_index(given: str) -> Any:
    made = _instance("VECTOR_INDEX", given, INDEXES)
    return GuardedIndex(_having("VECTOR_INDEX", given, made, ("put", "remove", "search", "missing", "kinds")))


def _instance(name: str, given: str, known: dict[str, str], *, more: str = "") -> Any:
    where = f"AGENTCORE[{name!r}] is {given!r}"
    if given not in known and "." not in given:
        allowed = ", ".join([*(repr(item) for item in known), *([more] if more else []), "or a dotted path"])
        raise ConfigurationError(f"{where}; it must be one of {allowed}.")
    try:
        return import_string(known.get(given, given))()
    except ImportError as error:
        raise ConfigurationError(f"{where}, which cannot be imported: {error}") from error
    except TypeError as error:
        raise ConfigurationError(f"{where}, which cannot be made without arguments: {error}") from error


def _having(name: str, given: str, made: Any, methods: tuple[str, ...]) -> Any:
    if lacking := [method for method in methods if not callable(getattr(made, method, None))]:
        raise ConfigurationError(f"AGENTCORE[{name!r}] is {given!r}, which has no {', '.join(lacking)}.")
    return made


def _forget(*, setting: str, **_: Any) -> None:
    if setting != "AGENTCORE":
        return
    with _lock:
        made = list(_made.values())
        _made.clear()
    for item in made:
        # A project's own need not inherit ours.
        getattr(item, "close", lambda: None)()


setting_changed.connect(_forget, dispatch_uid="agentcore.vectors.registry")
