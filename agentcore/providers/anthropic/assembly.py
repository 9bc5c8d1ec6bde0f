"""Put a streamed answer together: blocks of text and of tool calls, each in pieces of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentcore.canonical import clean_text
from agentcore.exceptions import ProviderBadReply, ProviderConnectionError
from agentcore.messages import ModelReply, ToolRequest, Usage
from agentcore.providers.anthropic import wire
from agentcore.providers.pieces import TextPieces


@dataclass
class _OpenCall:
    begun: ToolRequest
    arguments: str = ""

    def request(self) -> ToolRequest:
        # The API begins each call with an empty object; the pieces, if there are any, are the arguments.
        arguments = self.arguments or self.begun.arguments
        return ToolRequest(id=self.begun.id, name=self.begun.name, arguments=clean_text(arguments))


class MessageAssembly:
    """The answer so far. `add` takes each event, `reply` gives the whole when the stream has ended."""

    def __init__(self) -> None:
        self._text = TextPieces()
        self._calls: dict[Any, _OpenCall] = {}
        self._stop: Mapping[str, Any] = {}
        self._usage = Usage()
        self._model = ""

    def add(self, piece: Any) -> str:
        """Take one decoded event; return the text in it that a reader may be shown."""
        if not isinstance(piece, Mapping):
            raise ProviderBadReply("The model API streamed something that is no piece of an answer.")
        match piece.get("type"):
            case "message_start":
                self._begin(_part(piece, "message"))
            case "content_block_start":
                return self._open_block(piece.get("index"), _part(piece, "content_block"))
            case "content_block_delta":
                return self._add_to_block(piece.get("index"), _part(piece, "delta"))
            case "message_delta":
                self._stop = {**self._stop, **_part(piece, "delta")}
                self._usage = wire.read_usage(piece.get("usage"), before=self._usage)
        return ""

    def end(self) -> str:
        """Return what is left of the text: half of a character whose other half never came."""
        return self._text.end()

    def reply(self) -> ModelReply:
        """Return the whole answer; raise ProviderConnectionError when it broke off before its end."""
        if self._stop.get("stop_reason") is None:
            raise ProviderConnectionError("The model API's stream ended before its answer did.")
        return wire.make_reply(
            text=str(self._text),
            tool_calls=tuple(call.request() for call in self._calls.values()),
            stop_reason=self._stop["stop_reason"],
            stop_details=self._stop.get("stop_details"),
            usage=self._usage,
            model=self._model,
        )

    def _begin(self, message: Mapping[str, Any]) -> None:
        self._model = str(message.get("model") or "")
        self._usage = wire.read_usage(message.get("usage"))

    def _open_block(self, index: Any, block: Mapping[str, Any]) -> str:
        if block.get("type") == "tool_use":
            self._calls[index] = _OpenCall(wire.read_call(block))
        return self._text.add(wire.read_text(block.get("text"))) if block.get("type") == "text" else ""

    def _add_to_block(self, index: Any, delta: Mapping[str, Any]) -> str:
        if delta.get("type") == "input_json_delta" and index in self._calls:
            self._calls[index].arguments += wire.read_text(delta.get("partial_json"))
        return self._text.add(wire.read_text(delta.get("text"))) if delta.get("type") == "text_delta" else ""


def _part(event: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = event.get(name)
    return part if isinstance(part, Mapping) else {}
