"""Leases: who works on a turn. A lease is proved by its token, which grows with every claim.

A claim is good for LEASE_SECONDS of the database's time. Each write of the worker renews it; while a model
or tool works, one thread of the process does.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from agentcore import clock, database
from agentcore.conf import settings
from agentcore.exceptions import LeaseLost
from agentcore.models import AgentContext
from agentcore.states import WORKING

logger = logging.getLogger("agentcore.leases")

# Two renewals may fail before a lease runs out.
RENEWALS_PER_LEASE = 3


@dataclass(kw_only=True)
class Lease:
    """The right to write to one turn, for as long as `token` is the turn's present one.

    `proved_at` is when the database last said so, in `clock.monotonic()` seconds. `unsaved` is the working memory
    that its holder has and no row yet: it is stored when the turn pauses, ends or is given back.
    """

    turn_pk: int
    session_pk: int
    execution_id: UUID
    token: int
    claimed_at: float = field(default_factory=clock.monotonic)
    proved_at: float = field(default_factory=clock.monotonic)
    is_lost: bool = False
    unsaved: dict[str, Any] = field(default_factory=dict)

    def is_current(self) -> bool:
        """Say whether the lease can still be this worker's, as far as it can tell without asking.

        A process that was stopped for longer than its lease wakes up with a stale one.
        """
        return not self.is_lost and clock.monotonic() - self.proved_at < settings.LEASE_SECONDS

    def prove(self, asked_at: float) -> None:
        """Take it that the lease was this worker's when the database was asked; an older answer takes nothing back."""
        self.proved_at = max(self.proved_at, asked_at)

    def require_current(self) -> None:
        """Raise LeaseLost when somebody else may work on the turn by now; asked right before each call out."""
        if not self.is_current():
            raise LeaseLost(f"The lease of turn {self.execution_id} ran out before the next call.")


def duration() -> timedelta:
    """Return how long a claim or renewal is good for."""
    return timedelta(seconds=settings.LEASE_SECONDS)


def worked_seconds(lease: Lease) -> float:
    """Return for how many seconds this worker has had the turn."""
    return clock.monotonic() - lease.claimed_at


def owner() -> str:
    """Return this worker's name, for people who look at the row."""
    return f"{socket.gethostname()}:{os.getpid()}:{threading.current_thread().name}"[:255]


def renew(lease: Lease) -> bool:
    """Prolong a lease; say whether it was still this worker's."""
    asked_at = clock.monotonic()
    held = AgentContext.objects.filter(pk=lease.turn_pk, lease_token=lease.token, state__in=sorted(WORKING)).update(
        lease_expires_at=clock.db_now(plus=duration())
    )
    if held:
        lease.prove(asked_at)
    else:
        lease.is_lost = True
    return bool(held)


@contextmanager
def renewed(lease: Lease) -> Iterator[None]:
    """Keep a lease alive while the block works."""
    # Inside a test case another connection would not see the turn, and take it for lost.
    if database.is_in_test_case():
        yield
        return
    _renewer.add(lease)
    try:
        yield
    finally:
        _renewer.remove(lease)


class _Renewer:
    """One daemon thread per process that renews the leases it holds."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._leases: dict[int, Lease] = {}
        self._pid = 0

    def add(self, lease: Lease) -> None:
        with self._changed:
            if self._pid != os.getpid():
                # A forked worker has the object but not the thread.
                self._pid, self._leases = os.getpid(), {}
                threading.Thread(target=self._work, name="agentcore-leases", daemon=True).start()
            self._leases[id(lease)] = lease
            self._changed.notify()

    def remove(self, lease: Lease) -> None:
        with self._changed:
            self._leases.pop(id(lease), None)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._leases))
                self._changed.wait(settings.LEASE_SECONDS / RENEWALS_PER_LEASE)
                held = list(self._leases.values())
            for lease in held:
                self._renew(lease)
            database.release_connection()

    def _renew(self, lease: Lease) -> None:
        try:
            renew(lease)
        except Exception:
            logger.exception(
                "A lease could not be renewed; tried again", extra={"execution_id": str(lease.execution_id)}
            )


_renewer = _Renewer()
