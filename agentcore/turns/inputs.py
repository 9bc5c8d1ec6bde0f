"""What a user sends: check it once, and give it the form in which it is stored."""

from __future__ import annotations

import uuid
from typing import Any

from agentcore import canonical
from agentcore.conf import Rule, settings
from agentcore.exceptions import InvalidInput, TooLarge

MAX_KEY = 255


def checked_message(message: Any) -> dict[str, Any]:
    """Return a user's message as `{"role": "user", "content": text}`; raise InvalidInput or TooLarge.

    A text, or an object with `content` and, if given, the role `user`, is allowed.
    """
    content = message if isinstance(message, str) else _content_of(message)
    if not content.strip():
        raise InvalidInput("message is empty; send some text.", field="message")
    if canonical.has_unstorable_text(content):
        raise InvalidInput("message holds a NUL character or a lone surrogate; remove it.", field="message")
    stored = {"role": "user", "content": content}
    if len(content.encode()) > settings.MAX_INPUT_BYTES:
        raise TooLarge(
            f"message is over {settings.MAX_INPUT_BYTES} bytes.", field="message", limit=settings.MAX_INPUT_BYTES
        )
    return stored


def checked_key(key: Any) -> str:
    """Return an idempotency key of 1 to 255 characters, a random one for None; raise InvalidInput."""
    if key is None:
        return f"auto-{uuid.uuid4().hex}"
    if not isinstance(key, str) or not 1 <= len(key) <= MAX_KEY or canonical.has_unstorable_text(key):
        raise InvalidInput(f"idempotency_key must be text of 1 to {MAX_KEY} characters.", field="idempotency_key")
    return key


def require(name: str, value: Any, rule: Rule) -> None:
    """Raise InvalidInput, which names what is allowed, for a value that does not meet its rule."""
    is_met, allowed = rule
    if not is_met(value):
        raise InvalidInput(f"{name} must be {allowed}, not {value!r}.", field=name)


def _content_of(message: Any) -> str:
    if not isinstance(message, dict):
        raise InvalidInput(
            f"message must be text or an object with role and content, not {type(message).__name__}.",
            field="message",
        )
    unknown = set(message) - {"role", "content"}
    if unknown:
        raise InvalidInput(
            f"message has unknown fields: {', '.join(sorted(map(str, unknown)))}. Allowed: role, content.",
            field="message",
        )
    if message.get("role", "user") != "user":
        raise InvalidInput(f"message.role is {message['role']!r}; only 'user' is allowed.", field="message")
    content = message.get("content")
    if not isinstance(content, str):
        raise InvalidInput("message.content must be text.", field="message")
    return content
