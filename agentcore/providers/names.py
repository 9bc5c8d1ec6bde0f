"""Names and ids of calls in a form that every model API takes back."""

from __future__ import annotations

import re

MAX_NAME_CHARS = 64
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")


def tool_name(name: str) -> str:
    """Return the name of a called tool. Models invent tools, and an API that refuses the name refuses the session."""
    return _FOREIGN.sub("_", name)[:MAX_NAME_CHARS] or "unnamed"


def call_id(given: str) -> str:
    """Return a call's id without the characters that only some APIs use; different ids stay different."""
    return _FOREIGN.sub(lambda found: f"_{ord(found[0]):x}_", given)
