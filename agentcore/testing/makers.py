"""Make rows to test with, by the same ways the product makes them."""

from __future__ import annotations

import itertools
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission

from agentcore.engine import loop
from agentcore.engine.runtime import AgentRuntime
from agentcore.models import AgentContext, AgentSession, ToolApproval
from agentcore.states import TurnState
from agentcore.testing.agents import TESTING_AGENT
from agentcore.testing.provider import ScriptedProvider, calls
from agentcore.turns import enqueuing, inputs, sessions
from agentcore.turns.enqueuing import TurnOptions

_numbers = itertools.count(1)


def make_user(username: str | None = None, *, permissions: tuple[str, ...] = (), **fields: Any) -> Any:
    """Return a user with permissions given as `app.codename`."""
    name = username or f"user-{next(_numbers)}"
    user = get_user_model().objects.create_user(**{get_user_model().USERNAME_FIELD: name}, **fields)
    for permission in permissions:
        app, codename = permission.split(".")
        user.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))
    return user


def make_session(agent: str = TESTING_AGENT, **fields: Any) -> AgentSession:
    """Return a session; `fields` are those of `runtime.create_session`."""
    return AgentRuntime().create_session(agent, **fields)


def make_turn(session: AgentSession | None = None, message: str = "hello", **fields: Any) -> AgentContext:
    """Return a queued turn; `fields` are those of `runtime.enqueue`."""
    session = session or make_session(user=fields.get("user"))
    return AgentRuntime().enqueue(session.session_id, message, **fields).turn


def make_approval(
    tool: str = "pay",
    arguments: dict[str, Any] | None = None,
    *,
    session: AgentSession | None = None,
    user: Any = None,
    provider: str = "scripted",
    **fields: Any,
) -> ToolApproval:
    """Return the pending request of a turn that waits for it.

    The turn is run for that with a model that asks for this one call; a script installed under the same
    name goes on with it afterwards. `fields`: idempotency_key and metadata.
    """
    session = session or make_session(user=user)
    turn = _make_unsent_turn(session, user=user, **fields)
    wanted = {"amount": 10, "to": "acme"} if arguments is None else arguments
    with ScriptedProvider([calls((tool, wanted))]).installed(provider):
        loop.run(turn.execution_id)
    turn.refresh_from_db()
    if turn.state != TurnState.WAITING_FOR_APPROVAL:
        raise AssertionError(f"The turn is {turn.state} ({turn.error}); {tool!r} was not asked about.")
    approval: ToolApproval = ToolApproval.objects.get(turn=turn)
    return approval


def _make_unsent_turn(session: AgentSession, **fields: Any) -> AgentContext:
    """Return a queued turn that no worker hears of: the maker runs it itself."""
    return enqueuing.enqueue(
        session,
        message=inputs.checked_message("hello"),
        key=inputs.checked_key(fields.get("idempotency_key")),
        user=fields.get("user"),
        metadata=sessions.checked_metadata(fields.get("metadata")),
        options=TurnOptions(),
        send=False,
    ).turn
