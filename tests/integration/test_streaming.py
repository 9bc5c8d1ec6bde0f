"""Answers that come in pieces: what is stored, what is told on the way, and what ends a stream early.

Named after the acceptance cases PRV where there is one.
"""

import threading
import time

import pytest
from django.db import connection, connections

from agentcore import TurnState, runtime
from agentcore.engine import loop, streaming, watching
from agentcore.events import push
from agentcore.exceptions import ProviderConnectionError, ProviderOverloaded
from agentcore.messages import ModelDelta, ModelReply
from agentcore.models import AgentContext, SessionEvent
from agentcore.providers import registry as providers
from agentcore.providers.base import ModelProvider
from agentcore.testing import TESTING_AGENT, assert_invariants, calls, make_turn, stream, text
from agentcore.testing.agents import ledger
from agentcore.tools import execution

pytestmark = pytest.mark.django_db

SECONDS = 20


class Heard:
    """Who follows a turn in this process."""

    def __init__(self):
        self.pieces, self.has_left, self._interrupt = [], False, None

    def hear(self, *, step, attempt, text):
        self.pieces.append((step, attempt, text))

    def call_when_left(self, interrupt):
        self._interrupt = interrupt


def run(turn, heard=None):
    heard = heard or Heard()
    assert loop.run(turn.execution_id, audience=heard)
    return runtime.result(turn.execution_id), heard.pieces


def messages():
    return [event.data["message"]["content"] for event in SessionEvent.objects.filter(type="message").order_by("id")]


def test_the_text_is_told_in_pieces_and_stored_once(scripted):
    provider = scripted([stream("The answer", " is ", "42.")])
    result, pieces = run(make_turn())
    assert pieces == [(1, 1, "The answer"), (1, 1, " is "), (1, 1, "42.")]
    assert (result.response, messages()) == ("The answer is 42.", ["The answer is 42."])
    assert provider.call_count == 1
    assert_invariants()


def test_no_piece_is_in_the_log(scripted):
    scripted([stream("one ", "two")])
    run(make_turn())
    assert not SessionEvent.objects.filter(type__contains="token").exists()
    assert "one " not in [str(event.data) for event in SessionEvent.objects.exclude(type__in=["message"])]


def test_tools_work_while_a_turn_streams(scripted):
    asks = calls(("lookup", {"q": "x"}), content="Let me look.")
    scripted([stream("Let me ", "look.", reply=asks), stream("Found", " it.")])
    result, pieces = run(make_turn())
    assert result.response == "Found it."
    assert pieces == [(1, 1, "Let me "), (1, 1, "look."), (2, 1, "Found"), (2, 1, " it.")]
    assert (ledger.entries, messages()) == ([("lookup", "x")], ["Let me look.", "Found it."])
    assert_invariants()


def test_a_provider_that_cannot_stream_is_asked_for_the_whole_answer():
    class Whole(ModelProvider):
        def complete(self, request):
            return text("All of it.")

    class Foreign:
        complete = Whole.complete

    for provider in (Whole(), Foreign()):
        assert not streaming.streams(provider)
        with providers.override("scripted", provider):
            result, pieces = run(make_turn())
        assert (result.response, pieces) == ("All of it.", [])


@pytest.fixture
def asked_once(settings):
    """Let no attempt follow one that failed."""
    settings.AGENTCORE = {**settings.AGENTCORE, "RETRY": {"attempts": 1}}


def test_prv_12_a_stream_that_breaks_off_is_asked_for_again_and_its_text_is_void(scripted, settings):
    settings.AGENTCORE = {**settings.AGENTCORE, "RETRY": {"attempts": 2, "initial": 0.01}}
    broken = stream("The answer is 4", ProviderConnectionError("The answer broke off."))
    provider = scripted([broken, stream("The answer", " is 42.", reply=text("The answer is 42."))])
    result, pieces = run(make_turn())
    assert pieces == [(1, 1, "The answer is 4"), (1, 2, "The answer"), (1, 2, " is 42.")]
    assert (result.response, messages()) == ("The answer is 42.", ["The answer is 42."])
    assert provider.call_count == 2
    assert_invariants()


@pytest.mark.usefixtures("asked_once")
def test_prv_12_a_stream_that_ends_early_is_no_message(scripted):
    scripted([stream("The answer is 4", ProviderConnectionError("The answer broke off."))])
    result, pieces = run(make_turn())
    assert (result.state, result.response, messages()) == (TurnState.FAILED, None, [])
    assert result.error["code"] == "driver_error"
    assert result.error["details"] | {"incomplete": True, "text": "The answer is 4"} == result.error["details"]
    assert pieces == [(1, 1, "The answer is 4")]
    assert_invariants()


@pytest.mark.usefixtures("asked_once")
def test_prv_12_a_stream_without_an_end_is_broken_too():
    class Endless(ModelProvider):
        def stream(self, request):
            yield ModelDelta(text="The answer is 4")

    with providers.override("scripted", Endless()):
        result, _ = run(make_turn())
    assert (result.error["details"]["kind"], messages()) == ("ProviderConnectionError", [])


@pytest.mark.usefixtures("asked_once")
def test_prv_12_half_a_tool_call_is_not_run(scripted):
    scripted([stream("I pay", ProviderOverloaded("busy"), reply=calls(("lookup", {"q": "x"})))])
    result, _ = run(make_turn())
    assert (result.state, ledger.entries, result.steps[0].tool_calls) == (TurnState.FAILED, [], ())
    assert_invariants()


