"""Put a streamed answer together: text in pieces, tool calls whose arguments arrive split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentcore.canonical import clean_text
from agentcore.exceptions import ProviderBadReply, ProviderConnectionError
from agentcore.messages import ModelReply, ToolRequest, Usage
from agentcore.providers.openai import wire
from agentcore.providers.pieces import TextPieces


@dataclass
class _OpenCall:
    index: Any
    id: str = ""
    name: str = ""
    arguments: str = ""


class ChatAssembly:
    """The answer so far. `add` takes each piece, `reply` gives the whole when the stream has ended."""

    def __init__(self) -> None:
        self._text = TextPieces()
        self._refusal: list[str] = []
        self._calls: list[_OpenCall] = []
        self._finish_reason: Any = None
        self._usage = Usage()
        self._model = ""

    def add(self, piece: Any) -> str:
        """Take one decoded piece; return the text in it that a reader may be shown."""
        if not isinstance(piece, Mapping):
            raise ProviderBadReply("The model API streamed something that is no piece of an answer.")
        self._model = str(piece.get("model") or self._model)
        if piece.get("usage"):
            self._usage = wire.read_usage(piece)
        choice = wire.first_choice(piece)
        return self._add_choice(choice) if choice is not None else ""

    def end(self) -> str:
        """Return what is left of the text: half of a character whose other half never came."""
        return self._text.end()

    def reply(self) -> ModelReply:
        """Return the whole answer; raise ProviderConnectionError when it broke off before its end."""
        if self._finish_reason is None:
            raise ProviderConnectionError("The model API's stream ended before its answer did.")
        return wire.make_reply(
            content=str(self._text) or None,
            refusal=clean_text("".join(self._refusal)) or None,
            tool_calls=tuple(ToolRequest(id=c.id, name=c.name, arguments=clean_text(c.arguments)) for c in self._calls),
            finish_reason=self._finish_reason,
            usage=self._usage,
            model=self._model,
        )

    def _add_choice(self, choice: Mapping[str, Any]) -> str:
        self._finish_reason = choice.get("finish_reason") or self._finish_reason
        delta = choice.get("delta")
        if not isinstance(delta, Mapping):
            return ""
        self._refusal.append(wire.read_text(delta.get("refusal")) or "")
        for part in delta.get("tool_calls") or ():
            self._add_call(part)
        return self._text.add(wire.read_text(delta.get("content")) or "")

    def _add_call(self, part: Mapping[str, Any]) -> None:
        function = part.get("function") or {}
        call = self._find_call(part) or self._open_call(part)
        call.id = call.id or str(part.get("id") or "")
        call.name = call.name or str(function.get("name") or "")
        call.arguments += wire.read_arguments(function.get("arguments"))

    def _find_call(self, part: Mapping[str, Any]) -> _OpenCall | None:
        index, given_id = part.get("index"), part.get("id")
        for call in reversed(self._calls):
            # Some servers give every call the index 0, or none: then a new id begins a new call.
            if call.index == index:
                return None if given_id and call.id and call.id != given_id else call
        return None

    def _open_call(self, part: Mapping[str, Any]) -> _OpenCall:
        call = _OpenCall(index=part.get("index"))
        self._calls.append(call)
        return call
