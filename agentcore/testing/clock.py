"""A clock to set: shifts `now()` and the database's time as agentcore sees them."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import timezone

from agentcore import clock as real


class Clock:
    """Moves agentcore's time. `reset` brings back the real one; the pytest fixture does so by itself."""

    def now(self) -> datetime:
        """Return the present time as agentcore sees it."""
        return real.now()

    def set(self, moment: datetime) -> None:
        """Make it `moment`, from which on time goes on."""
        real.shift(moment - timezone.now())

    def advance(self, by: timedelta | float) -> None:
        """Move on by a timedelta or a number of seconds."""
        real.shift(real.now() - timezone.now() + (by if isinstance(by, timedelta) else timedelta(seconds=by)))

    def reset(self) -> None:
        """Go back to the real time."""
        real.shift(timedelta(0))


clock = Clock()
