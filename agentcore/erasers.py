"""What erases a user's data outside of the rows of sessions: one function for each kind of store.

A room that keeps something of users elsewhere (memories, vectors, keys in Redis, a cache) registers its function when
it is imported, and so may a project:

    erasers.register("documents", lambda owner: delete_documents_of(owner.key))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agentcore.exceptions import Conflict


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Whose data goes: the user's key as text, and the keys of their sessions' and turns' rows, which are there still.

    Of a session of somebody else or of nobody only the user's own turns are meant: those are among `turns`, and the
    session is not among `sessions`.
    """

    key: str
    sessions: tuple[int, ...]
    turns: tuple[int, ...]


Eraser = Callable[[Owner], int]

_erasers: dict[str, Eraser] = {}


def register(name: str, eraser: Eraser) -> None:
    """Have `eraser(owner)` called at each erasure; it returns how many things it removed.

    It may be called again for what it has removed already, and raises when it cannot reach its store: the erasure is
    unfinished then, and is done again later. A second one of a name is a Conflict.
    """
    if _erasers.get(name, eraser) is not eraser:
        raise Conflict(f"There is already an eraser named {name!r}.", name=name)
    _erasers[name] = eraser


def unregister(name: str) -> None:
    """Forget an eraser; one that is not there is no error."""
    _erasers.pop(name, None)


def registered() -> dict[str, Eraser]:
    """Return the erasers by name, in the order in which they were registered."""
    return dict(_erasers)
