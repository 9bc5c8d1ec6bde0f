"""Read what came of a tool call from the text of its tool message."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["done", "rejected", "expired", "unknown", "cancelled", "failed"]

_KINDS: dict[str, Kind] = {
    "rejected": "rejected",
    "denied": "rejected",
    "declined": "rejected",
    "expired": "expired",
    "unknown": "unknown",
    "cancelled": "cancelled",
    "failed": "failed",
    "error": "failed",
}
# An error is short; a long text is a result, whatever words it holds.
MAX_ERROR_CHARS = 300
_REASON_KEYS = ("reason", "message", "error", "detail")
# "A person declined this call: too expensive" holds the reason behind the colon.
_DECLINED_PREFIX = re.compile(r"^[^:]*\b(?:declined|rejected|refused|denied)\b[^:]*:\s*", re.IGNORECASE)
_DECLINED = re.compile(
    r"\b(?:declined this|(?:was|been) (?:declined|rejected|denied)\b)|^(?:declined|rejected|denied)\b", re.IGNORECASE
)
_NOT_FOUND = re.compile(r"\b(?:not found|no such|does not exist|there is no)\b", re.IGNORECASE)
_ERROR_LABEL = re.compile(r"^\W*error\W+", re.IGNORECASE)
_ERROR = re.compile(
    r"^\W*error\b|\b(?:not found|no such|does not exist|unknown tool|failed|invalid|timed out|could not|cannot|"
    r"not allowed|not run|step limit|refused)\b",
    re.IGNORECASE,
)

_KINDS_OF_TEXT: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("rejected", _DECLINED),
    ("unknown", re.compile(r"\b(?:nobody knows|may have happened|outcome is (?:not known|unknown))\b", re.IGNORECASE)),
    ("expired", re.compile(r"\bnobody decided\b|\b(?:request|approval) (?:has )?expired\b", re.IGNORECASE)),
    ("cancelled", re.compile(r"\bcall was cancelled\b", re.IGNORECASE)),
    ("failed", _ERROR),
)
# Stands before the result of a call that a person changed before allowing it.
_CHANGED_NOTE = re.compile(r"\[[^\n]*?(\{[^\n]*\})\]\n")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a call. `data` is its result when it is done, `reason` says why it is not."""

    kind: Kind
    data: Any = None
    reason: str = ""

    @property
    def is_not_found(self) -> bool:
        """Whether the call failed because what it was asked for does not exist."""
        return self.kind == "failed" and bool(_NOT_FOUND.search(self.reason))


def split_note(content: str) -> tuple[dict[str, Any] | None, str]:
    """Return the arguments that a note before a result says were used instead, and the result's own text."""
    found = _CHANGED_NOTE.match(content)
    if found is None:
        return None, content
    return read_object(found[1]), content[found.end() :]


def read_object(text: str) -> dict[str, Any]:
    """Return the JSON object in `text`, an empty one when there is none."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def read_outcome(content: str, arguments: Mapping[str, Any]) -> Outcome:
    """Return the outcome that a tool message's text tells of a call with these arguments."""
    try:
        data = json.loads(content)
    except ValueError:
        data = content
    if isinstance(data, str):
        return _read_text(data)
    if isinstance(data, Mapping):
        return _read_object(data, arguments)
    return Outcome(kind="done", data=data)


def _read_text(text: str) -> Outcome:
    text = text.strip()
    if len(text) > MAX_ERROR_CHARS:
        return Outcome(kind="done", data=text)
    kind: Kind = next((kind for kind, pattern in _KINDS_OF_TEXT if pattern.search(text)), "done")
    if kind == "done":
        return Outcome(kind="done", data=text)
    return Outcome(kind=kind, reason=_bare_reason(text) if kind == "rejected" else _ERROR_LABEL.sub("", text))


def _read_object(data: Mapping[str, Any], arguments: Mapping[str, Any]) -> Outcome:
    kind = _KINDS.get(str(data.get("status", "")).lower())
    if kind is not None and _is_about_the_call(data, arguments):
        return Outcome(kind=kind, reason=_bare_reason(_reason(data)))
    if data.get("error"):
        return Outcome(kind="failed", reason=_reason({"error": data["error"]}))
    if any(data.get(key) is False for key in ("found", "ok", "success")):
        return Outcome(kind="failed", reason=_reason(data))
    return Outcome(kind="done", data=dict(data))


def _is_about_the_call(data: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool:
    # An order may be "cancelled" as well; a record repeats what it was looked up by, or says more than why.
    echoes_argument = any(key in data for key in arguments)
    says_why = any(data.get(key) for key in _REASON_KEYS)
    return not echoes_argument and (says_why or len(data) == 1)


def _reason(data: Mapping[str, Any]) -> str:
    for key in _REASON_KEYS:
        value = data.get(key)
        if isinstance(value, Mapping):
            value = value.get("message")
        if isinstance(value, str) and value:
            return value
    return ""


def _bare_reason(text: str) -> str:
    bare = _DECLINED_PREFIX.sub("", text).strip()
    return "" if bare == text.strip() and _DECLINED.search(bare) else bare
