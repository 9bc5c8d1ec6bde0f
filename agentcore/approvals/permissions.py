"""Who may see an approval, and who may decide it."""

from __future__ import annotations

from typing import Any

from agentcore.models import DECIDE_PERMISSION, VIEW_PERMISSION, ToolApproval


def has_permission(user: Any, permission: str, approval: ToolApproval) -> bool:
    """Ask with and without the object: backends know the one, the other, or both."""
    return bool(user.has_perm(permission) or user.has_perm(permission, approval))


def is_permitted(user: Any, approval: ToolApproval) -> bool:
    """Say whether `user` has the permission to decide, four eyes aside."""
    if not user.is_active or not has_permission(user, DECIDE_PERMISSION, approval):
        return False
    return all(has_permission(user, name, approval) for name in approval.permission.split())


def is_own(user: Any, approval: ToolApproval) -> bool:
    """Say whether four eyes keep `user` from deciding: it is their own turn, or its user is unknown."""
    if not approval.four_eyes or not approval.requester_key:
        return False
    return approval.requester_id is None or approval.requester_key == str(user.pk)


def can_view(user: Any, approval: ToolApproval) -> bool:
    """Say whether the approval exists for `user`: who may decide it, and who may view them all."""
    return is_permitted(user, approval) or bool(user.has_perm(VIEW_PERMISSION))
