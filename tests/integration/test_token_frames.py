"""A model's text on the session's socket: in order, at a bounded rate, and never where the log already has it."""

import asyncio
import threading
import time

import pytest
from django.db import connections

from agentcore import runtime
from agentcore.events import push, tokens
from agentcore.messages import ModelDelta
from agentcore.sockets.live_text import LiveText
from agentcore.testing import TESTING_AGENT, calls, make_user, run_turns, stream, text
from tests.integration.test_sockets import (
    HangingLayer,
    RaisingLayer,
    address,
    frames,
    in_thread,
    is_ready,
    opened,
    socket,
)
from tests.settings import REDIS_URL

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS = 20
__all__ = ["HangingLayer", "RaisingLayer"]  # named to the layers' setting by their path


@pytest.fixture(autouse=True)
def _push_again(monkeypatch):
    monkeypatch.setattr(push._pusher, "_paused_until", 0.0)


@pytest.fixture
def owner():
    return make_user("owner")


@pytest.fixture
def session(owner):
    return runtime.create_session(TESTING_AGENT, user=owner)


class Steps:
    """Lets a model go on piece by piece, each when the test has seen what it waits for."""

    def __init__(self):
        self._may_go = threading.Semaphore(0)

    def wait(self):
        assert self._may_go.acquire(timeout=SECONDS)

    def go_on(self):
        self._may_go.release()


def is_token(frame):
    return frame["kind"] == "token"


def is_event(*types):
    return lambda frame: frame["kind"] == "event" and frame["type"] in types


is_over = is_event("turn.completed", "turn.failed")


async def begin(session, owner):
    await runtime.aenqueue(session.session_id, "hi", user=owner)
    return asyncio.create_task(in_thread(run_turns))


async def test_text_comes_between_the_beginning_and_the_message_of_its_step(scripted, session, owner):
    steps = Steps()
    looks = calls(("lookup", {"q": "x"}), content="Let me look.")
    scripted([stream("Let ", "me ", steps.wait, "look.", steps.wait, reply=looks), stream("Got it.", steps.wait)])
    async with opened(socket(address(session), user=owner)) as client:
        await frames(client, until=is_ready)
        working = await begin(session, owner)
        before = await frames(client, until=is_token)
        assert "agent.step.started" in [frame.get("type") for frame in before]
        steps.go_on()
        told = before[-1]["text"]
        while told != "Let me look.":
            [frame] = await frames(client, until=is_token)
            assert (frame["step"], frame["attempt"], frame["offset"]) == (1, 1, len(told))
            told += frame["text"]
        assert set(before[-1]) == {"kind", "execution_id", "step", "attempt", "offset", "text"}
        steps.go_on()
        # From the message on, no more of this step.
        [*_, frame] = between = await frames(client, until=is_token)
        assert (frame["step"], frame["offset"], frame["text"]) == (2, 0, "Got it.")
        assert [one["type"] for one in between if one["kind"] == "event"].count("message") == 1
        steps.go_on()
        rest = await frames(client, until=is_over)
        assert not [one for one in rest if is_token(one)]
        await working


async def test_who_comes_while_a_model_writes_hears_the_rest_after_the_replay(scripted, session, owner):
    steps = Steps()
    scripted([stream("one ", steps.wait, "two", steps.wait)])
    working = await begin(session, owner)
    async with opened(socket(address(session), user=owner)) as first:
        await frames(first, until=is_event("agent.step.started"))
        await in_thread(session.refresh_from_db)
        async with opened(socket(address(session, session.last_sequence), user=owner)) as late:
            assert [frame["kind"] for frame in await frames(late, until=is_ready)] == ["ready"]
            steps.go_on()
            [frame] = await frames(late, until=is_token)
            assert (frame["offset"], frame["text"]) == (4, "two")
            steps.go_on()
            await frames(late, until=is_over)
            await working


@pytest.mark.services("redis")
async def test_text_comes_through_redis_as_well(scripted, session, owner, settings):
    config = {"hosts": [REDIS_URL], "prefix": f"agentcore-test-{session.session_id}"}
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels_redis.core.RedisChannelLayer", "CONFIG": config}}
    steps = Steps()
    scripted([stream("one ", "two", steps.wait)])
    async with opened(socket(address(session), user=owner)) as client:
        await frames(client, until=is_ready)
        working = await begin(session, owner)
        told = ""
        while told != "one two":
            told += (await frames(client, until=is_token))[-1]["text"]
        steps.go_on()
        assert not [frame for frame in await frames(client, until=is_over) if is_token(frame)]
        await working


async def test_only_who_may_see_the_session_hears_its_text(scripted, session, owner):
    scripted([stream("secret", " text")])
    stranger = await in_thread(make_user, "stranger")
    theirs = await runtime.acreate_session(TESTING_AGENT, user=stranger)
    async with opened(socket(address(theirs), user=stranger)) as client:
        await frames(client, until=is_ready)
        await (await begin(session, owner))
        assert await client.receive_nothing(timeout=0.3)


