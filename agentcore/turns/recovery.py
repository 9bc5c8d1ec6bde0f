"""Find turns that nobody works on, and have them worked on. Decides nothing about calls."""

from __future__ import annotations

from django.db.models import QuerySet

from agentcore import database
from agentcore.conf import settings
from agentcore.events import log
from agentcore.events.log import Journal
from agentcore.models import AgentContext
from agentcore.states import WORKING, TurnState
from agentcore.turns import lifecycle, steps

BATCH = 100


def send_overdue() -> int:
    """Dispatch again the queued turns that nobody claimed; return how many were sent."""
    overdue = AgentContext.objects.overdue().order_by("next_dispatch_at")[:BATCH]
    return sum(lifecycle.send_again(turn) for turn in overdue)


def send_queued() -> int:
    """Dispatch every queued turn; right where the broker died with the process. Return how many were sent."""
    queued = AgentContext.objects.filter(state=TurnState.QUEUED).order_by("pk")
    return sum(lifecycle.send_again(turn) for turn in queued)


def settle_abandoned() -> int:
    """Queue again, or end, the turns whose worker let its lease run out; return how many were settled."""
    return _settle_each(AgentContext.objects.abandoned(), limit=BATCH)


def settle_all_working() -> int:
    """Settle every turn that looks as if a worker had it; right only where no other worker can be alive."""
    return _settle_each(AgentContext.objects.filter(state__in=WORKING), limit=None)


def _settle_each(turns: QuerySet[AgentContext], *, limit: int | None) -> int:
    found = list(turns.order_by("lease_expires_at").values_list("pk", "session_id")[:limit])
    return sum(_settle_one(turns, pk, session_pk) for pk, session_pk in found)


@database.retried
def _settle_one(turns: QuerySet[AgentContext], pk: int, session_pk: int) -> bool:
    with log.writing(session_pk) as journal:
        # Looked at again under the session's lock: its worker may have been alive after all.
        turn = turns.filter(pk=pk).first()
        if turn is not None:
            _settle(journal, turn)
    return turn is not None


def _settle(journal: Journal, turn: AgentContext) -> None:
    if turn.state == TurnState.CANCELLING:
        steps.close_cancelled(journal, turn)
    elif turn.takeovers + 1 >= settings.MAX_ATTEMPTS:
        _interrupt(journal, turn)
    else:
        lifecycle.take_over(journal, turn)


def _interrupt(journal: Journal, turn: AgentContext) -> None:
    error = {
        "code": "process_restarted",
        "message": f"The worker of this turn died {turn.takeovers + 1} times; it is not tried again.",
        "details": {"takeovers": turn.takeovers + 1},
    }
    steps.close_open(journal, turn, error)
    lifecycle.end(journal, turn, TurnState.INTERRUPTED, reason="process_restarted", error=error)
