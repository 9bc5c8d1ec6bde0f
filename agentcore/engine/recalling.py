"""Recall, before a turn's first step, what its user or session told before. Nothing here can fail the turn."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from agentcore import clock, database, memory
from agentcore.conf import settings
from agentcore.drivers import registry as drivers
from agentcore.events.kinds import EventType
from agentcore.exceptions import LeaseLost, TurnCancelled
from agentcore.memory import MemoryKind, Owner, Recalled, Shown
from agentcore.memory.buffer import BufferMemory
from agentcore.models import EntryKind
from agentcore.tools import execution
from agentcore.turns import recalled
from agentcore.turns.recalled import Entry
from agentcore.turns.work import Work

logger = logging.getLogger("agentcore.memory")

# What a memory becomes in a turn's context.
ENTRY_KINDS = {MemoryKind.FACT: EntryKind.FACT, MemoryKind.ENTITY: EntryKind.ENTITY}
# A backend may ask an embedder that is far away. It never gets more than half of what the turn has left.
MAX_SECONDS = 30.0
FOUND = (EntryKind.FACT, EntryKind.ENTITY, EntryKind.RECALLED)
# A session with no more events than that shows all that was said in it, so facts of its own would say it twice.
SHOWN_WHOLE = 500


def recall(work: Work) -> None:
    """Recall what matters for the turn's message, once, whoever works on it: record and tell it if there is any."""
    owner = Owner.of_session(work.turn.session)
    if not _is_due(work) or owner.is_nobody or (work.opens_session and owner.user_id is None):
        return
    began = clock.monotonic()
    try:
        found = _found(work, owner)
    except Exception as error:
        if database.may_pass(error):
            raise
        logger.exception("Nothing could be recalled; the turn goes on", extra=_facts(work))
        _record(work, [], error=type(error).__name__, duration=clock.monotonic() - began)
        return
    if found:
        _record(work, found, duration=clock.monotonic() - began)


def _is_due(work: Work) -> bool:
    """Say whether the turn is at its very beginning, worked by the built-in driver, and nothing was recalled yet."""
    if not work.turn.enable_memory or work.step.number > 1 or work.step.message is not None:
        return False
    # Others are not given what is found: they have no prompt of ours.
    if work.pinned["driver"] != drivers.BUILT_IN:
        return False
    return not any(kind in FOUND for kind, _ in work.recalled) and not recalled.was_told(work, EventType.MEMORY_UPDATED)


def _found(work: Work, owner: Owner) -> list[Recalled]:
    query, limit = work.turn.input["content"], settings.MEMORY["recall"]
    backend, shown = memory.current(), _shown(work)

    def find() -> list[Recalled]:
        return list(backend.recall(owner, query, limit=limit, shown=shown))

    # The rows alone answer at once, as for any other query of the turn; a project's own class may do anything.
    found = find() if type(backend) is BufferMemory else _in_time(work, find)
    return found[:limit]


def _in_time(work: Work, find: Callable[[], list[Recalled]]) -> list[Recalled]:
    """Return what is found; a backend that takes too long is left behind."""
    if not execution.has_room():
        raise TimeoutError("Too many calls of this process hang already.")
    seconds = min(work.seconds_left() / 2, MAX_SECONDS)
    with database.given_back():
        outcome = execution.run_tool(find, timeout=seconds, in_caller=database.is_in_test_case())
    if outcome.error is not None:
        raise outcome.error
    if outcome.kind == "timed_out":
        raise TimeoutError(f"The memory took more than {seconds:.1f} seconds.")
    found: list[Recalled] = outcome.value
    return found


def _shown(work: Work) -> Shown:
    """Return what the history in the prompt says anyway: the newest of a conversation, in a short one all of it."""
    session = work.turn.session
    told = (MemoryKind.CONVERSATION, MemoryKind.EVENT)
    kinds = (*told, MemoryKind.FACT, MemoryKind.ENTITY) if session.last_sequence <= SHOWN_WHOLE else told
    return Shown(session_id=session.session_id, kinds=tuple(str(kind) for kind in kinds))


def _record(work: Work, found: list[Recalled], **told: Any) -> None:
    entries = [_entry(item, place) for place, item in enumerate(found, start=1)]
    names = [{"id": item.id, "kind": str(item.kind), "score": _rounded(item.score)} for item in found]
    try:
        recalled.record(work, entries, type=EventType.MEMORY_UPDATED, recalled=names, **told)
    except (LeaseLost, TurnCancelled):
        raise
    except Exception as error:
        # A backend of the project may give what no row can hold.
        if database.may_pass(error):
            raise
        logger.exception("What was recalled could not be recorded; the turn goes on", extra=_facts(work))


def _entry(item: Recalled, place: int) -> Entry:
    value = {**dict(item.data), "kind": str(item.kind), "text": item.text}
    if item.told_at is not None:
        value["told"] = item.told_at.date().isoformat()
    key = f"memory:{item.id}" if item.id is not None else f"found:{place}"
    return Entry(ENTRY_KINDS.get(MemoryKind(item.kind), EntryKind.RECALLED), key, value)


def _rounded(score: float | None) -> float | None:
    return None if score is None else round(float(score), 4)


def _facts(work: Work) -> dict[str, str]:
    return {"execution_id": str(work.turn.execution_id)}
