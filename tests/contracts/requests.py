"""What the tests ask models for."""

from typing import Any

from agentcore.messages import Message, ModelRequest, ToolRequest, ToolSpec

KEY = "sk-test-0123456789abcdef"
LOOKUP = ToolSpec(
    name="lookup_order",
    description="Look up an order",
    parameters={"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]},
)
HELLO = Message(role="user", content="Hello")
QUESTION = Message(role="user", content="Where is order 12345?")
CALL = ToolRequest(id="call_1", name="lookup_order", arguments='{"order_id": "12345"}')
RESULT = Message(role="tool", content='{"order_id": "12345", "status": "delivered"}', tool_call_id="call_1")


def request(*messages: Message, **values: Any) -> ModelRequest:
    return ModelRequest(model="test-model", messages=messages or (HELLO,), **{"timeout": 20.0, **values})
