"""Split a text into pieces of a bounded size: by its headings, then paragraphs, then sentences, then words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from agentcore.knowledge import headings
from agentcore.knowledge.headings import MAX_HEADING, Heading

SIZE = 1200
# How much of a piece the next one repeats: what stands across the cut is found in one of them.
OVERLAP = 150

FENCE = re.compile(r"^\s*(```|~~~)")
PARAGRAPH = re.compile(r"\n[ \t]*\n")
SENTENCE = re.compile(r"(?<=[.!?])\s+|\n")


class Piece(NamedTuple):
    """A piece of a text, and the headings above it."""

    heading: str
    text: str


def split(text: str) -> list[Piece]:
    """Return the pieces of a text in order, none longer than SIZE characters."""
    return [
        Piece(heading, piece)
        for heading, body in _sections(text)
        for piece in _overlapping(list(_packed(_blocks(body), SIZE - OVERLAP)))
    ]


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield what stands below each heading; a line in a fenced block is no heading."""
    above: list[Heading] = []
    lines: list[str] = []
    fence = ""
    for line in text.splitlines():
        mark = FENCE.match(line)
        if mark and fence in ("", mark.group(1)):
            fence = "" if fence else mark.group(1)
        found = None if fence or mark else headings.find(line)
        if found is None:
            lines.append(line)
            continue
        yield _path(above), "\n".join(lines)
        above = [*(heading for heading in above if heading.level < found.level), found]
        lines = []
    yield _path(above), "\n".join(lines)


def _path(above: list[Heading]) -> str:
    return " > ".join(heading.words for heading in above)[:MAX_HEADING]


def _blocks(body: str) -> Iterator[str]:
    """Yield the paragraphs; what is too long by itself in sentences, words, or cut."""
    for block in PARAGRAPH.split(body):
        if len(block) <= SIZE - OVERLAP:
            yield block.strip("\n").rstrip()
        else:
            yield from _packed(_fragments(block), SIZE - OVERLAP, between=" ")


def _fragments(block: str) -> Iterator[str]:
    for sentence in SENTENCE.split(block):
        words = sentence.split() if len(sentence) > SIZE - OVERLAP else [sentence.strip()]
        for word in words:
            for start in range(0, len(word), SIZE - OVERLAP):
                yield word[start : start + SIZE - OVERLAP]


def _packed(parts: Iterator[str], size: int, *, between: str = "\n\n") -> Iterator[str]:
    """Join parts as long as they fit."""
    whole = ""
    for part in parts:
        if not part:
            continue
        if whole and len(whole) + len(between) + len(part) > size:
            yield whole
            whole = part
        else:
            whole = f"{whole}{between}{part}" if whole else part
    if whole:
        yield whole


def _overlapping(pieces: list[str]) -> Iterator[str]:
    for number, piece in enumerate(pieces):
        before = _tail(pieces[number - 1]) if number else ""
        yield f"{before}\n\n{piece}" if before else piece


def _tail(piece: str) -> str:
    """Return the last words of a piece."""
    end = piece[-(OVERLAP - 2) :]
    _, space, words = end.partition(" ") if len(piece) > len(end) else ("", " ", end)
    return words.strip() if space else ""
