"""Read the answer out of a JSON object that is still being written."""

from __future__ import annotations

import json
import re

from agentcore.providers.pieces import TextPieces
from agentcore.providers.structured.schema import ANSWER

_BEGIN = re.compile(r'\s*\{\s*"' + ANSWER + r'"\s*:\s*"')
# Characters and escapes that are all there, up to the quote that ends the text; an escape that is none passes as text.
_PIECES = re.compile(r'(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\u(?=[0-9a-fA-F]{0,3}[^0-9a-fA-F])|\\[^u])+')


class AnswerText:
    """The text so far of an object that begins as an answer; nothing of any other."""

    def __init__(self) -> None:
        self._unread = ""
        self._text = TextPieces()
        self._has_begun = False
        self._has_ended = False

    @property
    def shown(self) -> str:
        """All that `add` returned."""
        return str(self._text)

    def add(self, piece: str) -> str:
        """Take the next piece of the JSON; return the text that came in it, decoded."""
        if self._has_ended:
            return ""
        self._unread += piece
        if not self._has_begun and not self._begin():
            return ""
        found = _PIECES.match(self._unread)
        if found is None:
            self._has_ended = self._unread.startswith('"')
            return ""
        self._unread = self._unread[found.end() :]
        self._has_ended = self._unread.startswith('"')
        return self._text.add(_decoded(found[0]))

    def _begin(self) -> bool:
        begin = _BEGIN.match(self._unread)
        if begin is None:
            return False
        self._unread = self._unread[begin.end() :]
        self._has_begun = True
        return True


def _decoded(escaped: str) -> str:
    try:
        # Not strict: small models write line breaks as they are.
        text: str = json.loads(f'"{escaped}"', strict=False)
    except ValueError:
        return escaped  # an escape that JSON does not know
    return text
