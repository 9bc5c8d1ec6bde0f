"""The one database that holds all rows, its transactions, and its connections."""

from __future__ import annotations

import functools
import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from django.apps import apps
from django.db import InterfaceError, OperationalError, connections, router, transaction

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("agentcore.database")

# The seconds before a change is tried again, give or take half; SQLite waits its own time-out before each refusal.
PAUSES = (0.1, 0.5, 2.0)
# MariaDB's "packet bigger than max_allowed_packet", which it calls operational: it would be refused again.
TOO_LARGE_FOR_MARIADB = 1153


def alias() -> str:
    """Return the alias of the database that holds every row of agentcore."""
    return router.db_for_write(apps.get_model("agentcore", "AgentSession"))


def atomic() -> transaction.Atomic:
    """Open a transaction, or join the caller's."""
    return transaction.atomic(using=alias())


def atomic_of_our_own() -> transaction.Atomic:
    """Open a transaction, or join one of ours: what fails in it takes the whole with it.

    Inside a test case's it can be rolled back by itself, as if it were the outermost.
    """
    return transaction.atomic(using=alias(), savepoint=is_in_test_case())


def on_commit(function: Any) -> None:
    """Call `function` after the commit of the open transaction; what it raises is logged."""
    transaction.on_commit(function, using=alias(), robust=True)


def is_in_transaction() -> bool:
    """Say whether a transaction is open here that is not a test case's own."""
    connection = connections[alias()]
    return connection.in_atomic_block and not is_in_test_case()


def is_in_test_case() -> bool:
    """Say whether the innermost transaction is the one Django's TestCase wraps round a test.

    This is the test that `atomic(durable=True)` makes; Django offers no public one.
    """
    blocks = connections[alias()].atomic_blocks
    return bool(blocks) and bool(getattr(blocks[-1], "_from_testcase", False))


def require_no_transaction(verb: str) -> None:
    """Raise RuntimeError when a transaction is open: `verb` works for long and must not hold one."""
    if is_in_transaction():
        raise RuntimeError(
            f"{verb}() cannot run inside an open transaction: it would be held while models and tools work. "
            "Call it outside atomic(), or use enqueue()."
        )


def may_pass(error: BaseException) -> bool:
    """Say whether what the database refused may work a moment later: a lock, a deadlock, a lost connection."""
    return isinstance(error, OperationalError | InterfaceError) and error.args[:1] != (TOO_LARGE_FOR_MARIADB,)


def retried(verb: Callable[P, R]) -> Callable[P, R]:
    """Decorate a verb that opens its own transaction: what may pass is tried again, a few times.

    Inside a caller's transaction it is not: that one is lost as a whole. A connection may be lost after the commit
    and before the answer: the verb must find its own change then, and not make it twice.
    """

    @functools.wraps(verb)
    def attempt(*args: P.args, **kwargs: P.kwargs) -> R:
        for pause in PAUSES if not connections[alias()].in_atomic_block else ():
            try:
                return verb(*args, **kwargs)
            except (OperationalError, InterfaceError) as error:
                if not may_pass(error):
                    raise
                logger.warning("The database did not take a change; it is tried again", exc_info=True)
                wait_after_refusal(pause)
        return verb(*args, **kwargs)

    return attempt


def wait_after_refusal(pause: float) -> None:
    """Let go of the connection, which may be broken, and wait for about `pause` seconds."""
    release_connection()
    # Those that met at the lock should not meet again.
    time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - no secret


@contextmanager
def released_if_opened() -> Iterator[None]:
    """Give the connection back after the block if the block opened it; one that was open stays as it is."""
    was_open = connections[alias()].connection is not None
    try:
        yield
    finally:
        if not was_open:
            release_connection()


@contextmanager
def given_back() -> Iterator[None]:
    """Hold no connection while the block calls out for long; afterwards there is one as before, if there was.

    SQLite's is only put aside: it is a file of this process and nobody waits for it, but opening it anew costs more
    than all that a step writes, and closing the last one rewrites the database.
    """
    connection = connections[alias()]
    if connection.vendor != "sqlite" or connection.in_atomic_block or connection.connection is None:
        release_connection()
        yield
        return
    aside, connection.connection = connection.connection, None
    try:
        yield
    finally:
        if connection.connection is None:
            connection.connection = aside
        else:
            aside.close()


def release_connection() -> None:
    """Give the connection back (to the pool, or close it) before a long call out."""
    connection = connections[alias()]
    if not connection.in_atomic_block:
        connection.close()
