"""What is different between two sets of arguments, field by field, secrets masked."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from agentcore import canonical
from agentcore.reviews import reading
from agentcore.reviews.reading import Shown
from agentcore.tools import masking

ADDED, REMOVED, CHANGED = "added", "removed", "changed"
MAX_DEPTH = 4
MAX_CHANGES = 200

_ABSENT = object()


@dataclass(frozen=True, kw_only=True)
class Change:
    """One field that differs. `kind`: added, removed or changed; what is not there, or was not kept, is None.

    Of a secret (`is_hidden`) only that it differs is told.
    """

    name: str
    kind: str
    old: Shown | None
    new: Shown | None
    is_hidden: bool = False


def between(old: Any, new: Any, sensitive: Collection[str] = ()) -> list[Change]:
    """Return what differs, in the order of the new arguments; nested fields by their path."""
    return list(islice(_compare("", old, new, sensitive, depth=0), MAX_CHANGES))


def _compare(path: str, old: Any, new: Any, sensitive: Collection[str], *, depth: int) -> Iterator[Change]:
    if _is_same(old, new):
        return
    if isinstance(old, dict) and isinstance(new, dict) and depth < MAX_DEPTH:
        for key in [*new, *(key for key in old if key not in new)]:
            yield from _entry(path, key, old, new, sensitive, depth)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new) and depth < MAX_DEPTH:
        for index, pair in enumerate(zip(old, new, strict=True)):
            yield from _compare(_join(path, str(index)), *pair, sensitive, depth=depth + 1)
    else:
        yield _change(path, _masked(old, sensitive), _masked(new, sensitive))


def _entry(
    path: str, key: str, old: dict[str, Any], new: dict[str, Any], sensitive: Collection[str], depth: int
) -> Iterator[Change]:
    before, after, name = old.get(key, _ABSENT), new.get(key, _ABSENT), _join(path, key)
    if _is_same(before, after):
        return
    if masking.is_secret(key, sensitive):
        yield _change(name, _hidden(before), _hidden(after), is_hidden=True)
    elif before is _ABSENT or after is _ABSENT:
        yield _change(name, _masked(before, sensitive), _masked(after, sensitive))
    else:
        yield from _compare(name, before, after, sensitive, depth=depth + 1)


def _change(name: str, old: Any, new: Any, *, is_hidden: bool = False) -> Change:
    return Change(
        name=name,
        kind=ADDED if old is _ABSENT else REMOVED if new is _ABSENT else CHANGED,
        old=None if old is _ABSENT else reading.whole(name, old),
        new=None if new is _ABSENT else reading.whole(name, new),
        is_hidden=is_hidden,
    )


def _is_same(old: Any, new: Any) -> bool:
    # To Python, True is 1.
    if old is _ABSENT or new is _ABSENT:
        return old is new
    return bool(canonical.dumps(old) == canonical.dumps(new))


def _masked(value: Any, sensitive: Collection[str]) -> Any:
    return value if value is _ABSENT else masking.mask(value, sensitive)


def _hidden(value: Any) -> Any:
    return value if value is _ABSENT else masking.MASK


def _join(path: str, part: str) -> str:
    return f"{path}.{part}" if path else part
