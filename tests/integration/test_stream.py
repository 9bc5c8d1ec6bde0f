"""`runtime.stream` and its async twin: what they yield, in which order, and what is left when one stops early."""

import asyncio
import threading
import time

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connections, transaction
from django.test import TestCase

from agentcore import StreamChunk, TurnState, runtime
from agentcore.exceptions import Conflict, InvalidInput, NotFound, ProviderOverloaded
from agentcore.messages import ModelDelta, ModelReply
from agentcore.models import AgentContext, AgentSession, SessionEvent
from agentcore.providers import registry as providers
from agentcore.providers.base import ModelProvider
from agentcore.testing import (
    TESTING_AGENT,
    ScriptedProvider,
    assert_invariants,
    calls,
    make_session,
    make_user,
    stream,
    text,
)
from agentcore.testing.agents import ledger

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS = 20
PIECES = [
    stream("Let me ", "look.", reply=calls(("lookup", {"q": "x"}), content="Let me look.")),
    stream("Got", " it."),
]


def logged(execution_id):
    return list(SessionEvent.objects.filter(turn_id=execution_id).order_by("sequence").values_list("type", flat=True))


def threads_left():
    return [thread for thread in threading.enumerate() if thread.name in ("agentcore-follow", "agentcore-tool")]


def wait_until(reached):
    until = time.monotonic() + SECONDS
    while not reached():
        assert time.monotonic() < until
        time.sleep(0.01)


def assert_whole(chunks):
    """Check what holds of the chunks of `PIECES`, however they were got."""
    result = chunks[-1].result
    assert (chunks[-1].kind, result.state, result.response) == ("done", TurnState.COMPLETED, "Got it.")
    assert [chunk.kind for chunk in chunks].count("done") == 1
    assert [chunk.event.type for chunk in chunks if chunk.kind == "event"] == logged(result.execution_id)
    told = [(chunk.step, chunk.attempt, chunk.text) for chunk in chunks if chunk.kind == "token"]
    assert told == [(1, 1, "Let me "), (1, 1, "look."), (2, 1, "Got"), (2, 1, " it.")]
    assert [(chunk.step, chunk.text) for chunk in chunks if chunk.kind == "step"] == [
        (1, "Let me look."),
        (2, "Got it."),
    ]
    # The text of a step comes between its beginning and its message.
    for step in (1, 2):
        where = {
            name: [index for index, chunk in enumerate(chunks) if chunk.step == step and is_it(chunk)]
            for name, is_it in {
                "started": lambda chunk: chunk.kind == "event" and chunk.event.type == "agent.step.started",
                "text": lambda chunk: chunk.kind == "token",
                "message": lambda chunk: chunk.kind == "event" and chunk.event.type == "message",
            }.items()
        }
        assert max(where["started"]) < min(where["text"])
        assert max(where["text"]) < min(where["message"])


def test_a_stream_tells_the_text_and_each_event_and_ends_with_the_result(scripted):
    scripted(PIECES)
    chunks = list(runtime.stream(TESTING_AGENT, "hi", metadata={"a": 1}))
    assert_whole(chunks)
    assert chunks[-1].result.metadata == {"a": 1}
    assert ledger.entries == [("lookup", "x")]
    assert_invariants()
    wait_until(lambda: not threads_left())


async def test_the_async_twin_tells_the_same(scripted):
    scripted(PIECES)
    chunks = [chunk async for chunk in runtime.astream(TESTING_AGENT, "hi")]
    await sync_to_async(assert_whole)(chunks)
    await sync_to_async(assert_invariants)()


class InATestCase(TestCase):
    def test_it_works_in_the_calling_thread(self):
        with ScriptedProvider(PIECES).installed():
            chunks = runtime.stream(TESTING_AGENT, "hi")
            assert not threads_left()
            assert_whole(list(chunks))

    def test_so_does_its_twin(self):
        async def work():
            return [chunk async for chunk in runtime.astream(TESTING_AGENT, "hi")]

        with ScriptedProvider(PIECES).installed():
            assert_whole(async_to_sync(work)())


def test_the_last_chunk_tells_of_a_pause(scripted):
    scripted([calls(("pay", {"amount": 1, "to": "x"}))])
    *_, done = runtime.stream(TESTING_AGENT, "hi")
    assert (done.kind, done.result.state) == ("done", TurnState.WAITING_FOR_APPROVAL)
    assert len(done.result.pending_approvals) == 1


