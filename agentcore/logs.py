"""Which turn a log record is about: every record written while a turn is worked on has its `execution_id`.

agentcore's own loggers see to it themselves. For other records, those of tools above all, add the filter to a handler:
`"filters": {"turn": {"()": "agentcore.logs.TurnFilter"}}`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

# Filters of a logger do not hold for those below it: each is named.
LOGGERS = (
    "agentcore.approvals",
    "agentcore.database",
    "agentcore.dispatch",
    "agentcore.drivers",
    "agentcore.engine",
    "agentcore.events",
    "agentcore.health",
    "agentcore.keeping",
    "agentcore.knowledge",
    "agentcore.leases",
    "agentcore.memory",
    "agentcore.providers",
    "agentcore.resilience",
    "agentcore.signals",
    "agentcore.sockets",
    "agentcore.state",
    "agentcore.tasks",
    "agentcore.tools",
    "agentcore.workers",
)

# Tools and model calls run in threads with a copy of the context: their records are about the turn, too.
_execution_id: ContextVar[str | None] = ContextVar("agentcore_execution_id", default=None)


class TurnFilter(logging.Filter):
    """Lets every record pass, with the `execution_id` of the turn in hand; None outside of one."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Set `execution_id` where the record has none of its own."""
        if not hasattr(record, "execution_id"):
            record.execution_id = _execution_id.get()
        return True


@contextmanager
def about(execution_id: Any) -> Iterator[None]:
    """Have the records that are written in the block be about this turn."""
    token = _execution_id.set(str(execution_id))
    try:
        yield
    finally:
        _execution_id.reset(token)


def attach() -> None:
    """Give agentcore's own records their `execution_id`, whatever the project's LOGGING says."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_filter)


_filter = TurnFilter()
