"""Read a reply whose text is a JSON object: an answer, a call, or what became of either when it was cut."""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import replace
from typing import Any

from agentcore.canonical import clean_text
from agentcore.messages import ModelReply, ToolRequest
from agentcore.providers.structured.answer import AnswerText
from agentcore.providers.structured.schema import ANSWER, ARGUMENTS, TOOL

_FENCE = re.compile(r"\s*```(?:json)?\s*(.*?)\s*```\s*", re.DOTALL)
_CUT_CALL = re.compile(r'\s*\{\s*"' + TOOL + r'"\s*:\s*"([^"]*)"(?:\s*,\s*"' + ARGUMENTS + r'"\s*:\s*(.*))?', re.DOTALL)


def read(reply: ModelReply) -> ModelReply:
    """Return the reply that `reply.content` means. What is no such object is an answer as it stands."""
    if reply.tool_calls or not reply.content or reply.finish_reason in ("refusal", "content_filter"):
        return reply
    text = _unfenced(reply.content)
    found = _parsed(text)
    if isinstance(found.get(TOOL), str):
        return _as_call(reply, found[TOOL], _arguments(found.get(ARGUMENTS)))
    if isinstance(found.get(ANSWER), str):
        return replace(reply, content=clean_text(found[ANSWER]) or None)
    return reply if found else _read_cut(reply, text)


def _read_cut(reply: ModelReply, text: str) -> ModelReply:
    """Read an object that broke off: half an answer is one; half a call stays one, with what there is of arguments."""
    if call := _CUT_CALL.match(text):
        return _as_call(reply, call[1], call[2] or "{")
    answer = AnswerText()
    answer.add(text)
    return replace(reply, content=answer.shown) if answer.shown else reply


def _as_call(reply: ModelReply, name: str, arguments: str) -> ModelReply:
    call = ToolRequest(id=f"call_{secrets.token_hex(8)}", name=name, arguments=arguments)
    reason = "tool_calls" if reply.finish_reason in ("stop", "other") else reply.finish_reason
    return replace(reply, content=None, tool_calls=(call,), finish_reason=reason)


def _unfenced(text: str) -> str:
    # Servers that know no response format leave the model to its habits.
    fenced = _FENCE.fullmatch(text)
    return fenced[1] if fenced else text


def _parsed(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _arguments(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps({} if value is None else value)
