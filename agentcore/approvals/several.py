"""Take one decision of several: whatever goes wrong with it is told of it alone."""

from __future__ import annotations

import logging
from collections.abc import Callable

from agentcore.exceptions import AgentError
from agentcore.models import ToolApproval

logger = logging.getLogger("agentcore.approvals")


def one(approval_id: int, decide: Callable[[], ToolApproval]) -> ToolApproval:
    """Return what `decide` returns; raise AgentError also for what nobody foresaw, which the log has whole."""
    try:
        return decide()
    except AgentError:
        raise
    except Exception as error:
        logger.exception("A decision of several failed", extra={"approval_id": approval_id})
        raise AgentError("Something went wrong with this one; nothing was decided.") from error
