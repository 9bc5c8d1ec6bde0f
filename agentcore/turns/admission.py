"""How many new turns a user may begin: RATE_LIMIT, counted in the transaction that stores the turn."""

from __future__ import annotations

from typing import Any

from agentcore.conf import settings
from agentcore.models import AgentSession
from agentcore.resilience import rate_limit
from agentcore.resilience.rate_limit import Allowance


def require_room(session: AgentSession, user: Any) -> None:
    """Count a new turn of `user`, else of the session's owner; raise RateLimited for one too many.

    A turn of nobody is not limited: it was begun by the project's own code.
    """
    key = session.user_key if user is None else str(user.pk)
    rate = rate_limit.parse(settings.RATE_LIMIT)
    if rate is None or not key:
        return
    Allowance(name=f"turns:{key}", rate=rate).require(f"Too many new turns: {rate} are allowed. Try again later.")
