"""What a person changed in a call: field by field, secrets masked."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from agentcore.admin import display
from agentcore.models import ToolApproval
from agentcore.tools.masking import MASK, is_secret, mask

_ABSENT = object()


@dataclass(frozen=True, kw_only=True)
class Change:
    """One field that differs. `field` is its path, as in `items.0.price`; a side is "" where the field is not there."""

    field: str
    proposed: str
    approved: str
    kind: str | Promise


def of_approval(approval: ToolApproval) -> list[Change]:
    """Return how what is approved, or up for approval, differs from what the model asked for."""
    call = approval.call
    proposed = call.arguments if call.proposed_arguments is None else call.proposed_arguments
    if approval.approved_arguments is not None and call.proposed_arguments is None:
        proposed = approval.arguments
    now = approval.arguments if approval.approved_arguments is None else approval.approved_arguments
    return between(proposed, now, call.sensitive)


def between(old: Any, new: Any, sensitive: Collection[str] = ()) -> list[Change]:
    """Return how two values differ, field by field, secrets masked."""
    return list(_between(old, new, sensitive, path=()))


def _between(old: Any, new: Any, sensitive: Collection[str], *, path: tuple[str, ...]) -> Iterator[Change]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            yield from _entry(key, old.get(key, _ABSENT), new.get(key, _ABSENT), sensitive, path=(*path, str(key)))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _between(before, after, sensitive, path=(*path, str(index)))
    elif type(old) is not type(new) or old != new:
        yield _change(path, mask(old, sensitive), mask(new, sensitive))


def _entry(key: Any, old: Any, new: Any, sensitive: Collection[str], *, path: tuple[str, ...]) -> Iterator[Change]:
    if not is_secret(key, sensitive):
        yield from _between(old, new, sensitive, path=path)
    elif old != new:
        yield _change(path, *(value if value is _ABSENT else MASK for value in (old, new)))


def _change(path: tuple[str, ...], old: Any, new: Any) -> Change:
    kind = _("added") if old is _ABSENT else _("removed") if new is _ABSENT else _("changed")
    return Change(field=display.marked(".".join(path)), proposed=_shown(old), approved=_shown(new), kind=kind)


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return ""
    return display.marked(
        value if isinstance(value, str) and value.strip() else json.dumps(value, ensure_ascii=False, indent=2)
    )
