"""Which drivers there are, by id."""

from __future__ import annotations

import re
from typing import Any

from agentcore.drivers.base import Driver
from agentcore.exceptions import ConfigurationError, Conflict

# The loop of agentcore.engine; it is no object of this registry.
BUILT_IN = "model"
ID = re.compile(r"[a-z0-9_-]{1,64}")


class DriverRegistry:
    """Drivers by id. Ids are not replaced: two drivers of one id are a mistake."""

    def __init__(self) -> None:
        self._drivers: dict[str, Driver] = {}

    def register(self, driver: Any) -> None:
        """Add a driver; raise ConfigurationError for what is none, Conflict for a taken id."""
        if not isinstance(driver, Driver) or not callable(driver.run):
            raise ConfigurationError(f"{driver!r} is no driver: it needs id, resumable and run(turn, io).")
        given: Any = driver.id
        if not isinstance(given, str) or not ID.fullmatch(given):
            raise ConfigurationError(f"A driver's id is 1 to 64 of a-z 0-9 - _, not {driver.id!r:.80}.")
        if driver.id == BUILT_IN or driver.id in self._drivers:
            raise Conflict(f"There is already a driver {driver.id!r}.", driver=driver.id)
        self._drivers[driver.id] = driver

    def unregister(self, driver_id: str) -> None:
        """Forget a driver, if it is there."""
        self._drivers.pop(driver_id, None)

    def find(self, driver_id: str) -> Driver | None:
        return self._drivers.get(driver_id)

    def ids(self) -> list[str]:
        """Return all ids, sorted."""
        return sorted([BUILT_IN, *self._drivers])


registry = DriverRegistry()