async def test_a_retry_and_a_character_in_two_pieces(scripted, session, owner):
    steps = Steps()
    pieces = ["Hi 4", steps.wait, ModelDelta(text="Hi \ud83d", attempt=2), ModelDelta(text="\ude00!", attempt=2)]
    scripted([stream(*pieces, steps.wait, reply=text("Hi 😀!"))])
    async with opened(socket(address(session), user=owner)) as client:
        await frames(client, until=is_ready)
        working = await begin(session, owner)
        [*_, first] = await frames(client, until=is_token)
        steps.go_on()
        told = ""
        while told != "Hi 😀!":
            [frame] = await frames(client, until=is_token)
            assert (frame["attempt"], frame["offset"]) == (2, len(told))
            told += frame["text"]
        assert first["attempt"] == 1
        steps.go_on()
        await frames(client, until=is_over)
        await working


class Layer:
    """A channel layer that notes when it was sent what."""

    def __init__(self):
        self.sent = []

    async def group_send(self, group, message):
        if message["type"] == "agentcore.token":
            self.sent.append((time.monotonic(), message["frame"]))


@pytest.fixture
def layer(monkeypatch):
    found = Layer()
    monkeypatch.setattr(push, "get_channel_layer", lambda: found)
    return found


def test_at_most_twenty_frames_a_second_go_out(layer):
    sending, began = tokens.TokenPush(1, "x"), time.monotonic()
    sending.begin(step=1, attempt=1)
    said = 0
    while time.monotonic() - began < 0.6:
        sending.add("word ")
        said += 1
        time.sleep(0.001)
    sending.end()
    until = time.monotonic() + SECONDS
    while sum(len(frame["text"]) for _, frame in layer.sent) < 5 * said:
        assert time.monotonic() < until
        time.sleep(0.01)
    gaps = [after - before for (before, _), (after, _) in zip(layer.sent, layer.sent[1:], strict=False)]
    assert min(gaps) > 0.8 * tokens.FRAME_SECONDS
    assert [frame["offset"] for _, frame in layer.sent] == [
        sum(len(frame["text"]) for _, frame in layer.sent[:index]) for index in range(len(layer.sent))
    ]


def test_what_is_void_or_too_much_is_not_sent(layer):
    sending = tokens.TokenPush(1, "x")
    sending.begin(step=1, attempt=1)
    sending.add("a" * 100_000)
    sending.end()
    sending.begin(step=1, attempt=2)
    sending.add("b")
    until = time.monotonic() + SECONDS
    while not layer.sent or layer.sent[-1][1]["text"] != "b":
        assert time.monotonic() < until
        time.sleep(0.01)
    assert sum(len(frame["text"]) for _, frame in layer.sent) <= 2 * tokens.MAX_FRAME_TEXT + 1
    assert layer.sent[-1][1] == {"execution_id": "x", "step": 1, "attempt": 2, "offset": 0, "text": "b"}


@pytest.mark.parametrize("name", ["RaisingLayer", "HangingLayer"])
def test_evt_07_a_layer_that_fails_costs_the_turn_neither_its_end_nor_time(name, scripted, session, owner, settings):
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": f"{__name__}.{name}"}}
    scripted([stream(*["word "] * 500)])
    began = time.monotonic()
    result = runtime.execute(TESTING_AGENT, "hi", session_id=session.session_id, user=owner)
    assert result.response == "word " * 500
    assert time.monotonic() - began < SECONDS / 4
    # What hangs there must not be told to fail in the middle of another test.
    push.flush(SECONDS)
    connections.close_all()


def event(type, step=None, execution_id="x"):
    return {"type": type, "execution_id": execution_id, "data": None if step is None else {"step": step}}


def piece(step=1, attempt=1, execution_id="x"):
    return {"execution_id": execution_id, "step": step, "attempt": attempt, "offset": 0, "text": "t"}


def test_evt_19_a_late_piece_of_text_is_left_out():
    live = LiveText()
    live.take(event("turn.input"))
    assert live.is_news(piece())
    live.take(event("message", step=1))
    assert not live.is_news(piece())
    assert live.is_news(piece(step=2))
    assert live.is_news(piece(step=2, attempt=2))
    assert not live.is_news(piece(step=2, attempt=1))
    live.take(event("agent.step.failed", step=2))
    assert not live.is_news(piece(step=2, attempt=3))
    assert live.is_news(piece(step=3))
    live.take(event("turn.failed"))
    assert not live.is_news(piece(step=4))
    live.take({**event("session.archived"), "execution_id": None})
    live.take(event("turn.input", execution_id="y"))
    assert not live.is_news(piece())
    assert live.is_news(piece(execution_id="y"))
