"""The default: no hot copy. Every step is in the database at once, and every read asks it."""

from __future__ import annotations

from collections.abc import Mapping

from agentcore.state.base import Phase


class DatabaseState:
    """The rows, and nothing beside them."""

    is_hot = False

    def is_up(self) -> bool:
        return True

    def write(self, execution_id: str, fields: Mapping[str, str], *, phase: Phase) -> bool:
        return True

    def read(self, execution_id: str) -> dict[str, str]:
        return {}

    def forget(self, execution_id: str) -> bool:
        return False
