"""The response format: a JSON Schema of what the model may say, an answer or one of the calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentcore.messages import ToolSpec

ANSWER = "answer"
TOOL = "tool"
ARGUMENTS = "arguments"

# Servers make a grammar of the schema, and refuse what they cannot put into one (patterns, formats). Nothing is
# lost by leaving it out: arguments are checked against the whole schema before anything runs.
_KEPT = frozenset({"type", "enum", "const", "required", "description"})
_SCHEMAS = frozenset({"items", "additionalProperties"})
_LISTS_OF_SCHEMAS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_REFERENCE = "#/$defs/"


def response_format(tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """Return the `response_format` of a request with these tools."""
    return {"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": reply_schema(tools)}}


def reply_schema(tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """Return the schema of a reply: `{"answer": …}`, or `{"tool": …, "arguments": {…}}` of one of the tools."""
    answer = _object({ANSWER: {"type": "string"}})
    schema: dict[str, Any] = {"type": "object", "anyOf": [answer, *(_call(tool) for tool in tools)]}
    definitions = {
        _definition_name(tool, name): _simplified(definition, tool=tool)
        for tool in tools
        for name, definition in tool.parameters.get("$defs", {}).items()
    }
    return {**schema, "$defs": definitions} if definitions else schema


def has_parameters(tool: ToolSpec) -> bool:
    """Say whether the tool takes any argument."""
    return bool(tool.parameters.get("properties"))


def _call(tool: ToolSpec) -> dict[str, Any]:
    name = {"type": "string", "enum": [tool.name]}
    if not has_parameters(tool):
        return _object({TOOL: name})
    return _object({TOOL: name, ARGUMENTS: _simplified(tool.parameters, tool=tool)})


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _simplified(schema: Any, *, tool: ToolSpec) -> Any:
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _KEPT:
            kept[key] = value
        elif key == "properties":
            kept[key] = {name: _simplified(item, tool=tool) for name, item in value.items()}
        elif key in _SCHEMAS:
            kept[key] = _simplified(value, tool=tool)
        elif key in _LISTS_OF_SCHEMAS:
            kept[key] = [_simplified(item, tool=tool) for item in value]
        elif key == "$ref":
            kept[key] = _REFERENCE + _definition_name(tool, value.removeprefix(_REFERENCE))
    return kept


def _definition_name(tool: ToolSpec, name: str) -> str:
    # Two tools may have definitions of one name.
    return f"{tool.name}.{name}"
