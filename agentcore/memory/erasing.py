"""Erase what is remembered of a user, also when the account is gone."""

from __future__ import annotations

from agentcore import erasers
from agentcore.erasers import Owner
from agentcore.memory import keeping


def erase(owner: Owner) -> int:
    """Delete the owner's memories, those kept to their sessions and those their turns told; return how many."""
    of_user = keeping.erase_of_user_key(owner.key) + keeping.erase_of_sessions(owner.sessions)
    # A session of nobody keeps what the user's own turns told in it.
    return of_user + keeping.erase_of_turns(owner.turns)


erasers.register("memories", erase)
