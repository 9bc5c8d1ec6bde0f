"""The async twins: they do what their verbs do, and hold up neither the event loop nor the ORM of others."""

import asyncio
import inspect
import threading

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connection, transaction
from django.test import TestCase

from agentcore import AgentRuntime, ToolContext, TurnState, agent, runtime, tool
from agentcore.agents.registry import registry
from agentcore.exceptions import Conflict, NotFound
from agentcore.models import AgentContext, AgentSession, ContextEntry, SessionEvent
from agentcore.testing import (
    TESTING_AGENT,
    ScriptedProvider,
    assert_invariants,
    calls,
    make_session,
    make_turn,
    make_user,
    run_turns,
)

pytestmark = pytest.mark.django_db(transaction=True)

AGENT = "async-agent"
LONG = 30

# Verbs that touch no row and call nobody.
WITHOUT_A_TWIN = {"register", "register_driver", "driver_ids", "agents", "tools", "on", "off", "on_any"}


class Gate:
    """Where a model or tool stops until the test has seen it there."""

    def __init__(self):
        self._arrived, self._may_go = threading.Event(), threading.Event()

    def pass_through(self):
        self._arrived.set()
        assert self._may_go.wait(LONG)

    async def arrived(self):
        # In a thread of its own: neither the loop nor the ORM's thread waits here.
        assert await sync_to_async(self._arrived.wait, thread_sensitive=False)(LONG)

    def open(self):
        self._may_go.set()


gates: dict[str, Gate] = {}


@agent(name=AGENT, model="scripted:any")
class AsyncAgent:
    @tool(description="Stop at the gate")
    def slow(self) -> str:
        gates["tool"].pass_through()
        return "done"

    @tool(description="Stop at the gate")
    async def slow_async(self) -> str:
        await sync_to_async(gates["tool"].pass_through)()
        return "done"

    @tool(description="Use everything a tool is given")
    async def curious(self, ctx: ToolContext) -> dict[str, object]:
        ctx.working_memory["seen"] = [*ctx.working_memory.get("seen", []), ctx.call_id]
        ctx.emit("shop.noted", {"n": 1})
        return {
            "user": ctx.user.get_username(),
            "cancelled": ctx.cancelled,
            "metadata": ctx.metadata,
            "sessions": await AgentSession.objects.acount(),
            "known": ctx.working_memory["given"],
        }


registry.unregister(AGENT)


@pytest.fixture(autouse=True)
def _agent():
    runtime.register(AsyncAgent)
    gates["tool"], gates["model"] = Gate(), Gate()
    yield
    for gate in gates.values():
        gate.open()
    registry.unregister(AGENT)


@pytest.fixture
def reviewer():
    return make_user("reviewer", permissions=("agentcore.decide_toolapproval",))


in_thread = sync_to_async


def test_every_verb_that_reads_or_calls_out_has_a_twin():
    verbs = {
        name
        for name, member in vars(AgentRuntime).items()
        if inspect.isfunction(member) and not name.startswith("_") and not _is_async(member)
    }
    twins = {f"a{verb}" for verb in verbs - WITHOUT_A_TWIN} - {"await"} | {"await_"}
    assert twins <= set(vars(AgentRuntime))
    for name in twins:
        assert _is_async(getattr(AgentRuntime, name))
        assert getattr(AgentRuntime, name).__doc__.startswith("Async twin of `")


def _is_async(member):
    return inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)


async def test_a_twin_does_what_its_verb_does(scripted, reviewer):
    scripted([calls(("pay", {"amount": 1, "to": "x"})), "Paid."])
    session = await runtime.acreate_session(TESTING_AGENT, title="T")
    waiting = await runtime.aexecute(TESTING_AGENT, "pay", session_id=session.session_id)
    assert waiting.state == TurnState.WAITING_FOR_APPROVAL
    [approval] = [item async for item in await runtime.apending_approvals(reviewer)]
    await runtime.aapprove(approval.pk, reviewer)
    done = await runtime.aresume(waiting.execution_id)
    assert done.response == "Paid."
    assert (await runtime.aresult(waiting.execution_id)).response == "Paid."
    assert [turn.state async for turn in await runtime.asession_turns(session.session_id)] == ["completed"]
    assert (await runtime.await_(waiting.execution_id, timeout=1)).response == "Paid."
    assert (await runtime.aarchive(session.session_id)).status == "archived"
    assert (await runtime.ahealth())["status"] in ("healthy", "degraded")
    decided = {"expired", "reminded", "unroutable"}
    kept = {"forgotten", "archived", "trimmed", "remembered"}
    assert set(await runtime.atick()) == {"taken_over", "sent_again", *decided, *kept}
    assert await runtime.ashutdown(1) is True
    await in_thread(assert_invariants)()


async def test_errors_come_through(scripted):
    with pytest.raises(NotFound):
        await runtime.aenqueue("nowhere", "hi")
    with pytest.raises(NotFound):
        await runtime.aexecute("no-such-agent", "hi")
    session = await runtime.acreate_session(TESTING_AGENT)
    with pytest.raises(Conflict):
        await runtime.acancel(session.session_id)


async def test_a_working_model_holds_up_neither_the_loop_nor_the_orm_of_others(scripted):
    def answer(request):
        gates["model"].pass_through()
        return "Hello."

    scripted(answer)
    working = asyncio.create_task(runtime.aexecute(AGENT, "hi"))
    await gates["model"].arrived()
    async with asyncio.timeout(LONG):
        assert await AgentSession.objects.acount() == 1
        assert await in_thread(AgentContext.objects.get)(state="thinking")
        other = await runtime.acreate_session(TESTING_AGENT)
        assert (await runtime.aenqueue(other.session_id, "hi")).turn.state == "queued"
        assert (await runtime.acancel(other.session_id)).state == "cancelled"
    assert not working.done()
    gates["model"].open()
    assert (await working).response == "Hello."