def test_the_last_chunk_tells_of_a_failure(scripted, settings):
    settings.AGENTCORE = {**settings.AGENTCORE, "RETRY": {"attempts": 1}}
    scripted([stream("The answer is 4", ProviderOverloaded("busy"))])
    chunks = list(runtime.stream(TESTING_AGENT, "hi"))
    assert [chunk.text for chunk in chunks if chunk.kind == "token"] == ["The answer is 4"]
    assert chunks[-1].result.error["details"]["incomplete"] is True


@pytest.mark.parametrize("is_async", [False, True])
def test_a_known_key_runs_nothing_and_gives_what_is_stored(scripted, is_async):
    provider = scripted(["Hello."])
    session = make_session()
    same = {"session_id": session.session_id, "idempotency_key": "k"}
    first = runtime.execute(TESTING_AGENT, "hi", **same)

    async def work():
        return [chunk async for chunk in runtime.astream(TESTING_AGENT, "hi", **same)]

    chunks = async_to_sync(work)() if is_async else list(runtime.stream(TESTING_AGENT, "hi", **same))
    assert chunks == [StreamChunk(kind="done", result=first)]
    assert provider.call_count == 1
    with pytest.raises(Conflict):
        runtime.stream(TESTING_AGENT, "another", **same)


def test_what_is_refused_is_raised_before_the_first_chunk(scripted):
    for error, agent, options in (
        (NotFound, "nobody", {}),
        (InvalidInput, TESTING_AGENT, {"max_steps": 0}),
        (InvalidInput, TESTING_AGENT, {"max_steps": 2**31}),
        (InvalidInput, TESTING_AGENT, {"timeout": 1e12}),
        (InvalidInput, TESTING_AGENT, {"enable_memory": 1}),
        (TypeError, TESTING_AGENT, {"steps": 1}),
    ):
        with pytest.raises(error):
            runtime.stream(agent, "hi", **options)
    with transaction.atomic(), pytest.raises(RuntimeError, match=r"stream\(\) cannot run inside"):
        runtime.stream(TESTING_AGENT, "hi")
    assert not AgentSession.objects.exists()


async def test_the_twin_raises_at_its_first_chunk(scripted):
    with pytest.raises(NotFound):
        await anext(runtime.astream("nobody", "hi"))


def test_what_a_handler_decides_goes_on_in_the_same_stream(scripted):
    reviewer = make_user("reviewer", permissions=("agentcore.decide_toolapproval",))
    scripted([calls(("pay", {"amount": 1, "to": "x"})), stream("Pa", "id.")])

    def approve(event):
        runtime.approve(event.data["approval_id"], reviewer)

    runtime.on("tool.approval.requested", approve)
    try:
        chunks = list(runtime.stream(TESTING_AGENT, "hi"))
    finally:
        runtime.off("tool.approval.requested", approve)
    assert chunks[-1].result.response == "Paid."
    # A second claim, and the first text of another step: its number only rises.
    assert [(chunk.step, chunk.text) for chunk in chunks if chunk.kind == "token"] == [(2, "Pa"), (2, "id.")]
    assert [chunk.event.type for chunk in chunks if chunk.event] == logged(chunks[-1].result.execution_id)


def test_events_that_another_process_wrote_are_told_in_their_place(scripted, monkeypatch):
    # As if the commits of one kind of event had happened elsewhere: no signal comes for them.
    from agentcore.events import push

    tell = push._tell
    monkeypatch.setattr(push, "_tell", lambda event: None if "state" in event.type else tell(event))
    scripted(PIECES)
    assert_whole(list(runtime.stream(TESTING_AGENT, "hi")))


class Talking(ModelProvider):
    """Says a word, then waits to be let on; the second time it answers at once."""

    def __init__(self):
        self.asked, self.may_end, self.closed = 0, threading.Event(), threading.Event()

    def stream(self, request):
        self.asked += 1
        if self.asked > 1:
            yield ModelReply(content="Done by a worker.")
            return
        try:
            yield ModelDelta(text="Well, ")
            self.may_end.wait(SECONDS)
            yield ModelDelta(text="here I am.")
            yield ModelReply(content="Well, here I am.")
        finally:
            self.closed.set()


@pytest.fixture
def talking():
    provider = Talking()
    with providers.override("scripted", provider):
        yield provider
        provider.may_end.set()
        wait_until(lambda: not threads_left())


