"""The measurements themselves: turns against a model that answers at once, and the four of the runtime alone.

A is a turn with one tool; B the same with a pause for approval, taken up again over a new connection; C is A in a
session with so many earlier messages of 200 characters.
"""

from __future__ import annotations

import itertools
import random
import string
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import connections

from agentcore import agent, canonical, clock, database, tool
from agentcore.agents.decorators import agent as make_agent
from agentcore.agents.registry import AgentRegistry, definition_of, registry
from agentcore.engine.runtime import AgentRuntime
from agentcore.management.benchmark import measuring
from agentcore.messages import ModelReply, ModelRequest, ToolRequest, Usage
from agentcore.models import AgentContext, AgentSession, AgentStep
from agentcore.providers import registry as providers
from agentcore.providers.base import ModelProvider
from agentcore.states import StepAction, StepState, TurnState

AGENT = "agentcore-bench"
PROVIDER = "agentcore-bench"
QUESTION = "What is the weather in Paris?"
ANSWER = "It is sunny in Paris, 21 degrees."
MESSAGE_CHARS = 200
RUNS = {"A": 200, "B": 150, "C": 15}
WARM_UP = {"A": 20, "B": 15, "C": 3}
EARLIER = (10, 100, 1000)


class InstantModel(ModelProvider):
    """Asks for the weather, or for what needs an approval, and answers once it has the result; takes no time."""

    def __init__(self, tool: str) -> None:
        self.tool = tool
        self._ids = itertools.count()

    def complete(self, request: ModelRequest) -> ModelReply:
        usage = Usage(input_tokens=20, output_tokens=10)
        if request.messages[-1].role == "tool":
            return ModelReply(content=ANSWER, usage=usage)
        call = ToolRequest(id=f"c{next(self._ids)}", name=self.tool, arguments='{"city": "Paris"}')
        return ModelReply(tool_calls=(call,), finish_reason="tool_calls", usage=usage)


@contextmanager
def agent_of_the_benchmark() -> Iterator[None]:
    """Have the agent that the scenarios run."""

    @agent(name=AGENT, model=f"{PROVIDER}:instant", system_prompt="You tell the weather.", enable_memory=False)
    class Bench:
        @tool(description="Tell the weather", idempotent=True)
        def get_weather(self, city: str) -> str:
            return f"sunny 21C in {city}"

        @tool(description="Tell the weather, once somebody allowed it", requires_approval=True)
        def ask_weather(self, city: str) -> str:
            return f"sunny 21C in {city}"

    try:
        yield
    finally:
        registry.unregister(AGENT)


def turn_with_tool(runs: int) -> dict[str, Any]:
    """A: from the message of a new session to the answer, in this process."""
    runtime = AgentRuntime()

    def work() -> None:
        _require(runtime.execute(AGENT, QUESTION).state == TurnState.COMPLETED)

    with providers.override(PROVIDER, InstantModel("get_weather")):
        return {**measuring.timed(work, count=runs, warm_up=WARM_UP["A"]).as_dict(), **_weighed(work)}


def approval_round_trip(runs: int) -> dict[str, Any]:
    """B: the turn pauses; its connection is closed; somebody approves, and the turn is worked to its end."""
    runtime, reviewer = AgentRuntime(), _reviewer()

    def work() -> None:
        paused = runtime.execute(AGENT, QUESTION)
        _require(paused.state == TurnState.WAITING_FOR_APPROVAL)
        connections[database.alias()].close()
        runtime.approve(paused.pending_approvals[0].id, by=reviewer)
        _require(runtime.resume(paused.execution_id).state == TurnState.COMPLETED)

    with providers.override(PROVIDER, InstantModel("ask_weather")):
        return {**measuring.timed(work, count=runs, warm_up=WARM_UP["B"]).as_dict(), **_weighed(work)}


