"""What a person sends as a decision, checked as far as it can be without the request's row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agentcore import canonical
from agentcore.agents.registry import registry
from agentcore.approvals.previews import Preview
from agentcore.conf import settings
from agentcore.exceptions import Conflict, InvalidInput, TooLarge
from agentcore.models import ToolApproval
from agentcore.states import Channel, Verdict
from agentcore.tools import masking, results, schema
from agentcore.tools.definition import ToolDefinition

MAX_NOTE = 10_000

ArgumentsOf = Callable[[ToolApproval], Any]


@dataclass(frozen=True, kw_only=True)
class Given:
    """A decision as it came in. `arguments` finds what is approved: what was shown, or an edit of it."""

    verdict: Verdict
    by: Any
    channel: Channel
    version: int | None
    note: str
    result: Any = None
    arguments: ArgumentsOf
    is_edit: bool = False
    preview: Preview | None = None


def as_shown(approval: ToolApproval) -> Any:
    """Return the arguments the person was shown."""
    return approval.arguments


def edited(given: Any) -> ArgumentsOf:
    """Return what checks an edit that replaces the whole arguments; a masked value keeps the real one."""

    def find(approval: ToolApproval) -> Any:
        _require_storable(given, "arguments")
        unmasked = masking.unmask(given, approval.arguments, approval.call.sensitive)
        if is_same(unmasked, approval.arguments):
            return approval.arguments
        if not approval.allow_edit:
            raise Conflict("The arguments of this tool may not be edited. Approve or reject them as they are.")
        return schema.validate_arguments(_definition(approval), unmasked)

    return find


def is_same(one: Any, other: Any) -> bool:
    """Say whether two values are the same JSON: in Python true equals 1, in JSON it does not."""
    try:
        return canonical.dumps(one) == canonical.dumps(other)
    except (TypeError, ValueError, RecursionError):
        return False


def checked_note(note: Any, *, field: str = "note") -> str:
    """Return a note or reason; raise InvalidInput when it cannot be stored."""
    if not isinstance(note, str) or len(note) > MAX_NOTE or canonical.has_unstorable_text(note):
        raise InvalidInput(
            f"{field} must be text of at most {MAX_NOTE} characters without NUL or lone surrogates.", field=field
        )
    return note


def checked_person(by: Any) -> Any:
    """Return the user who decides; raise InvalidInput for what is no stored user."""
    if getattr(by, "pk", None) is None or not getattr(by, "is_authenticated", False):
        raise InvalidInput(f"by must be a stored user, not {type(by).__name__}.", field="by")
    return by


def checked_version(version: Any) -> int | None:
    """Return the version of the request that the person saw, None when the face does not tell."""
    if version is None or (isinstance(version, int) and not isinstance(version, bool) and version >= 1):
        return version
    raise InvalidInput(f"version must be a whole number of at least 1, not {version!r}.", field="version")


def checked_result(result: Any) -> Any:
    """Return what a person gives in place of the tool's result, as it is stored."""
    _require_storable(result, "result")
    stored = results.to_json(result)
    if canonical.byte_size(stored) > settings.MAX_ARGUMENT_BYTES:
        raise TooLarge(f"result is over {settings.MAX_ARGUMENT_BYTES} bytes.", field="result")
    return stored


def _require_storable(value: Any, field: str) -> None:
    """Raise unless what a person sends can be stored as it is: nothing of it is cleaned behind their back."""
    if canonical.has_unstorable_text(value):
        raise InvalidInput(f"{field} holds a NUL character or a lone surrogate; remove it.", field=field)
    limit = settings.MAX_ARGUMENT_BYTES
    try:
        size = canonical.byte_size(value)
    except (TypeError, ValueError, RecursionError):
        # Values of Python have another form when they are stored; that form is measured there.
        return
    if size > limit:
        raise TooLarge(f"{field} is over {limit} bytes.", field=field, limit=limit)


def find_definition(approval: ToolApproval) -> ToolDefinition | None:
    """Return the tool as it is deployed here, or None."""
    agent = registry.find(approval.agent.name)
    return agent.tools.get(approval.tool) if agent else None


def _definition(approval: ToolApproval) -> ToolDefinition:
    definition = find_definition(approval)
    if definition is None:
        raise Conflict(f"The tool {approval.tool!r} is not deployed any more; reject the request.")
    return definition
