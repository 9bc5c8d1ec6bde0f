"""Look up, before a turn's first step, what the knowledge base has about the user's words. It never fails the turn."""

from __future__ import annotations

import logging
import time
from typing import Any

from agentcore import database
from agentcore.drivers import registry as drivers
from agentcore.engine import limits
from agentcore.events.kinds import EventType
from agentcore.exceptions import LeaseLost, TurnCancelled
from agentcore.knowledge import Passage, passages
from agentcore.models import EntryKind, SessionEvent
from agentcore.tools import execution
from agentcore.turns import recalled
from agentcore.turns.recalled import Entry
from agentcore.turns.work import Work
from agentcore.vectors import Embedding

logger = logging.getLogger("agentcore.engine")

# It never takes more than half of what the turn has left.
MAX_SECONDS = 30.0
MAX_TOLD = 1_000


def retrieve(work: Work) -> None:
    """Find passages for a turn that asks for them, once: after a crash what was found, or that it failed, stands."""
    if not work.turn.enable_rag or not _is_due(work):
        return
    query = str(work.turn.input.get("content", ""))
    began_at = time.monotonic()
    try:
        found = _find(work, query)
    except (TurnCancelled, LeaseLost):
        raise
    except Exception as error:
        if database.may_pass(error):
            raise
        logger.exception("Nothing could be retrieved for a turn", extra={"execution_id": str(work.turn.execution_id)})
        recalled.record(work, [], type=EventType.RAG_FAILED, query=query[:MAX_TOLD], error=_told(error))
        return
    recalled.record(
        work,
        [Entry(EntryKind.RETRIEVED, f"{item.document}.{item.position}", _value(item)) for item in found],
        type=EventType.RAG_EXECUTED,
        query=query[:MAX_TOLD],
        results=[item.citation() for item in found],
        duration=round(time.monotonic() - began_at, 6),
    )


def _is_due(work: Work) -> bool:
    """Say whether the turn is at its very beginning, worked by the built-in driver, and nothing was looked up yet."""
    if work.step.number > 1 or work.step.message is not None or work.pinned["driver"] != drivers.BUILT_IN:
        return False
    if work.is_first:
        return True
    told = SessionEvent.objects.filter(
        turn_id=work.turn.execution_id, type__in=(EventType.RAG_EXECUTED, EventType.RAG_FAILED)
    )
    return not told.exists()


def _find(work: Work, query: str) -> list[Passage]:
    embedding = _embedded(query, seconds=min(limits.require_time(work) / 2, MAX_SECONDS))
    return passages.nearest(work.turn.agent.name, embedding, work.pinned["rag_top_k"])


def _embedded(query: str, *, seconds: float) -> Embedding:
    """Return the query's embedding; an embedder that takes too long is left behind."""
    with database.given_back():
        outcome = execution.run_tool(
            lambda: passages.embed(query), timeout=seconds, in_caller=database.is_in_test_case()
        )
    if outcome.error is not None:
        raise outcome.error
    if not isinstance(outcome.value, Embedding):
        raise TimeoutError(f"The embedder took more than {seconds:.0f} seconds.")
    return outcome.value


def _value(passage: Passage) -> dict[str, Any]:
    return {**passage.citation(), "text": passage.text}


def _told(error: BaseException) -> dict[str, Any]:
    code, message = getattr(error, "code", None), getattr(error, "message", None)
    if isinstance(error, TimeoutError):
        return {"code": "unavailable", "message": str(error)}
    # What other errors say may hold secrets; the log has them.
    return {"code": code or "internal", "message": message or f"The search failed with {type(error).__name__}."}