def turn_after(earlier: int, runs: int) -> dict[str, Any]:
    """C: A in a session that has `earlier` messages already; each run has a session of its own."""
    runtime = AgentRuntime()
    sessions = iter([_session_with(runtime, earlier) for _ in range(runs + WARM_UP["C"] + 2)])

    def work() -> None:
        result = runtime.execute(AGENT, QUESTION, session_id=next(sessions))
        _require(result.state == TurnState.COMPLETED)

    with providers.override(PROVIDER, InstantModel("get_weather")):
        return {**measuring.timed(work, count=runs, warm_up=WARM_UP["C"]).as_dict(), **_weighed(work)}


def agent_registration(runs: int) -> dict[str, Any]:
    """Define an agent with one tool, schema and all, and register it."""
    names = (f"bench-{number}" for number in itertools.count())

    def work() -> None:
        class Fresh:
            @tool(description="Tell the weather")
            def get_weather(self, city: str) -> str:
                return city

        fresh = AgentRegistry()
        name = next(names)
        make_agent(name=name)(Fresh)
        fresh.register(definition_of(Fresh))
        registry.unregister(name)

    return measuring.timed(work, count=runs, warm_up=10).as_dict()


def tool_lookup(runs: int) -> dict[str, Any]:
    """Find a tool of an agent by their names."""
    runtime = AgentRuntime()
    return measuring.timed(lambda: _tool_of(runtime), count=runs, warm_up=10).as_dict()


def health_check(runs: int) -> dict[str, Any]:
    """Ask every part whether it is healthy."""
    return measuring.timed(AgentRuntime().health, count=runs, warm_up=2).as_dict()


def metrics(runs: int) -> dict[str, Any]:
    """Read all metrics."""
    return measuring.timed(AgentRuntime().metrics, count=runs, warm_up=2).as_dict()


def _tool_of(runtime: AgentRuntime) -> None:
    _require("get_weather" in runtime.tools(AGENT))


def _weighed(work: Callable[[], None]) -> dict[str, Any]:
    with measuring.counting_statements() as sent:
        work()
    with measuring.weighing_rows() as written:
        work()
    return {**sent, **written.as_dict()}


def _session_with(runtime: AgentRuntime, messages: int) -> str:
    """Return the id of a session with so many messages: questions, each with its answer."""
    session: AgentSession = runtime.create_session(AGENT)
    now = clock.now()
    turns = [
        AgentContext(
            session=session,
            agent_id=session.agent_id,
            revision_id=session.revision_id,
            input={"role": "user", "content": _text()},
            state=TurnState.COMPLETED,
            response="",
            idempotency_key=(key := uuid.uuid4().hex),
            idempotency_digest=canonical.text_digest(key),
            body_digest="",
            max_steps=1,
            turn_timeout=1,
            created_at=now,
            updated_at=now,
            completed_at=now,
            step_count=1,
        )
        for _ in range(messages // 2)
    ]
    AgentContext.objects.bulk_create(turns)
    AgentStep.objects.bulk_create(
        AgentStep(
            turn=turn,
            number=1,
            state=StepState.COMPLETED,
            action=StepAction.RESPOND,
            message={"role": "assistant", "content": _text()},
            started_at=now,
            completed_at=now,
        )
        for turn in turns
    )
    return session.session_id


_letters = random.Random(7)  # noqa: S311 - no secret; the same texts in every run


def _text() -> str:
    return "".join(_letters.choices(f"{string.ascii_letters}     ", k=MESSAGE_CHARS))


def _reviewer() -> Any:
    users = get_user_model()._default_manager
    name: dict[str, Any] = {users.model.USERNAME_FIELD: "agentcore-bench-reviewer"}
    reviewer = users.filter(**name).first() or users.create(**name)
    reviewer.user_permissions.add(Permission.objects.get(codename="decide_toolapproval"))
    return users.get(pk=reviewer.pk)


def _require(is_so: bool) -> None:
    if not is_so:
        raise RuntimeError("A turn of the benchmark did not end as it should; its figures would mean nothing.")
