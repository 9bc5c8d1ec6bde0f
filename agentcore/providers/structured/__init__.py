"""Tool calls through the response format, for models that cannot call tools by themselves.

The model answers with one JSON object, which its server forces into the shape: an answer or a call. That
shape, and what it means, is told in the system prompt; calls and results of earlier are told as text.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import replace

from agentcore.messages import ModelDelta, ModelReply, ModelRequest
from agentcore.providers.structured import guidance, history, reading, schema
from agentcore.providers.structured.answer import AnswerText

Stream = Generator[ModelDelta | ModelReply, None, None]


def complete(request: ModelRequest, *, by: Callable[[ModelRequest], ModelReply]) -> ModelReply:
    """Return the reply of `by`, a provider's own `complete`, with the call that its text asked for."""
    reply = by(as_text(request))
    return reading.read(reply) if request.tools else reply


def stream(request: ModelRequest, *, by: Callable[[ModelRequest], Stream]) -> Stream:
    """Yield an answer's text as `by`, a provider's own `stream`, sends it: never the JSON around it, nor a call."""
    items = by(as_text(request))
    return _reading(items) if request.tools else items


def as_text(request: ModelRequest) -> ModelRequest:
    """Return the request without tools: they are in its system prompt, its response format and its texts."""
    messages = history.as_text(request.messages, is_structured=bool(request.tools))
    if not request.tools:
        return replace(request, messages=messages)
    return replace(
        request,
        messages=guidance.added_to(messages, request.tools),
        tools=(),
        options={**request.options, "response_format": schema.response_format(request.tools)},
    )


def _reading(items: Stream) -> Stream:
    answer = AnswerText()
    with closing(items):
        for item in items:
            if isinstance(item, ModelReply):
                yield from _last(reading.read(item), shown=answer.shown)
            elif text := answer.add(item.text):
                yield replace(item, text=text)


def _last(reply: ModelReply, *, shown: str) -> Iterator[ModelDelta | ModelReply]:
    content = reply.content or ""
    if content != shown and content.startswith(shown):
        yield ModelDelta(text=content.removeprefix(shown))
    yield reply