def test_prv_12_a_retry_voids_what_came_before(scripted):
    again = [ModelDelta(text=piece, attempt=2) for piece in ("The answer", " is 42.")]
    scripted([stream("The answer is 4", *again, ModelDelta(text="late"), reply=text("The answer is 42."))])
    result, pieces = run(make_turn())
    assert pieces == [(1, 1, "The answer is 4"), (1, 2, "The answer"), (1, 2, " is 42.")]
    assert (result.response, messages()) == ("The answer is 42.", ["The answer is 42."])


@pytest.mark.usefixtures("asked_once")
def test_prv_12_a_broken_retry_keeps_its_own_text_only(scripted):
    scripted([stream("The answer is 4", ModelDelta(text="The", attempt=2), ProviderOverloaded("busy"))])
    result, _ = run(make_turn())
    assert result.error["details"]["text"] == "The"


def test_the_attempt_rises_when_another_worker_asks_again(scripted, clock, monkeypatch):
    class Died(BaseException):
        pass

    def die(*args, **kwargs):
        raise Died

    turn, first, second = make_turn(), Heard(), Heard()
    scripted([stream("The answer is 4", "2"), stream("The answer", " is 42.")])
    with monkeypatch.context() as patch:
        patch.setattr(loop.steps, "record_answer", die)
        with pytest.raises(Died):
            loop.run(turn.execution_id, audience=first)
    clock.advance(61)
    runtime.recover()
    result, _ = run(turn, second)
    assert result.response == "The answer is 42."
    assert {step for step, _, _ in (*first.pieces, *second.pieces)} == {1}
    assert max(attempt for _, attempt, _ in first.pieces) < min(attempt for _, attempt, _ in second.pieces)


def test_prv_23_a_character_split_over_two_pieces_is_whole(scripted):
    scripted([stream("Hi \ud83d", "\ude00!", "\ude00", "\ud83dx", reply=text("Hi \ud83d\ude00!\ude00\ud83dx"))])
    result, pieces = run(make_turn())
    assert result.response == "Hi 😀!\ufffd\ufffdx"
    assert "".join(piece for _, _, piece in pieces) == result.response
    assert [piece for _, _, piece in pieces] == ["Hi ", "😀!", "\ufffd", "\ufffdx"]
    assert_invariants()


def test_without_a_channel_layer_nothing_is_pushed(scripted, settings, monkeypatch):
    settings.CHANNEL_LAYERS = {}
    monkeypatch.setattr(push._pusher, "running_loop", None)
    scripted([stream("one ", "two")])
    assert run(make_turn())[0].response == "one two"


class Slow(ModelProvider):
    """Says a word, and then nothing more until the test is over."""

    def __init__(self):
        self.began, self.may_end, self.closed = threading.Event(), threading.Event(), threading.Event()
        self.connections = None

    def stream(self, request):
        try:
            yield ModelDelta(text="Well, ")
            self.connections = [one.connection for one in connections.all(initialized_only=True)]
            self.began.set()
            assert self.may_end.wait(SECONDS)
            yield ModelDelta(text="never mind.")
            yield ModelReply(content="Well, never mind.")
        finally:
            self.closed.set()


@pytest.fixture
def slow(monkeypatch):
    monkeypatch.setattr(watching, "LOOK_SECONDS", 0.05)
    provider = Slow()
    with providers.override("scripted", provider):
        yield provider
        provider.may_end.set()
        until = time.monotonic() + SECONDS
        while execution.abandoned_threads() and time.monotonic() < until:
            time.sleep(0.01)


def in_thread(function):
    def work():
        try:
            function()
        finally:
            connections.close_all()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.mark.django_db(transaction=True)
def test_cancelling_ends_a_stream_at_once_and_no_connection_is_held(slow):
    turn, heard = make_turn(), Heard()
    working = in_thread(lambda: loop.run(turn.execution_id, audience=heard))
    assert slow.began.wait(SECONDS)
    assert not any(slow.connections)
    assert runtime.cancel(turn.session.session_id).state == TurnState.CANCELLING
    working.join(SECONDS)
    # The model still says nothing; the turn does not wait for it.
    assert runtime.result(turn.execution_id).state == TurnState.CANCELLED
    slow.may_end.set()
    assert slow.closed.wait(SECONDS)
    assert heard.pieces == [(1, 1, "Well, ")]
    assert_invariants()


@pytest.mark.django_db(transaction=True)
def test_a_lost_lease_ends_a_stream_at_once(slow):
    turn = make_turn()
    working = in_thread(lambda: loop.run(turn.execution_id))
    assert slow.began.wait(SECONDS)
    AgentContext.objects.filter(pk=turn.pk).update(lease_token=7)
    working.join(SECONDS)
    assert not working.is_alive()
    assert runtime.result(turn.execution_id).state == TurnState.THINKING
    assert messages() == []


@pytest.mark.django_db(transaction=True)
def test_the_turns_time_ends_a_stream(slow):
    result = runtime.execute(TESTING_AGENT, "hi", timeout=0.3)
    assert result.error["code"] == "turn_timeout"
    slow.may_end.set()
    assert slow.closed.wait(SECONDS)
    assert_invariants()
    assert connection.connection is not None
