"""Give the record of decisions out: as rows, as CSV and as JSON, whatever its length."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any

from django.db.models import QuerySet

from agentcore.approvals.shown import moment
from agentcore.models import DECIDE_PERMISSION, ApprovalDecision
from agentcore.states import Verdict

CHUNK = 500

# The columns, and where each is read. Those after `arguments_digest` are made of these and of what is read besides.
_SOURCES = {
    "decision_id": "pk",
    "at": "created_at",
    "approval_id": "approval_id",
    "kind": "approval__kind",
    "tool": "approval__tool",
    "agent": "approval__agent__name",
    "session_id": "approval__session__session_id",
    "execution_id": "approval__turn__execution_id",
    "call_id": "approval__call__call_id",
    "version": "approval_version",
    "status": "approval__status",
    "verdict": "verdict",
    "refusal": "refusal",
    "actor_name": "actor_name",
    "actor_key": "actor_key",
    "channel": "channel",
    "note": "note",
    "arguments_digest": "arguments_digest",
}
_BESIDES = ("counted_key", "approval__requester_key", "approval__permission", "proposed_digest")
COLUMNS = (*_SOURCES, "is_own", "permissions", "is_edit", "proposed_digest", "approved_digest")

# A spreadsheet takes what begins so for a formula; the wide forms too.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def rows(decisions: QuerySet[ApprovalDecision]) -> Iterator[dict[str, Any]]:
    """Yield each entry as a dict of COLUMNS, ready for JSON, the oldest first; the queryset must not be sliced.

    Reads CHUNK entries at a time, with one query each, and holds no more than those.
    """
    entries = decisions.order_by("pk").values_list(*_SOURCES.values(), *_BESIDES)
    last = 0
    while chunk := list(entries.filter(pk__gt=last)[:CHUNK]):
        last = chunk[-1][0]
        for values in chunk:
            yield _row(values)


def as_csv(entries: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield CSV with a header line. Text that a spreadsheet would take for a formula gets a ' before it."""
    yield _line(COLUMNS)
    for entry in entries:
        yield _line([_cell(entry[name]) for name in COLUMNS])


def as_json(entries: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield one JSON array of objects, one a line."""
    before = "[\n"
    for entry in entries:
        yield before + json.dumps(entry, ensure_ascii=False)
        before = ",\n"
    yield "[]\n" if before == "[\n" else "\n]\n"


def _row(values: tuple[Any, ...]) -> dict[str, Any]:
    *own, counted_key, requester_key, permission, proposed = values
    entry = dict(zip(_SOURCES, own, strict=True))
    is_approval = counted_key is not None and entry["verdict"] == Verdict.APPROVE
    return {
        **entry,
        "at": moment(entry["at"]),
        "execution_id": str(entry["execution_id"]),
        "is_own": counted_key is not None and entry["actor_key"] == requester_key,
        "permissions": " ".join((DECIDE_PERMISSION, *permission.split())),
        "is_edit": is_approval and proposed != entry["arguments_digest"],
        "proposed_digest": proposed or entry["arguments_digest"],
        "approved_digest": entry["arguments_digest"] if is_approval else "",
    }


def _line(cells: Iterable[Any]) -> str:
    text = io.StringIO()
    csv.writer(text).writerow(cells)
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value
