"""Store the turn of a caller who works it at once. All is checked first: what is refused stores nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agentcore import canonical, database
from agentcore.agents.definition import AgentDefinition
from agentcore.conf import COUNT, FLAG, SECONDS, optional, settings
from agentcore.engine import access, draining
from agentcore.exceptions import Conflict, InvalidInput, TooLarge
from agentcore.models import AgentSession
from agentcore.tools import results
from agentcore.turns import enqueuing, inputs, opening, sessions
from agentcore.turns.enqueuing import Enqueued, TurnOptions
from agentcore.turns.work import Work

MAX_CONTEXT_KEY = 255


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """What a caller wants run, checked: `session` is None for one that is to be made, under `session_id` if given."""

    definition: AgentDefinition
    session: AgentSession | None
    session_id: str | None
    given: dict[str, Any]


def start(verb: str, agent: str, message: Any, **same: Any) -> Work | Enqueued:
    """Return the turn claimed, in a new session, or stored in a session that was there; as `store` otherwise."""
    wanted = _wanted(verb, agent, message, **same)
    if wanted.session is not None or draining.is_on():
        return _stored(wanted)
    try:
        return opening.open_session(wanted.definition, session_id=wanted.session_id, **wanted.given)
    except Conflict:
        if wanted.session_id is None or sessions.find(wanted.session_id) is None:
            raise
    # Somebody made it meanwhile: what holds is what would have held a moment later.
    return _stored(_wanted(verb, agent, message, **same))


def store(verb: str, agent: str, message: Any, **same: Any) -> Enqueued:
    """Return the turn, in a new session if there is none yet; no worker hears of it. The arguments are `execute`'s.

    Raises RuntimeError inside an open transaction, in the name of `verb`.
    """
    return _stored(_wanted(verb, agent, message, **same))


def _stored(wanted: _Wanted) -> Enqueued:
    session = wanted.session or sessions.create(
        wanted.definition, session_id=wanted.session_id, user=wanted.given["user"]
    )
    return enqueuing.enqueue(session, **wanted.given, send=False)


def _wanted(
    verb: str,
    agent: str,
    message: Any,
    *,
    session_id: str | None = None,
    user: Any = None,
    idempotency_key: str | None = None,
    max_steps: int | None = None,
    timeout: float | None = None,
    enable_memory: bool | None = None,
    enable_rag: bool | None = None,
    initial_context: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
) -> _Wanted:
    database.require_no_transaction(verb)
    given: dict[str, Any] = {
        "options": _checked_options(max_steps, timeout, enable_memory, enable_rag, initial_context),
        "message": inputs.checked_message(message),
        "key": inputs.checked_key(idempotency_key),
        "user": user,
        "metadata": sessions.checked_metadata(metadata),
    }
    definition = access.agent_for(user, agent)
    is_there = session_id is not None and sessions.find(sessions.checked_session_id(session_id)) is not None
    session = access.session_for(user, str(session_id), agent=agent) if is_there else None
    return _Wanted(definition=definition, session=session, session_id=session_id, given=given)


def _checked_options(
    max_steps: Any,
    timeout: Any,
    enable_memory: Any,
    enable_rag: Any,
    initial_context: Any,
) -> TurnOptions:
    inputs.require("max_steps", max_steps, optional(COUNT))
    inputs.require("timeout", timeout, optional(SECONDS))
    inputs.require("enable_memory", enable_memory, optional(FLAG))
    inputs.require("enable_rag", enable_rag, optional(FLAG))
    return TurnOptions(
        max_steps=max_steps,
        turn_timeout=timeout,
        enable_memory=enable_memory,
        enable_rag=enable_rag,
        initial_context=_checked_context(initial_context),
    )


def _checked_context(given: Any) -> dict[str, Any]:
    """Return what the model is given beside the message, as it is stored."""
    if given is not None and not isinstance(given, dict):
        raise InvalidInput("initial_context must be a dict.", field="initial_context")
    context = {_checked_context_key(key): results.to_json(value) for key, value in (given or {}).items()}
    limit = settings.MAX_INPUT_BYTES
    if canonical.byte_size(context) > limit:
        raise TooLarge(f"initial_context is over {limit} bytes.", field="initial_context", limit=limit)
    return context


def _checked_context_key(key: Any) -> str:
    text = str(key)
    if not 0 < len(text) <= MAX_CONTEXT_KEY or canonical.has_unstorable_text(text):
        raise InvalidInput(
            f"A key of initial_context is text of 1 to {MAX_CONTEXT_KEY} characters without NUL or lone surrogates.",
            field="initial_context",
        )
    return text
