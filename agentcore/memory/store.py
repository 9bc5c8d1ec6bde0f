"""The rows of memories: each thing once per owner, however often and by how many jobs at once it is told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import F, Q

from agentcore import canonical, clock, database
from agentcore.conf import settings
from agentcore.exceptions import InvalidInput
from agentcore.memory.base import Item, Kept, Source
from agentcore.models import Memory, MemoryKind, Owner
from agentcore.models.memory import session_scope, user_scope

# In characters: what is longer is cut, with a mark.
MAX_TEXT = 4_000
CUT = "…"
MAX_DATA_BYTES = 16_384
# What data of a kind has in any case, and what else of it has a form: text, or an object.
NEEDED = {MemoryKind.ENTITY: ("name", "type"), MemoryKind.WORKING_MEMORY: ("key",)}
TEXTS = {MemoryKind.CONVERSATION: ("role",)}
OBJECTS = {MemoryKind.ENTITY: ("attributes",)}


@database.retried
def keep(owner: Owner, items: Sequence[Item], *, source: Source) -> list[Kept]:
    """Store items, and count those that are known; one told again by the same turn changes nothing.

    Raises InvalidInput for an item that cannot be stored, and for an owner who is nobody; then nothing is.
    """
    if owner.is_nobody:
        raise InvalidInput("A memory needs a user or a session to belong to.")
    now = clock.now()
    told = _by_digest(_told(owner, item, source, now) for item in items)
    if not told:
        return []
    known = _known(told)
    fresh = [one.row for digest, one in told.items() if digest not in known]
    # Somebody may have stored one since: that one stays, and is counted below. By itself: whoever waits here for
    # another's row shares a lock on it, and two that would change it next would lock each other out.
    Memory.objects.bulk_create(fresh, ignore_conflicts=True)
    stored = {**known, **_known([row.digest for row in fresh])} if fresh else known
    pairs = [_Again(one.row, stored[digest]) for digest, one in told.items() if digest in stored]
    again = [pair for pair in pairs if pair.is_told_again(was_known=pair.row.digest in known)]
    _count(again)
    changed = {pair.row.digest: _took_over(pair) for pair in again if _is_by_name(pair.row.kind)}
    old = {*known, *(pair.row.digest for pair in again)}
    return [_kept(pair, told[pair.row.digest].scope, old, changed) for pair in pairs]


@database.retried
def drop_first_told(execution_id: UUID, new: Sequence[int]) -> list[int]:
    """Delete the rows `new`, and all that no other turn told than this one; return their keys."""
    found = Memory.objects.filter(Q(pk__in=list(new)) | Q(execution_id=execution_id, count=1))
    keys = list(found.order_by("pk").values_list("pk", flat=True))
    Memory.objects.filter(pk__in=keys).delete()
    return keys


def digest_of(scope: str, kind: str, text: str, data: Any) -> str:
    """Return what two memories of one owner share that are the same: case and spaces make no difference."""
    same: list[Any] = [_folded(text)]
    if kind == MemoryKind.ENTITY:
        same = [_folded(str(data["type"])), _folded(str(data["name"]))]
    elif kind == MemoryKind.WORKING_MEMORY:
        same = [str(data["key"])]
    elif kind == MemoryKind.CONVERSATION:
        same = [str(data.get("role", "")), " ".join(text.split())]
    return canonical.digest([scope, str(kind), *same])


def checked(kind: Any, text: Any, data: Any) -> tuple[str, str, dict[str, Any]]:
    """Return kind, text and data as they are stored; raise InvalidInput."""
    if kind not in MemoryKind.values:
        raise InvalidInput(f"kind is {kind!r}; it can be {', '.join(MemoryKind.values)}.", field="kind")
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput("text is empty; a memory says something.", field="text")
    return str(kind), _cut(canonical.clean_text(text).strip()), _checked_data(str(kind), data)


def expiry(kind: str, now: datetime) -> datetime | None:
    """Return when a memory of that kind, told now, is over; None is never."""
    life: timedelta | None = settings.MEMORY["expires_in"][kind]
    try:
        return None if life is None else now + life
    except OverflowError:  # timedelta.max is never, as for approvals
        return None


def _checked_data(kind: str, data: Any) -> dict[str, Any]:
    try:
        plain = canonical.clean(canonical.normalise(data))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"data cannot be stored: {error}.", field="data") from error
    if not isinstance(plain, dict):
        raise InvalidInput("data must be an object.", field="data")
    for name in NEEDED.get(MemoryKind(kind), ()):
        if not isinstance(plain.get(name), str) or not plain[name].strip():
            raise InvalidInput(f"data of the kind {kind} needs {name}, a text.", field="data")
    for name in TEXTS.get(MemoryKind(kind), ()):
        if name in plain and not isinstance(plain[name], str):
            raise InvalidInput(f"{name} in data of the kind {kind} must be a text.", field="data")
    for name in OBJECTS.get(MemoryKind(kind), ()):
        if plain.get(name) is not None and not isinstance(plain[name], dict):
            raise InvalidInput(f"{name} in data of the kind {kind} must be an object.", field="data")
    if _is_too_large(plain):
        raise InvalidInput(f"data is over {MAX_DATA_BYTES} bytes as JSON.", field="data")
    return plain


class _Told(NamedTuple):
    row: Memory
    scope: str


def _told(owner: Owner, item: Item, source: Source, now: datetime) -> _Told:
    kind, text, data = checked(item.kind, item.text, item.data)
    stays = owner.session_pk is not None and (item.stays_here or owner.user_id is None)
    scope = session_scope(owner.session_id) if stays else user_scope(owner.user_key)
    row = Memory(
        user_id=owner.user_id,
        user_key=owner.user_key,
        user_name=owner.user_name,
        session_id=owner.session_pk if stays else None,
        agent_id=source.agent_pk,
        kind=kind,
        text=text,
        data=data,
        digest=digest_of(scope, kind, text, data),
        execution_id=source.execution_id,
        told_in=source.session_id,
        created_at=now,
        updated_at=now,
        seen_at=now,
        expires_at=expiry(kind, now),
    )
    return _Told(row, scope)


def _by_digest(told: Iterable[_Told]) -> dict[str, _Told]:
    """Return what is told by what makes it the same; of a thing told twice, the attributes of both."""
    found: dict[str, _Told] = {}
    for one in told:
        before = found.get(one.row.digest)
        if before is not None:
            one.row.data = _merged(one.row, before.row.data)
        found[one.row.digest] = one
    return found


def _known(digests: Iterable[str]) -> dict[str, Memory]:
    return {row.digest: row for row in Memory.objects.filter(digest__in=list(digests))}


class _Again(NamedTuple):
    """A memory as it is told now, and as it is stored."""

    row: Memory
    stored: Memory

    def is_told_again(self, *, was_known: bool) -> bool:
        """Say whether it counts: it was there before, or another job stored it a moment ago, and not by this turn."""
        if not was_known and self.stored.created_at == self.row.created_at:
            return False
        return self.row.execution_id is None or self.stored.execution_id != self.row.execution_id


def _count(again: Sequence[_Again]) -> None:
    """Count what is told again, in one statement per kind; each lasts from now on."""
    for kind in sorted({pair.row.kind for pair in again}):
        rows = [pair for pair in again if pair.row.kind == kind]
        told = rows[0].row
        Memory.objects.filter(pk__in=sorted(pair.stored.pk for pair in rows)).update(
            count=F("count") + 1,
            agent_id=told.agent_id,
            execution_id=told.execution_id,
            told_in=told.told_in,
            seen_at=told.seen_at,
            updated_at=told.updated_at,
            expires_at=told.expires_at,
        )


def _took_over(pair: _Again) -> bool:
    """Let what is told of a thing or under a key replace what was; say whether its text is another one now."""
    with database.atomic():
        # Written first: that is the lock, on every database.
        if not Memory.objects.filter(pk=pair.stored.pk, digest=pair.row.digest).update(text=pair.row.text):
            # Its owner deleted it just now, or corrected it to be something else.
            return False
        data = Memory.objects.values_list("data", flat=True).get(pk=pair.stored.pk)
        Memory.objects.filter(pk=pair.stored.pk).update(data=_merged(pair.row, data))
    return pair.row.text != pair.stored.text


def _kept(pair: _Again, scope: str, old: set[str], changed: dict[str, bool]) -> Kept:
    digest, stored = pair.row.digest, pair.stored
    return Kept(
        id=stored.pk,
        kind=stored.kind,
        scope=scope,
        text=pair.row.text if digest in changed else stored.text,
        is_new=digest not in old,
        is_changed=changed.get(digest, False),
    )


def _is_by_name(kind: str) -> bool:
    """Say whether a memory is the same by its name, so that what is told of it later takes the place of the former."""
    return kind in (MemoryKind.ENTITY, MemoryKind.WORKING_MEMORY)


def _merged(told: Memory, known: dict[str, Any]) -> dict[str, Any]:
    """Return what is told with the attributes known before, as long as a memory can hold both."""
    if told.kind != MemoryKind.ENTITY:
        return dict(told.data)
    attributes = {**_attributes(known), **_attributes(told.data)}
    both = {**told.data, "attributes": attributes} if attributes else dict(told.data)
    return dict(told.data) if _is_too_large(both) else both


def _attributes(data: dict[str, Any]) -> dict[str, Any]:
    found = data.get("attributes")
    return found if isinstance(found, dict) else {}


def _is_too_large(data: dict[str, Any]) -> bool:
    return canonical.byte_size(data) > MAX_DATA_BYTES


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + CUT
