"""The Celery tasks. Names and keywords are a published format: old workers meet new senders."""

from __future__ import annotations

import logging
from typing import Any, TypeGuard
from uuid import UUID

from celery import shared_task
from celery.signals import worker_process_init, worker_ready, worker_shutting_down

from agentcore import database, dispatch
from agentcore.engine import draining, loop
from agentcore.engine.runtime import AgentRuntime
from agentcore.turns import heartbeats

logger = logging.getLogger("agentcore.tasks")


@shared_task(name="agentcore.run_turn", ignore_result=True, acks_late=True)
def run_turn(*, execution_id: str | None = None, **ignored: Any) -> None:
    """Work on a turn until it ends or waits. Delivered twice, the second one finds nothing to do."""
    if not _is_id(execution_id):
        logger.warning("A task names no turn; nothing is done", extra={"execution_id": str(execution_id)[:64]})
        return
    try:
        loop.run(execution_id)
    finally:
        if draining.is_on():
            # The process may end with this task: what it gave back is on the broker by then.
            dispatch.flush()
        database.release_connection()


@shared_task(name="agentcore.tick", ignore_result=True)
def tick(**ignored: Any) -> None:
    """Do the periodic work: recover, expire, remind. For the beat schedule, every 15 seconds or so."""
    AgentRuntime().tick()


def _is_id(execution_id: Any) -> TypeGuard[str]:
    try:
        UUID(str(execution_id))
    except ValueError:
        return False
    return True


@worker_process_init.connect(dispatch_uid="agentcore.tasks")
def beat_in_process(**ignored: Any) -> None:
    """Have a process that works on tasks say that it is there."""
    heartbeats.start()


@worker_ready.connect(dispatch_uid="agentcore.tasks")
def beat_in_worker(sender: Any = None, **ignored: Any) -> None:
    """Have a worker say that it is there whose pool is no processes, but threads or greenlets of its own.

    The parent of a pool of processes works on no task, and must hold no connection that the next fork would inherit.
    """
    if "prefork" not in type(getattr(sender, "pool", None)).__module__:
        heartbeats.start()


@worker_shutting_down.connect(dispatch_uid="agentcore.tasks")
def give_turns_back(**ignored: Any) -> None:
    """Have a worker that is told to stop give its turns back at the end of the call in hand."""
    draining.start_with_forks()
