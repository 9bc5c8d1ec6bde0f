"""What every memory backend offers, and the values that go in and come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from agentcore.models import Memory, MemoryKind, Owner, Shown

# Of the vectors of memories, in whichever index there is.
COLLECTION = "memory"


@dataclass(frozen=True, kw_only=True)
class Item:
    """One thing to remember.

    `data` of an entity has `name` and `type`, and perhaps `attributes`; of working memory `key` and `value`; of what
    was said `role`. `only_here` keeps it to the owner's session; working memory always is, where there is a session.
    """

    kind: str
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)
    only_here: bool = False

    @property
    def stays_here(self) -> bool:
        return self.only_here or self.kind == MemoryKind.WORKING_MEMORY


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where it was told: the turn, its session and its agent, as far as there are any."""

    execution_id: UUID | None = None
    session_id: str = ""
    agent_pk: int | None = None


@dataclass(frozen=True, kw_only=True)
class Kept:
    """One memory as it is stored now. `is_new` says that it was not known before, `is_changed` that its text is."""

    id: int
    kind: str
    scope: str
    text: str
    is_new: bool
    is_changed: bool = False


@dataclass(frozen=True, kw_only=True)
class Recalled:
    """One thing that a backend remembered; `score` only ranks the results of one answer."""

    kind: str
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)
    id: int | None = None
    score: float | None = None
    told_at: datetime | None = None

    @classmethod
    def of(cls, row: Memory, score: float | None = None) -> Recalled:
        """Return a row as what a backend answers with."""
        return cls(kind=row.kind, text=row.text, data=row.data, id=row.pk, score=score, told_at=row.seen_at)


class MemoryBackend(Protocol):
    """Keeps memories and finds them again. Its methods may take long: they are called with no connection held.

    Whatever it keeps, it answers with what `owner` has, and with nothing for nobody. It may be a SearchableMemory too.
    """

    def recall(self, owner: Owner, query: str, *, limit: int, shown: Shown | None = None) -> list[Recalled]:
        """Return up to `limit` memories that matter for `query`, the best first, without what is `shown` already."""

    def remember(self, owner: Owner, items: Sequence[Item], *, source: Source) -> list[Kept]:
        """Keep items, each once however often it is told; raise InvalidInput for one that cannot be kept."""

    def renew(self, memory: Memory) -> None:
        """Take note that a memory's text is another one now."""

    def forget(self, ids: Sequence[int]) -> None:
        """Drop what is kept of memories whose rows are deleted, beside the rows."""


class SearchableMemory(Protocol):
    """A backend that looks otherwise for a person who searches than for a turn. Without it, it is asked to recall."""

    def look_up(self, owner: Owner, query: str, *, limit: int, kind: str | None = None) -> list[Recalled]:
        """Return up to `limit` of the owner's memories of a kind, or of any, that `query` finds, the best first."""
