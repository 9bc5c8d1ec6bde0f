"""The WebSocket consumers: the log of a session, and the approvals of a reviewer."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs

from django.db.models import Max, Q

from agentcore import clock
from agentcore.approvals import shown
from agentcore.events import log, push
from agentcore.models import DECIDE_PERMISSION, AgentSession, ToolApproval
from agentcore.models.approvals import ApprovalQuerySet
from agentcore.sockets.closing import CloseCode, Closed
from agentcore.sockets.feed import Feed
from agentcore.sockets.live_text import LiveText
from agentcore.sockets.viewing import Viewing
from agentcore.turns import sessions

PAGE = 100
# Changes are found by their time, which is a worker's: one may be committed a little later, or by another clock.
OVERLAP = timedelta(seconds=120)

_NUMBER = re.compile(r"[0-9]{1,18}")


class SessionConsumer(Feed):
    """Sends the events after `?after=N`, then `ready`, then each new event: all in order, each once.

    The log is the truth. A pushed event is sent as it is only when it is the very next one. In between come pieces of
    the text that a model is writing, each only as long as the log does not have it.
    """

    def open(self, user: Any) -> tuple[str, ...]:
        self.session = self._session_of(user)
        self.sequence = self._after()
        self._live_text = LiveText()
        return push.session_group(self.session.pk), push.token_group(self.session.pk)

    def check(self, user: Any) -> None:
        self._session_of(user)

    async def replay(self) -> None:
        await self._send_stored(until=self.session.last_sequence)
        await self.frame("ready", sequence=self.sequence)

    async def deliver(self, news: list[dict[str, Any]]) -> None:
        pushed = [
            event for message in news if message.get("type") == push.EVENTS_MESSAGE for event in message["events"]
        ]
        for event in sorted(pushed, key=lambda item: int(item["sequence"])):
            if event["sequence"] == self.sequence + 1:
                await self._send(event)
        is_behind = any(event["sequence"] > self.sequence for event in pushed)
        # Text keeps the bell ringing, and a lost event must not wait until a model has said all.
        if is_behind or not news or clock.monotonic() - self._read_at >= self.poll_seconds:
            await self._send_stored()
        # Last of all: by now it is known which text the log has already.
        for message in news:
            if message.get("type") == "agentcore.token" and self._live_text.is_news(message["frame"]):
                await self.frame("token", **message["frame"])

    def _session_of(self, user: Any) -> AgentSession:
        session_id = self.scope["url_route"]["kwargs"]["session_id"]
        if sessions.SESSION_ID.fullmatch(session_id):
            found = AgentSession.objects.present().visible_to(user).filter(session_id=session_id).first()
            if found is not None:
                return found
        raise Closed(CloseCode.NOT_FOUND)

    def _after(self) -> int:
        query = parse_qs(self.scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        after = query.get("after", ["0"])[-1]
        if not _NUMBER.fullmatch(after) or int(after) > self.session.last_sequence:
            raise Closed(CloseCode.INVALID)
        return int(after)

    async def _send_stored(self, *, until: int | None = None) -> None:
        """Send what the log holds: all of it, or up to the page that has number `until`."""
        self._read_at = clock.monotonic()
        while until is None or self.sequence < until:
            await self.proceed()
            page = await self.queries.run(log.read, self.session, after=self.sequence, limit=PAGE)
            for event in page:
                await self._send(event.as_dict())
            if len(page) < PAGE:
                return

    async def _send(self, event: dict[str, Any]) -> None:
        await self.frame("event", **event)
        self.sequence = event["sequence"]
        self._live_text.take(event)


class ApprovalsConsumer(Feed):
    """Sends a snapshot of what waits for the user, then each approval of theirs that changes.

    With `?viewing=ID` it also tells who else looks at that request, and that more came of it: {"kind": "looking",
    "id", "names"} and {"kind": "outcome", "id"}.
    """

    poll_seconds = 5.0

    def open(self, user: Any) -> tuple[str, ...]:
        self.check(user)
        self._viewing = self._find_viewing(user)
        return (push.APPROVALS_GROUP,)

    async def beside(self) -> None:
        if self._viewing is not None:
            await self._viewing.run(self)

    def check(self, user: Any) -> None:
        if not user.has_perm(DECIDE_PERMISSION):
            raise Closed(CloseCode.FORBIDDEN)

    async def replay(self) -> None:
        await self.frame("snapshot", **await self.queries.run(self._snapshot))

    async def deliver(self, news: list[dict[str, Any]]) -> None:
        named = {message["id"] for message in news if message.get("type") == "agentcore.approval"}
        changed = await self.queries.run(self._changed, named)
        for start in range(0, len(changed), PAGE):
            await self.proceed()
            for approval in await self.queries.run(self._show, changed[start : start + PAGE]):
                await self.frame("approval", approval=approval)

    def _find_viewing(self, user: Any) -> Viewing | None:
        query = parse_qs(self.scope.get("query_string", b"").decode("latin-1"))
        wanted = query.get("viewing", [""])[-1]
        # Nothing is said of a number that is none, or of a request that does not exist for this user.
        return Viewing.find(int(wanted), user) if _NUMBER.fullmatch(wanted) else None

    def _snapshot(self) -> dict[str, Any]:
        # First what is known, then the count: what comes in between is told twice rather than never.
        self._looked_at = clock.now()
        self._last_id = ToolApproval.objects.aggregate(last=Max("pk"))["last"] or 0
        recent = ToolApproval.objects.filter(updated_at__gte=self._looked_at - OVERLAP)
        # When each approval changed that was told, for as long as it would be found again.
        self._known: dict[int, datetime] = dict(recent.values_list("pk", "updated_at"))
        pending = self._theirs().waiting_for(self.user)
        return {"pending": pending.count(), "newest": pending.aggregate(newest=Max("pk"))["newest"]}

    def _changed(self, named: set[int]) -> list[int]:
        """Return the ids of what changed since the last look."""
        now, since = clock.now(), self._looked_at - OVERLAP
        wanted = Q(updated_at__gte=since) | Q(pk__gt=self._last_id) | Q(pk__in=named)
        found = ToolApproval.objects.filter(wanted).order_by("updated_at", "pk").values_list("pk", "updated_at")
        changed = {pk: changed_at for pk, changed_at in found if self._known.get(pk) != changed_at}
        self._known = {pk: changed_at for pk, changed_at in self._known.items() if changed_at >= since} | changed
        self._looked_at, self._last_id = now, max([self._last_id, *changed])
        return list(changed)

    def _show(self, ids: list[int]) -> list[dict[str, Any]]:
        approvals = shown.with_parts(self._theirs().filter(pk__in=ids)).order_by("updated_at", "pk")
        return [shown.approval_as_frame(approval) for approval in approvals]

    def _theirs(self) -> ApprovalQuerySet:
        return ToolApproval.objects.filter(session__deleted_at=None).for_reviewer(self.user)
