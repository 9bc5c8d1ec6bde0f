"""What travels to and from a model: messages, tool requests, replies, usage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]
FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "refusal", "other"]


@dataclass(frozen=True, kw_only=True)
class ToolRequest:
    """One call a model asks for. `arguments` is the raw JSON text, exactly as the model wrote it."""

    id: str
    name: str
    arguments: str = "{}"


@dataclass(frozen=True, kw_only=True)
class Message:
    """One entry of a conversation. `content` is None only beside `tool_calls`."""

    role: Role
    content: str | None = None
    tool_calls: tuple[ToolRequest, ...] = ()
    tool_call_id: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the message as plain JSON, without the parts that are empty."""
        data: dict[str, Any] = {"role": self.role}
        if self.content is not None:
            data["content"] = self.content
        if self.tool_calls:
            data["tool_calls"] = [
                {"id": call.id, "name": call.name, "arguments": call.arguments} for call in self.tool_calls
            ]
        if self.tool_call_id is not None:
            data["tool_call_id"] = self.tool_call_id
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Message:
        """Read what `as_dict` wrote."""
        return cls(
            role=data["role"],
            content=data.get("content"),
            tool_calls=tuple(ToolRequest(**call) for call in data.get("tool_calls", ())),
            tool_call_id=data.get("tool_call_id"),
        )


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens a request used, as the provider counted them; 0 when it did not say."""

    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class ToolSpec:
    """A tool as a model is shown it; `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """One request to a provider. `timeout` is in seconds and covers the whole request."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    temperature: float | None = None
    max_tokens: int | None = None
    timeout: float = 60.0
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ModelReply:
    """One answer of a provider."""

    content: str | None = None
    tool_calls: tuple[ToolRequest, ...] = ()
    finish_reason: FinishReason = "stop"
    usage: Usage = Usage()
    model: str = ""


@dataclass(frozen=True, kw_only=True)
class ModelDelta:
    """A piece of a streamed answer's text. A higher `attempt` voids the text of every lower one."""

    text: str
    attempt: int = 1
