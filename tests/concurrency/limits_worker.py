"""Jobs of processes that ask a model, run calls and begin turns all at once, under limits they share."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from django.contrib.auth import get_user_model
from django.db import connections
from django.test import override_settings

from agentcore import ToolContext, agent, clock, runtime, tasks, tool
from agentcore.exceptions import AgentError, ProviderError, ProviderOverloaded
from agentcore.messages import Message, ModelReply, ModelRequest
from agentcore.providers import registry as providers
from agentcore.providers.resilient import Resilient
from agentcore.testing import ScriptedProvider, calls, text
from tests.concurrency import crash_worker

LIMITED = "limited-over-processes"
MODEL = "limited:any"
REQUEST = ModelRequest(model="any", messages=(Message(role="user", content="hi"),), timeout=30)


def define_agent() -> type:
    @agent(name=LIMITED, model=MODEL)
    class LimitedAgent:
        @tool(description="Pay, five times an hour", requires_approval=True, rate_limit="5/hour")
        def pay(self, amount: int, ctx: ToolContext) -> str:
            crash_worker.stage.ledger.write("pay", ctx.call_id, amount=amount)
            return "paid"

    return LimitedAgent


def answer(request: ModelRequest) -> ModelReply:
    """Ask for a payment first, and be content with whatever came of it."""
    asked = request.messages[-1].role == "user"
    return calls(("pay", {"amount": 1})) if asked else text("Done.")


class Api(ScriptedProvider):
    """A model API that writes down each request, takes its time, and may be down."""

    def __init__(self, *, down: bool, seconds: float) -> None:
        super().__init__(lambda _: ProviderOverloaded("503") if down else text("Hi."))
        self._seconds = seconds

    def complete(self, request: ModelRequest) -> ModelReply:
        crash_worker.stage.ledger.write("model", request.model)
        time.sleep(self._seconds)
        return super().complete(request)


def work_turns(*, execution_ids: list[str], cache: dict[str, Any], down: bool, shift: float = 0.0) -> dict[str, Any]:
    """Work turns one after another."""
    begin(cache, shift)
    with providers.override("limited", Api(down=down, seconds=0.02)):
        for execution_id in execution_ids:
            tasks.run_turn(execution_id=execution_id)
    return {}


def ask_at_once(*, times: int, cache: dict[str, Any], shift: float, seconds: float) -> dict[str, Any]:
    """Ask the model so many times at once, each in a thread; return what came of it."""
    begin(cache, shift)
    api, outcomes = Api(down=False, seconds=seconds), Counter[str]()

    def ask() -> None:
        try:
            Resilient(api, model=MODEL).complete(REQUEST)
            outcomes["answered"] += 1
        except ProviderError as error:
            outcomes[type(error).__name__] += 1

    at_once([ask] * times)
    return dict(outcomes)


def pay(*, execution_ids: list[str]) -> dict[str, Any]:
    """Work turns whose payment was approved, all at once."""
    define_agent()
    with ScriptedProvider(answer).installed("limited"):
        at_once([lambda one=one: tasks.run_turn(execution_id=one) for one in execution_ids])
    return {}


def post(*, session_ids: list[str], user: int) -> dict[str, Any]:
    """Begin a turn in each session, all at once; return how many were taken, and the codes of refusals."""
    define_agent()
    person, outcomes = get_user_model().objects.get(pk=user), Counter[str]()

    def enqueue(session_id: str) -> None:
        try:
            runtime.enqueue(session_id, "hi", user=person)
            outcomes["taken"] += 1
        except AgentError as refusal:
            outcomes[refusal.code if refusal.details.get("retry_after", 0) > 0 else str(refusal)] += 1

    at_once([lambda one=one: enqueue(one) for one in session_ids])
    return dict(outcomes)


def begin(cache: dict[str, Any], shift: float) -> None:
    """Share a cache with the other processes, and be as much later as the test says."""
    override_settings(CACHES={"default": cache}).enable()
    clock.shift(clock.timedelta(seconds=shift))
    define_agent()


def at_once(functions: list[Callable[[], Any]]) -> None:
    barrier, failures = threading.Barrier(len(functions)), []

    def call(function: Callable[[], Any]) -> None:
        try:
            barrier.wait(30)
            function()
        except Exception as error:
            failures.append(repr(error))
        finally:
            connections.close_all()

    running = [threading.Thread(target=call, args=(function,)) for function in functions]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not failures, failures
