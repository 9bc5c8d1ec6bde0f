"""Begin a session, its first turn and that turn's first step in one transaction: for who runs the turn right here."""

from __future__ import annotations

from typing import Any

from django.db import DatabaseError

from agentcore import database
from agentcore.agents.definition import AgentDefinition
from agentcore.events import log
from agentcore.turns import admission, enqueuing, lifecycle, sessions, steps
from agentcore.turns.enqueuing import TurnOptions
from agentcore.turns.work import Work


def open_session(
    definition: AgentDefinition,
    *,
    session_id: str | None,
    message: dict[str, Any],
    key: str,
    user: Any,
    metadata: dict[str, Any],
    options: TurnOptions,
) -> Work:
    """Return the turn to work on. A taken `session_id` is a Conflict; then nothing is stored."""
    # Chosen before any attempt: another one must not open a second session.
    chosen = sessions.new_id() if session_id is None else session_id
    given: dict[str, Any] = {
        "message": message,
        "key": key,
        "user": user,
        "metadata": metadata,
        "options": options,
    }
    work = _opened(definition, chosen, given)
    work.memory = dict(options.initial_context or {})
    return work


@database.retried
def _opened(definition: AgentDefinition, session_id: str, given: dict[str, Any]) -> Work:
    session = sessions.make(definition, session_id=session_id, user=given["user"])
    try:
        with sessions.refusing_taken_id(session), log.in_one_go(session) as journal:
            sessions.begin(journal)
            journal.write(lambda: admission.require_room(session, given["user"]))
            turn = enqueuing.store(journal, **given)
            lease = lifecycle.claim_new(journal, turn)
            step = steps.begin(journal, turn, 1)
    except DatabaseError as error:
        if not log.was_made_after_all(error):
            raise
    return Work(turn=turn, lease=lease, step=step, is_first=True, opens_session=True)
