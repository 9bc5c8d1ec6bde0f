"""What the tests of memory share: backends, owners, and a small labelled set of questions and what answers them."""

from __future__ import annotations

from typing import Any

from agentcore.memory import Item, MemoryBackend, MemoryKind, Owner, Source
from agentcore.memory.buffer import BufferMemory
from agentcore.memory.hybrid import HybridMemory
from agentcore.memory.vector import VectorMemory
from agentcore.testing import make_session, make_user

BACKENDS: dict[str, type[Any]] = {"buffer": BufferMemory, "vector": VectorMemory, "hybrid": HybridMemory}
NOWHERE = Source()


def fact(text: str, **fields: Any) -> Item:
    return Item(kind=MemoryKind.FACT, text=text, **fields)


def said(text: str, role: str = "user") -> Item:
    return Item(kind=MemoryKind.CONVERSATION, text=text, data={"role": role})


def user_owner(user: Any = None) -> Owner:
    return Owner.of_user(user or make_user())


def session_owner(user: Any = None) -> Owner:
    return Owner.of_session(make_session(user=user))


def texts(backend: MemoryBackend, owner: Owner, query: str, limit: int = 5, **options: Any) -> list[str]:
    return [item.text for item in backend.recall(owner, query, limit=limit, **options)]
