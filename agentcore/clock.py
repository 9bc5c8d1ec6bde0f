"""The only reader of time: `now()` for this process, `db_now()` for the database. Tests shift both."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

from django.db.models import DateTimeField, Func
from django.utils import timezone

# Set by agentcore.testing only.
_shift = timedelta(0)


def now() -> datetime:
    """Return the present time, aware, in UTC."""
    return timezone.now() + _shift


def monotonic() -> float:
    """Return seconds that only grow, for durations within this process."""
    return time.monotonic() + _shift.total_seconds()


def db_now(*, plus: timedelta = timedelta(0)) -> DatabaseNow:
    """Return an expression for the database's own present time, plus a duration.

    Leases and expiries are compared by it: workers' clocks differ, the database has one.
    """
    return DatabaseNow(seconds=(_shift + plus).total_seconds())


class DatabaseNow(Func):
    """The database's time in UTC, in the form the database stores times in."""

    output_field = DateTimeField()

    def __init__(self, *, seconds: float = 0.0, **extra: Any) -> None:
        super().__init__(**extra)
        self.seconds = seconds

    def as_vendor(self, connection: Any) -> tuple[str, Any]:
        """Return the SQL and its parameters for a connection's database, outside of a queryset."""
        found: tuple[str, Any] = getattr(self, f"as_{connection.vendor}")(None, connection)
        return found

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> tuple[str, list[Any]]:
        return "(STATEMENT_TIMESTAMP() + make_interval(secs => %s))", [self.seconds]

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> tuple[str, tuple[Any, ...]]:
        return "STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW', %s)", (f"{self.seconds:+f} seconds",)

    def as_mysql(self, compiler: Any, connection: Any, **context: Any) -> tuple[str, list[Any]]:
        # NOW() on MariaDB is in the server's zone; Django stores UTC.
        return "(UTC_TIMESTAMP(6) + INTERVAL %s MICROSECOND)", [round(self.seconds * 1_000_000)]


def shift(delta: timedelta) -> None:
    """Make time differ from the real one; for agentcore.testing."""
    global _shift
    _shift = delta
