"""Text that arrives in pieces, where a character may be cut in two."""

from __future__ import annotations

from agentcore.canonical import clean_text


class TextPieces:
    """The text so far. Half of a character that JSON writes as two escapes waits for its other half."""

    def __init__(self) -> None:
        self._shown: list[str] = []
        self._half = ""

    def add(self, piece: str) -> str:
        """Take the next piece; return what may be shown now, without NUL or lone surrogates."""
        piece, self._half = self._half + piece, ""
        if piece and "\ud800" <= piece[-1] <= "\udbff":
            piece, self._half = piece[:-1], piece[-1]
        return self._show(piece)

    def end(self) -> str:
        """Return what still waits: half of a character whose other half never came."""
        piece, self._half = self._half, ""
        return self._show(piece)

    def __str__(self) -> str:
        return "".join(self._shown) + clean_text(self._half)

    def _show(self, piece: str) -> str:
        cleaned = clean_text(piece)
        self._shown.append(cleaned)
        return cleaned
