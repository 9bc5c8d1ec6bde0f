"""Why a socket is closed by us: the codes a client sees, and the exception that ends a feed with one."""

from __future__ import annotations

from enum import IntEnum


class CloseCode(IntEnum):
    """All from the private range: an application may send no other ones through Daphne, but 1000."""

    # `after` is not a number from 0 to the last one of the log.
    INVALID = 4400
    NOT_LOGGED_IN = 4401
    # Not allowed, or a foreign origin.
    FORBIDDEN = 4403
    # No such session, or another user's: the answer is the same.
    NOT_FOUND = 4404
    # The client does not read what it is sent.
    TOO_SLOW = 4408
    # The client sends frames larger than it has any reason to.
    TOO_LARGE = 4413
    # Something is wrong on our side; the client may come again.
    INTERNAL = 4500


class Closed(Exception):
    """Ends a feed: the socket is closed with `code`."""

    def __init__(self, code: CloseCode) -> None:
        super().__init__(code.name)
        self.code = code
