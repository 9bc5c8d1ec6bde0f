"""Erase what is remembered of a user, also when the account is gone."""

from __future__ import annotations

from agentcore import erasers
from agentcore.erasers import Owner
from agentcore.memory import keeping


def erase(owner: Owner) -> int:
    """Delete the owner's memories and those kept to their sessions; return how many there were."""
    return keeping.erase_of_user_key(owner.key) + keeping.erase_of_sessions(owner.sessions)


erasers.register("memories", erase)
