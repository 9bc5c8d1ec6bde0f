"""Read the headers of a handshake."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# An ASGI connection scope: its values are of any type.
Scope = Mapping[str, Any]


def find_all(scope: Scope, name: str) -> list[str]:
    """Return the values of every header `name`, given in lower case."""
    wanted = name.encode("ascii")
    return [value.decode("latin-1") for key, value in scope.get("headers", ()) if key.lower() == wanted]


def find(scope: Scope, name: str) -> str | None:
    """Return the first header `name`, given in lower case, or None."""
    return next(iter(find_all(scope, name)), None)