@pytest.mark.parametrize("name", ["slow", "slow_async"])
async def test_a_working_tool_holds_up_neither_the_loop_nor_the_orm_of_others(name, scripted):
    scripted([calls((name, {})), "Done."])
    working = asyncio.create_task(runtime.aexecute(AGENT, "hi"))
    await gates["tool"].arrived()
    async with asyncio.timeout(LONG):
        assert await AgentSession.objects.acount() == 1
        assert (await in_thread(AgentContext.objects.get)()).state == "using_tool"
    assert not working.done()
    gates["tool"].open()
    assert (await working).response == "Done."


async def test_several_turns_work_at_once(scripted):
    together = threading.Barrier(4)

    def answer(request):
        together.wait(LONG)
        return "Hello."

    scripted(answer)
    results = await asyncio.gather(*(runtime.aexecute(AGENT, "hi") for _ in range(4)))
    assert [result.response for result in results] == ["Hello."] * 4
    await in_thread(assert_invariants)()


async def test_waiting_for_a_worker_holds_up_nobody(scripted):
    session = await runtime.acreate_session(TESTING_AGENT)
    waiting = asyncio.create_task(runtime.asend(session.session_id, "hi", timeout=LONG))
    async with asyncio.timeout(LONG):
        while not await AgentContext.objects.aexists():
            await asyncio.sleep(0)
    scripted(["Hello."])
    assert await in_thread(run_turns)() == 1
    assert (await waiting).response == "Hello."


async def test_a_turn_is_cancelled_while_it_is_awaited(scripted):
    def answer(request):
        gates["model"].pass_through()
        return "Hello."

    scripted(answer)
    working = asyncio.create_task(runtime.aexecute(AGENT, "hi", session_id="s"))
    await gates["model"].arrived()
    assert (await runtime.acancel("s")).state == "cancelling"
    gates["model"].open()
    assert (await working).state == TurnState.CANCELLED


async def test_an_async_tool_has_its_whole_context(scripted):
    scripted([calls(("curious", {}), ("curious", {})), "Done."])
    owner = await in_thread(make_user)("owner")
    result = await runtime.aexecute(AGENT, "hi", user=owner, metadata={"m": 1}, initial_context={"given": "something"})
    first, second = result.steps[0].tool_calls
    expected = {"user": "owner", "cancelled": False, "metadata": {"m": 1}, "sessions": 1, "known": "something"}
    assert (first.result, second.result) == (expected, expected)
    memory = await ContextEntry.objects.aget(key="seen")
    assert memory.value == [first.call_id, second.call_id]
    assert await SessionEvent.objects.filter(type="shop.noted").acount() == 2


def test_a_long_twin_refuses_to_work_inside_a_transaction(scripted):
    provider = scripted(["never"])

    @transaction.atomic
    def work(verb, *args):
        async_to_sync(verb)(*args)

    for verb, *args in (
        (runtime.aexecute, TESTING_AGENT, "hi"),
        (runtime.asend, "s", "hi"),
        (runtime.aresume, "00000000-0000-0000-0000-000000000000"),
    ):
        with pytest.raises(RuntimeError, match="open transaction"):
            work(verb, *args)
    assert provider.call_count == 0
    assert not AgentSession.objects.exists()


def test_a_short_twin_joins_the_callers_transaction(make_session, make_approval, reviewer):
    session, approval = make_session(), make_approval()
    before = SessionEvent.objects.count()

    @transaction.atomic
    def work():
        async_to_sync(runtime.aenqueue)(session.session_id, "hi")
        async_to_sync(runtime.aapprove)(approval.pk, reviewer)
        assert SessionEvent.objects.count() > before
        transaction.set_rollback(True)

    work()
    assert SessionEvent.objects.count() == before
    approval.refresh_from_db()
    assert approval.status == "pending"
    assert_invariants()


class InATestCaseTests(TestCase):
    """Everything runs in the thread and transaction of the test, and sees its rows."""

    @classmethod
    def setUpTestData(cls):
        cls.session = make_session()

    async def test_a_turn_is_executed(self):
        with ScriptedProvider([calls(("lookup", {"q": "a"})), "Done."]).installed():
            result = await runtime.aexecute(TESTING_AGENT, "hi", session_id=self.session.session_id)
        assert result.response == "Done."
        assert result.steps[0].tool_calls[0].status == "completed"
        await sync_to_async(assert_invariants)()

    async def test_a_queued_turn_is_resumed(self):
        turn = await sync_to_async(make_turn)(self.session)
        with ScriptedProvider(["Done."]).installed():
            assert (await runtime.aresume(turn.execution_id)).response == "Done."

    async def test_models_work_in_the_thread_that_has_the_tests_rows(self):
        seen = []

        def answer(request):
            seen.append((AgentContext.objects.count(), connection.in_atomic_block))
            return "Done."

        with ScriptedProvider(answer).installed():
            await runtime.aexecute(TESTING_AGENT, "hi")
        assert seen == [(1, True)]

    async def test_an_async_tool_has_its_context(self):
        owner = await sync_to_async(make_user)("owner")
        with ScriptedProvider([calls(("curious", {})), "Done."]).installed():
            result = await runtime.aexecute(AGENT, "hi", user=owner, initial_context={"given": "something"})
        assert result.steps[0].tool_calls[0].result["user"] == "owner"
        assert result.steps[0].tool_calls[0].result["cancelled"] is False

    def test_sync_verbs_work_in_sync_tests_too(self):
        with ScriptedProvider(["Done."]).installed():
            assert runtime.execute(TESTING_AGENT, "hi").response == "Done."
