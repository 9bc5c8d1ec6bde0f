"""Which calls need a person, and what the policy of a tool asks of that person. In doubt, a person is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.utils.module_loading import import_string

from agentcore.conf import settings
from agentcore.exceptions import ConfigurationError
from agentcore.models import ToolOverride
from agentcore.tools.definition import ApprovalPolicy, ToolDefinition

RULE = "rule"


def pinned_requirement(pinned: Mapping[str, Any], tool: str) -> Any:
    """Return what the session's revision says of a tool: True, False, "rule", or True when it had no such tool."""
    for entry in pinned.get("tools", ()):
        if entry["name"] == tool:
            return entry["requires_approval"]
    return True


def known_requirement(pinned: Any, definition: ToolDefinition) -> bool | None:
    """Say whether a call needs approval, or None when the tool's rule must be asked.

    It does if the pinned or the deployed definition says so. A rule that is no longer deployed cannot
    be asked any more: then it does.
    """
    deployed = definition.requires_approval
    if deployed is True or pinned is True:
        return True
    if callable(deployed):
        return None
    return bool(pinned == RULE)


def policy_of(definition: ToolDefinition, overrides: Iterable[ToolOverride] = ()) -> ApprovalPolicy:
    """Return the tool's own policy, else the project's, else the default; made stricter as staff ask."""
    policy = definition.approval or project_policy()
    for override in overrides:
        if override.matches(definition.name):
            policy = _tightened(policy, override)
    return policy


def always_asks(overrides: Iterable[ToolOverride], tool: str) -> bool:
    """Say whether staff want a person to be asked for each call of the tool."""
    return any(override.always_ask and override.matches(tool) for override in overrides)


def why_always(overrides: Iterable[ToolOverride], tool: str) -> str:
    """Return the reason of such a request: that staff asked for it, with the notes of their rules."""
    matching = [override for override in overrides if override.always_ask and override.matches(tool)]
    notes = " ".join(dict.fromkeys(note for override in matching if (note := override.note.strip())))
    return f"Staff asked for it: {notes}" if notes else "Staff asked for it."


def _tightened(policy: ApprovalPolicy, override: ToolOverride) -> ApprovalPolicy:
    permissions = [*(policy.permission or "").split(), *override.permission.split()]
    return replace(
        policy,
        permission=" ".join(dict.fromkeys(permissions)) or None,
        votes=max(policy.votes, override.votes),
        four_eyes=policy.four_eyes or override.four_eyes,
        allow_edit=policy.allow_edit and not override.forbid_edit,
        expires_in=_shorter(policy.expires_in, override.expires_in),
    )


def _shorter(asked: timedelta | None, at_most: timedelta | None) -> timedelta | None:
    if at_most is None:
        return asked
    return min(asked or settings.APPROVAL_TTL or timedelta.max, at_most)


def project_policy() -> ApprovalPolicy:
    """Return the policy APPROVAL_POLICY names, or the default; raise ConfigurationError for what is none."""
    configured = settings.APPROVAL_POLICY
    if configured is None:
        return ApprovalPolicy()
    policy = _imported(configured) if isinstance(configured, str) else configured
    if not isinstance(policy, ApprovalPolicy):
        raise ConfigurationError(
            f"AGENTCORE['APPROVAL_POLICY'] is {configured!r}; it must be an ApprovalPolicy or its dotted path."
        )
    return policy


def _imported(path: str) -> Any:
    try:
        return import_string(path)
    except ImportError as error:
        raise ConfigurationError(f"AGENTCORE['APPROVAL_POLICY'] is {path!r}: {error}.") from error


def for_outcome(policy: ApprovalPolicy) -> ApprovalPolicy:
    """Return the policy of asking how a call ended: the tool's permission and four eyes, one vote, no expiry."""
    return replace(policy, votes=1, expires_in=timedelta.max, allow_edit=False)


def expiry(policy: ApprovalPolicy, *, asked_at: datetime) -> datetime | None:
    """Return when a request asked for at `asked_at` expires; None for never."""
    lifetime = policy.expires_in if policy.expires_in is not None else settings.APPROVAL_TTL
    if lifetime is None or lifetime == timedelta.max:
        return None
    try:
        moment: datetime = asked_at + lifetime
    except OverflowError:
        # After the end of the calendar.
        return None
    return moment
