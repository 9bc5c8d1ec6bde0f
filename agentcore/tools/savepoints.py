"""Keep a caller's open transactions usable when a tool that runs inside them breaks one.

In a thread of its own a tool breaks its own connection only. Inside Django's TestCase it shares the test's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

logger = logging.getLogger("agentcore.tools")


@contextmanager
def around_tool() -> Iterator[None]:
    """Set a savepoint in each open transaction; go back to those whose transaction was broken inside."""
    with ExitStack() as stack:
        for connection in connections.all(initialized_only=True):
            if connection.in_atomic_block:
                stack.enter_context(_savepoint(connection))
        yield


@contextmanager
def _savepoint(connection: BaseDatabaseWrapper) -> Iterator[None]:
    point = connection.savepoint()
    yield
    if point is None:
        return
    if not connection.needs_rollback:
        try:
            connection.savepoint_commit(point)
            return
        except DatabaseError:
            logger.warning("tool_broke_transaction", exc_info=True)
    connection.needs_rollback = False
    connection.savepoint_rollback(point)