def leave_by_close(chunks):
    assert any(chunk.kind == "token" for chunk in chunks)
    chunks.close()
    assert list(chunks) == []


def leave_by_with(chunks):
    with chunks:
        next(chunk for chunk in chunks if chunk.kind == "token")


def leave_by_break(chunks):
    for chunk in chunks:
        if chunk.kind == "token":
            break


@pytest.mark.parametrize("leave", [leave_by_close, leave_by_with, leave_by_break])
def test_who_stops_early_gives_the_turn_back_to_the_queue(talking, leave, run_turns, monkeypatch):
    sent = []
    monkeypatch.setattr("agentcore.dispatch._send", sent.append)
    leave(runtime.stream(TESTING_AGENT, "hi"))
    wait_until(lambda: AgentContext.objects.get().state == TurnState.QUEUED)
    turn = AgentContext.objects.get()
    assert (sent, turn.lease_owner, turn.lease_expires_at) == ([str(turn.execution_id)], "", None)
    talking.may_end.set()
    assert talking.closed.wait(SECONDS)
    wait_until(lambda: not threads_left())
    run_turns()
    assert runtime.result(turn.execution_id).response == "Done by a worker."
    assert_invariants()


async def test_who_stops_an_async_stream_early_gives_the_turn_back_too(talking, monkeypatch):
    sent = []
    monkeypatch.setattr("agentcore.dispatch._send", sent.append)
    async for chunk in runtime.astream(TESTING_AGENT, "hi"):
        if chunk.kind == "token":
            break
    await sync_to_async(wait_until)(lambda: AgentContext.objects.get().state == TurnState.QUEUED)
    assert len(sent) == 1
    await sync_to_async(assert_invariants)()


def test_a_stream_that_nobody_reads_is_given_back(talking, monkeypatch):
    sent = []
    monkeypatch.setattr("agentcore.dispatch._send", sent.append)
    runtime.stream(TESTING_AGENT, "hi").close()
    wait_until(lambda: bool(sent) and AgentContext.objects.get().state == TurnState.QUEUED)


async def test_a_followed_turn_holds_up_neither_the_loop_nor_the_orm_of_others(talking):
    chunks = runtime.astream(TESTING_AGENT, "hi")
    async with asyncio.timeout(SECONDS):
        while (await anext(chunks)).kind != "token":
            pass
        following = asyncio.create_task(anext(chunks))
        assert await AgentSession.objects.acount() == 1
        assert (await runtime.acreate_session(TESTING_AGENT)).status == "active"
        assert not following.done()
        talking.may_end.set()
        assert (await following).text == "here I am."
        assert [chunk async for chunk in chunks][-1].result.response == "Well, here I am."


def test_what_has_begun_ends_before_the_turn_is_given_back(scripted, monkeypatch):
    monkeypatch.setattr("agentcore.dispatch._send", lambda execution_id: None)
    began, may_end = threading.Event(), threading.Event()
    write = ledger.write

    def slowly(*entry):
        began.set()
        assert may_end.wait(SECONDS)
        write(*entry)

    monkeypatch.setattr(ledger, "write", slowly)
    scripted([calls(*(("lookup", {"q": q}) for q in "xyz"))])
    chunks = runtime.stream(TESTING_AGENT, "hi")
    assert began.wait(SECONDS)
    chunks.close()
    may_end.set()
    wait_until(lambda: AgentContext.objects.get().state == TurnState.QUEUED)
    # The second was begun with the first one's result in sight, as at a shutdown.
    assert ledger.entries == [("lookup", "x"), ("lookup", "y")]
    wait_until(lambda: not threads_left())
    assert_invariants()


def test_an_error_of_the_runtime_itself_reaches_who_follows(scripted, monkeypatch):
    monkeypatch.setattr("agentcore.engine.loop.run", lambda *args, **kwargs: 1 / 0)
    chunks = runtime.stream(TESTING_AGENT, "hi")
    with pytest.raises(ZeroDivisionError):
        list(chunks)
    assert list(chunks) == []
    connections.close_all()


def test_text_that_never_ends_is_one_answer(scripted):
    said = "word " * 2_000
    scripted([stream(*["word "] * 2_000, reply=text(said))])
    *chunks, done = runtime.stream(TESTING_AGENT, "hi")
    assert "".join(chunk.text for chunk in chunks if chunk.kind == "token") == done.result.response == said
