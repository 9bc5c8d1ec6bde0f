"""What the page of one request is told beside the news: who else looks at it, and that more came of it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from agentcore.approvals import permissions
from agentcore.events import push
from agentcore.models import ToolApproval
from agentcore.sockets.doorbell import Doorbell
from agentcore.sockets.feed import Feed
from agentcore.sockets.presence import Presence

POLL_SECONDS = 5.0
# Events of one call come close together: the page is asked for once.
SETTLE_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class Viewing:
    """A request that one person looks at, and may see."""

    approval_id: int
    session_pk: int
    person: str
    name: str

    @classmethod
    def find(cls, approval_id: int, user: Any) -> Viewing | None:
        """Return it for a request that exists for `user`, else None."""
        approval = _find(approval_id, user)
        if approval is None:
            return None
        return cls(
            approval_id=approval.pk,
            session_pk=approval.session_id,
            person=str(user.pk),
            name=user.get_username(),
        )

    async def run(self, feed: Feed) -> None:
        """Tell until the socket closes, or the request exists for the person no more."""
        looking = asyncio.create_task(self._tell_who_looks(feed))
        try:
            await self._tell_outcome(feed)
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _tell_who_looks(self, feed: Feed) -> None:
        presence = Presence(f"agentcore.looking.{self.approval_id}", person=self.person, name=self.name)
        async with aclosing(presence.watch()) as watching:
            async for names in watching:
                await feed.frame("looking", id=self.approval_id, names=names)

    async def _tell_outcome(self, feed: Feed) -> None:
        known = await feed.queries.run(self._state, feed.user)
        async with Doorbell(push.session_group(self.session_pk)) as bell:
            while known is not None:
                if await bell.wait(POLL_SECONDS):
                    await asyncio.sleep(SETTLE_SECONDS)
                state = await feed.queries.run(self._state, feed.user)
                if state is not None and state != known:
                    await feed.frame("outcome", id=self.approval_id)
                known = state

    def _state(self, user: Any) -> tuple[Any, ...] | None:
        """Return what changes when more comes of the request; None when it does not exist for the user any more."""
        approval = _find(self.approval_id, user)
        if approval is None:
            return None
        call = approval.call
        return approval.status, call.status, call.attempts, call.completed_at, call.late_result is None


def _find(approval_id: int, user: Any) -> ToolApproval | None:
    wanted = ToolApproval.objects.select_related("call").filter(pk=approval_id, session__deleted_at=None)
    small = wanted.only(
        "status",
        "permission",
        "session_id",
        "call__status",
        "call__attempts",
        "call__completed_at",
        "call__late_result",
    )
    approval: ToolApproval | None = small.first()
    return approval if approval is not None and permissions.can_view(user, approval) else None
