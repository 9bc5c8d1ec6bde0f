"""What an owner does with their memories: look, search, correct, delete, take along, erase."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from django.db import IntegrityError
from django.db.models import Count

from agentcore import clock, database
from agentcore.exceptions import Conflict, InvalidInput, NotFound, TooLarge
from agentcore.memory import history, registry, searching, store
from agentcore.models import AgentContext, Memory, MemoryKind, Owner

logger = logging.getLogger("agentcore.memory")

# So many are deleted at once: an index takes their ids in one call.
BATCH = 500
MAX_FOUND = 50


def get(owner: Owner, memory_id: int) -> Memory:
    """Return a memory of the owner's; raise NotFound, for another's as for none."""
    found: Memory | None = Memory.objects.of(owner).select_related("session", "agent").filter(pk=memory_id).first()
    if found is None:
        raise _absent()
    return found


def search(owner: Owner, query: str, *, limit: int, kind: str | None = None) -> list[tuple[Memory, float | None]]:
    """Return what the project's backend finds of the owner's, the best first, with its score.

    With `kind`, what it finds among those of that kind. Raises InvalidInput for a kind that there is not.
    """
    if kind is not None and kind not in MemoryKind.values:
        raise InvalidInput(f"kind is {kind!r}; it can be {', '.join(MemoryKind.values)}.", field="kind")
    if owner.is_nobody or not query.strip():
        return []
    found = searching.look_up(registry.current(), owner, query, limit=min(limit, MAX_FOUND), kind=kind)
    theirs = Memory.objects.of(owner).of_kind(kind).select_related("session", "agent")
    rows = theirs.in_bulk([item.id for item in found if item.id])
    return [(rows[item.id], item.score) for item in found if item.id in rows]


def correct(memory: Memory, *, text: str | None = None, data: Any = None) -> Memory:
    """Change what a memory says, and have it found by that; where it cannot be found anew now, the log says so.

    What is left out stays as it is stored at that moment. Raises InvalidInput, TooLarge, Conflict where the owner has
    it already, NotFound where it was deleted meanwhile.
    """
    if text is not None and len(text.strip()) > store.MAX_TEXT:
        raise TooLarge(f"text is over {store.MAX_TEXT} characters.", field="text", limit=store.MAX_TEXT)
    _corrected(memory, text, data)
    # First, so that it cannot be found by what it said before, whatever fails from here on.
    registry.current().forget([memory.pk])
    try:
        _store(memory, text, data)
    except (Conflict, InvalidInput):
        _renew(memory)
        raise
    _read_anew(memory)
    _renew(memory)
    _read_anew(memory)
    return memory


def delete(memory: Memory) -> None:
    """Delete a memory, and what the backend keeps beside it."""
    _delete([memory], "Deleted by its owner.")


def erase(owner: Owner) -> int:
    """Delete all that the owner has, also what has expired; return how many there were."""
    if owner.user_id is None:
        raise InvalidInput("Only a user's memories are erased as a whole.")
    _remember_nothing_more(owner)
    return _delete_all(Memory.objects.owned_by(owner), "Erased by its owner, with all of theirs.")


def erase_of_user_key(user_key: str) -> int:
    """Delete all of the user with that key, who need not exist any more; return how many there were."""
    rows = Memory.objects.filter(user_key=user_key).order_by("pk").values_list("pk", "user_key")
    # MariaDB takes other text for the same.
    mine = [pk for pk, key in rows if key and key == user_key]
    parts = (mine[start : start + BATCH] for start in range(0, len(mine), BATCH))
    return sum(_delete_all(Memory.objects.filter(pk__in=part)) for part in parts)


def erase_of_sessions(sessions: Sequence[int]) -> int:
    """Delete what is kept to these sessions, by their keys; return how many there were."""
    parts = (sessions[start : start + BATCH] for start in range(0, len(sessions), BATCH))
    return sum(_delete_all(Memory.objects.filter(session__in=part)) for part in parts)


def erase_of_turns(turns: Sequence[int]) -> int:
    """Delete what these turns, by their keys, told last, whose ever it is; return how many there were."""
    count = 0
    for start in range(0, len(turns), BATCH):
        told_by = AgentContext.objects.filter(pk__in=turns[start : start + BATCH])
        # Read first: MariaDB goes through each memory anew for a query within.
        ids = list(told_by.order_by().values_list("execution_id", flat=True))
        count += _delete_all(Memory.objects.filter(execution_id__in=ids))
    return count


def forget_over() -> int:
    """Delete what has expired, and what belonged to users who were deleted; return how many there were."""
    return _delete_all(Memory.objects.over())


def forget_with(session_pk: int) -> None:
    """Drop, after the commit, what is kept beside the memories of a session whose rows go in this transaction.

    What fails there is logged; `agentcore_reembed` drops it later.
    """
    if ids := list(Memory.objects.filter(session=session_pk).values_list("pk", flat=True)):
        database.on_commit(lambda: registry.current().forget(ids))


def count_by_kind() -> dict[str, int]:
    """Return how many memories of each kind there are, of everybody, also those whose time is over."""
    found = dict(Memory.objects.order_by().values_list("kind").annotate(Count("pk")))
    return {kind: found.get(kind, 0) for kind in MemoryKind.values}


def export(owner: Owner) -> Iterator[Memory]:
    """Yield all that the owner has, oldest first, in pages."""
    after = 0
    while page := list(
        Memory.objects.of(owner).select_related("session", "agent").filter(pk__gt=after).order_by("pk")[:BATCH]
    ):
        yield from page
        after = page[-1].pk


@database.retried
def _remember_nothing_more(owner: Owner) -> None:
    """Have nothing remembered of the owner's turns that ended and are about to be."""
    turns = AgentContext.objects.filter(remember_at__isnull=False, session__user_id=owner.user_id)
    # By key: MariaDB updates no table that it reads in the same statement.
    AgentContext.objects.filter(pk__in=list(turns.values_list("pk", flat=True))).update(remember_at=None)


