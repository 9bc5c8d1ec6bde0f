"""What a model is told about its tools in the system prompt, with examples that look like real use."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentcore.messages import Message, ToolSpec
from agentcore.providers.structured.examples import example_arguments
from agentcore.providers.structured.history import told_result
from agentcore.providers.structured.schema import ANSWER, ARGUMENTS, TOOL, has_parameters

FORMS = f"""\
Reply with one JSON object and nothing else. It has one of two forms:
{{"{TOOL}": "name of the tool", "{ARGUMENTS}": {{…}}}} to call a tool
{{"{ANSWER}": "what you say"}} to answer the user

Call a tool when it is needed for what the user asks; its result comes with the next message. Then answer with \
what the result says. Take every argument from the user's words or from a result. If one is missing, ask for it in \
an answer."""

MAX_TOOLS_SHOWN_TWICE = 6


def added_to(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> tuple[Message, ...]:
    """Return the messages with the guidance at the end of the system prompt, which is made if there is none."""
    text = "\n\n".join((FORMS, _described(tools), _shown(tools)))
    if messages and messages[0].role == "system":
        prompt = "\n\n".join(part for part in (messages[0].content, text) if part)
        return (Message(role="system", content=prompt), *messages[1:])
    return (Message(role="system", content=text), *messages)


def _described(tools: Sequence[ToolSpec]) -> str:
    return "\n".join(["Tools:", *(line for tool in tools for line in _lines(tool))])


def _lines(tool: ToolSpec) -> Iterator[str]:
    yield f"- {tool.name}: {' '.join(tool.description.split())}"
    required = tool.parameters.get("required", ())
    for name, schema in tool.parameters.get("properties", {}).items():
        description = f": {schema['description']}" if schema.get("description") else ""
        yield f"    {name} ({_kind(schema)}{'' if name in required else ', optional'}){description}"


def _kind(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(_json(value) for value in schema["enum"])
    alternatives = schema.get("anyOf") or schema.get("oneOf")
    if alternatives:
        return " or ".join(dict.fromkeys(_kind(item) for item in alternatives))
    return str(schema.get("format") or schema.get("type") or "object")


def _shown(tools: Sequence[ToolSpec]) -> str:
    # A model of 270 million parameters chose and filled in better with two dialogues of each tool than with one.
    seconds = [False, True] if len(tools) <= MAX_TOOLS_SHOWN_TWICE else [False]
    lines = (line for tool in tools for second in seconds for line in _dialogue(tool, second=second))
    return "\n".join(["Examples, with values of their own:", *lines])


def _dialogue(tool: ToolSpec, *, second: bool) -> Iterator[str]:
    arguments = example_arguments(tool.parameters, second=second) if has_parameters(tool) else {}
    yield f"User: {_wish(tool, is_polite=second)}{': ' if arguments else ''}{_facts(arguments)}."
    yield f"Assistant: {_json({TOOL: tool.name, ARGUMENTS: arguments} if arguments else {TOOL: tool.name})}"
    yield f"User: {told_result(tool.name, 'ok')}"
    yield f"Assistant: {_json({ANSWER: 'The result is: ok.'})}"


def _wish(tool: ToolSpec, *, is_polite: bool) -> str:
    first_line = tool.description.strip().partition("\n")[0].rstrip(".")
    wish = first_line or tool.name
    return f"Please {wish[0].lower()}{wish[1:]}" if is_polite else wish


def _facts(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {_said(value)}" for name, value in arguments.items())


def _said(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
