"""The offline provider: a small rule engine that plays an agent honestly, for demos, tests and first steps.

It reads the conversation and the tools' schemas, replays no script, and gives the same answer to the same
request. The parts: words (English), conversation (what was said and done), outcomes (what a tool message
means), schema and detect and filling (arguments), intents (which tool), rules (what next), phrasing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from agentcore.messages import ModelDelta, ModelReply, ModelRequest, ToolRequest, Usage
from agentcore.providers.base import ModelProvider
from agentcore.providers.demo import phrasing, rules

CHARS_PER_TOKEN = 4


class DemoProvider(ModelProvider):
    """Answers any request at once and without a network. The model's name, `demo:<anything>`, changes nothing."""

    def complete(self, request: ModelRequest) -> ModelReply:
        """Return one tool call, or an answer in plain English. Tokens are estimated from the length."""
        decision = rules.decide(request.messages, request.tools)
        if isinstance(decision, rules.Say):
            usage = _estimate(request, decision.text)
            return ModelReply(content=decision.text, usage=usage, model=request.model)
        arguments = json.dumps(decision.arguments, ensure_ascii=False)
        call = ToolRequest(id=f"call_{decision.number}", name=decision.tool, arguments=arguments)
        usage = _estimate(request, arguments)
        return ModelReply(tool_calls=(call,), finish_reason="tool_calls", usage=usage, model=request.model)

    def stream(self, request: ModelRequest) -> Iterator[ModelDelta | ModelReply]:
        """Yield the answer word by word, then the reply."""
        reply = self.complete(request)
        for word in phrasing.split_words(reply.content or ""):
            yield ModelDelta(text=word)
        yield reply


def _estimate(request: ModelRequest, answer: str) -> Usage:
    asked = sum(len(message.content or "") for message in request.messages)
    return Usage(input_tokens=asked // CHARS_PER_TOKEN, output_tokens=len(answer) // CHARS_PER_TOKEN)