def _corrected(memory: Memory, text: str | None, data: Any) -> dict[str, Any]:
    """Return the columns of a correction, over what the memory says; raise InvalidInput."""
    kind, new_text, new_data = store.checked(
        memory.kind, memory.text if text is None else text, memory.data if data is None else data
    )
    return {"text": new_text, "data": new_data, "digest": store.digest_of(memory.scope, kind, new_text, new_data)}


@database.retried
def _store(memory: Memory, text: str | None, data: Any) -> None:
    now = clock.now()
    row = Memory.objects.filter(pk=memory.pk)
    try:
        with database.atomic():
            # Written first: that is the lock, on every database, and another may have changed the rest of it.
            if not row.update(corrected_at=now, updated_at=now):
                raise _absent()
            memory.refresh_from_db(fields=("text", "data"))
            row.update(**_corrected(memory, text, data))
            history.note([memory], flag=history.CHANGE, message="Corrected by its owner.")
    except IntegrityError as error:
        raise Conflict("You have a memory that says this already; delete one of the two.") from error


def _renew(memory: Memory) -> None:
    try:
        registry.current().renew(memory)
    except Exception:
        logger.exception(
            "A memory cannot be found by its meaning until agentcore_reembed is run", extra={"memory": memory.pk}
        )


def _read_anew(memory: Memory) -> None:
    """Read what a memory says now; where it was deleted meanwhile, drop what was kept beside it since."""
    pk = memory.pk
    try:
        memory.refresh_from_db()
    except Memory.DoesNotExist as error:
        registry.current().forget([pk])
        raise _absent() from error


def _absent() -> NotFound:
    return NotFound("There is no such memory.")


# Any: models are typed by a plugin that does not follow querysets through here.
def _delete_all(rows: Any, message: str = "") -> int:
    count = 0
    while page := list(rows.only("kind", "user").order_by("pk")[:BATCH]):
        _delete(page, message)
        count += len(page)
    return count


def _delete(memories: list[Memory], message: str) -> None:
    """Delete rows, after what is kept beside them: a failure in between leaves rows that can be deleted again."""
    ids = [memory.pk for memory in memories]
    registry.current().forget(ids)
    _delete_rows(memories, message)
    # Once more: somebody may have kept something beside a row while it was still there.
    database.on_commit(lambda: registry.current().forget(ids))


@database.retried
def _delete_rows(memories: list[Memory], message: str) -> None:
    with database.atomic():
        Memory.objects.filter(pk__in=[memory.pk for memory in memories]).delete()
        if message:
            history.note(memories, flag=history.DELETION, message=message)
