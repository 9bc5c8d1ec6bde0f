"""A socket that only tells: it lets somebody in, replays, tells news in order, and looks whether they still may."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from typing import Any

from channels.generic.websocket import AsyncWebsocketConsumer

from agentcore import clock
from agentcore.sockets import authentication, origin
from agentcore.sockets.authentication import Login
from agentcore.sockets.closing import CloseCode, Closed
from agentcore.sockets.doorbell import Doorbell
from agentcore.sockets.flow import Flow
from agentcore.sockets.queries import Queries

logger = logging.getLogger("agentcore.sockets")

# A log-out, a lost right or a deletion closes the socket within 30 seconds: this, and one wait for news.
CHECK_SECONDS = 20.0
# A client whose buffer stays full for this long is closed.
SLOW_SECONDS = 30.0
CLOSE_SECONDS = 5.0
# What a client sends is ignored; one that sends more than this at once is closed.
MAX_FRAME = 65_536


class Feed(AsyncWebsocketConsumer):
    """Base of the sockets. A subclass says what there is to tell; frames of the client are ignored.

    `open` and `check` run in a thread and may query; both raise Closed for a user who may not have this.
    """

    # No such layer: in the consumer's own machinery an exception of a layer ends the socket. See Doorbell.
    channel_layer_alias = "agentcore.none"
    poll_seconds = 3.0

    # Any: the project chooses its own user model.
    user: Any
    _checked_at: float

    def open(self, user: Any) -> tuple[str, ...]:
        """Prepare for `user`, and return the groups of the channel layer in which news come."""
        raise NotImplementedError

    def check(self, user: Any) -> None:
        """Raise Closed when `user`, just read anew, may not have this any more."""
        raise NotImplementedError

    async def replay(self) -> None:
        """Send what was there before."""
        raise NotImplementedError

    async def deliver(self, news: list[dict[str, Any]]) -> None:
        """Send what is new. `news` are messages of the layer; without any, look into the database."""
        raise NotImplementedError

    async def beside(self) -> None:
        """Do what goes on beside the news, until the socket closes. Its failure is logged and ends nothing else."""

    async def frame(self, kind: str, **content: Any) -> None:
        """Send one frame, once the client has room for it."""
        text = json.dumps({"kind": kind, **content}, separators=(",", ":"))
        try:
            async with asyncio.timeout(SLOW_SECONDS):
                await self._flow.has_room()
                await self.send(text_data=text)
        except TimeoutError as error:
            raise Closed(CloseCode.TOO_SLOW) from error
        except OSError as error:
            # The client is gone; some servers say so by raising.
            raise Closed(CloseCode.INTERNAL) from error

    async def proceed(self) -> None:
        """Look, when it is due, whether the user still may. Call it before each page of frames."""
        if clock.monotonic() - self._checked_at >= CHECK_SECONDS:
            self.user = await self.queries.run(self._check)
            self._checked_at = clock.monotonic()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self._serving: asyncio.Task[None] | None = None
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._stop()

    async def connect(self) -> None:
        # Accepted in any case: a browser sees the close code only of an open socket.
        await self.accept(subprotocol=authentication.token_subprotocol(self.scope))
        self.queries = Queries()
        self._flow = Flow(self.base_send)
        self._serving = asyncio.create_task(self._serve())

    async def dispatch(self, message: dict[str, Any]) -> None:
        if message["type"] != "websocket.receive":
            await super().dispatch(message)
        elif len(message.get("text") or message.get("bytes") or "") > MAX_FRAME:
            await self._stop()
            await self._close(CloseCode.TOO_LARGE)

    async def _stop(self) -> None:
        if self._serving is not None:
            self._serving.cancel()
            with suppress(asyncio.CancelledError):
                await self._serving

    async def _serve(self) -> None:
        try:
            await self._run()
        except Closed as closed:
            await self._close(closed.code)
        except Exception:
            logger.exception("A socket failed; it is closed, and the client may come again")
            await self._close(CloseCode.INTERNAL)

    async def _close(self, code: CloseCode) -> None:
        # A server that holds up `send` does so here too when the client is too slow; its keep-alive ends it then.
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(CLOSE_SECONDS):
                # A plain int: Daphne refuses a subclass.
                await self.close(int(code))

    async def _run(self) -> None:
        # A browser sends the cookie whatever page asks it to; a token is sent on purpose.
        if authentication.find_token(self.scope) is None and not origin.is_allowed(self.scope):
            raise Closed(CloseCode.FORBIDDEN)
        groups = await self.queries.run(self._open)
        async with Doorbell(*groups) as bell:
            await self.replay()
            besides = asyncio.create_task(self._beside())
            try:
                while True:
                    news = await bell.wait(self.poll_seconds)
                    await self.proceed()
                    await self.deliver(news)
            finally:
                besides.cancel()
                await asyncio.gather(besides, return_exceptions=True)

    async def _beside(self) -> None:
        try:
            await self.beside()
        except Closed:
            # The client is gone, or too slow: the news find that out for themselves.
            return
        except Exception:
            logger.exception("What a socket does beside its news failed; the news go on")

    def _open(self) -> tuple[str, ...]:
        self._checked_at = clock.monotonic()
        login = authentication.login_of(self.scope)
        if login is None:
            raise Closed(CloseCode.NOT_LOGGED_IN)
        self._login, self.user = login, _user_of(login)
        return self.open(self.user)

    def _check(self) -> Any:
        user = _user_of(self._login)
        self.check(user)
        return user


def _user_of(login: Login) -> Any:
    user = login.user()
    if user is None:
        raise Closed(CloseCode.NOT_LOGGED_IN)
    return user
