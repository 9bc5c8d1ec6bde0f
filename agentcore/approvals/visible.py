"""Make visible what hides in a text: characters without a shape, and those that turn the direction of reading.

A reviewer must see what runs. "⟨U+202E⟩" stands where such a character is; line feeds and tabs stay as they are.
The characters and what they can do: Unicode Technical Report 36, sections 2 and 3.
"""

from __future__ import annotations

import re
import unicodedata

_PLAIN = {"\n", "\t"}
# Letters and symbols by category, and blank to the eye.
_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0\u034f\u17b4\u17b5")
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Zl", "Zp", "Co", "Cs", "Cn"})
_JOINER = "\u200d"
_SELECTOR = "\ufe0f"
_NOT_ASCII = re.compile(r"[^\n\t\x20-\x7e]")


def made_visible(text: str) -> str:
    """Return the text with a mark in place of each hidden character."""
    return "".join(piece for piece, _ in pieces(text))


def pieces(text: str) -> list[tuple[str, bool]]:
    """Return the text in parts, each with whether it is a mark and not the text's own."""
    if not _NOT_ASCII.search(text):
        return [(text, False)] if text else []
    found: list[tuple[str, bool]] = []
    start = 0
    for at in (match.start() for match in _NOT_ASCII.finditer(text)):
        if _is_hidden(text, at):
            if at > start:
                found.append((text[start:at], False))
            found.append((f"⟨U+{ord(text[at]):04X}⟩", True))
            start = at + 1
    if start < len(text):
        found.append((text[start:], False))
    return found


def has_hidden(text: str) -> bool:
    """Say whether a text holds what a reader would not see."""
    return any(_is_hidden(text, match.start()) for match in _NOT_ASCII.finditer(text))


def _is_hidden(text: str, at: int) -> bool:
    character = text[at]
    if character in _PLAIN or character == _SELECTOR:
        return False
    if character == _JOINER:
        return not _joins_pictures(text, at)
    category = unicodedata.category(character)
    # Spaces that are not the usual one hide in names and numbers.
    return category in _HIDDEN_CATEGORIES or character in _BLANK or (category == "Zs" and character != " ")


def _joins_pictures(text: str, at: int) -> bool:
    # A picture and its selector: two characters, however long the text is.
    before = text[max(0, at - 2) : at].rstrip(_SELECTOR)[-1:]
    after = text[at + 1 : at + 2]
    return all(one and unicodedata.category(one) in {"So", "Sk"} for one in (before, after))
