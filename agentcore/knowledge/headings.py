"""Know a heading of Markdown. Without a pattern, which would try every way to share out the spaces of a long line."""

from __future__ import annotations

from typing import NamedTuple

DEEPEST = 6
MAX_HEADING = 255


class Heading(NamedTuple):
    """A heading: how deep it stands, and its words, cut to MAX_HEADING characters."""

    level: int
    words: str


def find(line: str) -> Heading | None:
    """Return the heading that a line is, None for any other line."""
    rest = line.lstrip("#")
    level = len(line) - len(rest)
    if not 1 <= level <= DEEPEST or not rest[0:1].isspace():
        return None
    words = _without_closing(rest.strip())
    return Heading(level, words[:MAX_HEADING].rstrip()) if words else None


def _without_closing(words: str) -> str:
    """Leave out the signs that may close a heading; those of a word, as in C#, are its own."""
    bare = words.rstrip("#")
    return bare.rstrip() if not bare or bare[-1].isspace() else words
