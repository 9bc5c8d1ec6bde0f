"""Handlers of a runtime: told of committed events, in order, in the process that committed, and never in the way."""

import functools
import threading

import pytest
from django.db import connections, transaction
from django.test import TestCase

from agentcore import AgentRuntime, EventType, runtime
from agentcore.events import log
from agentcore.models import AgentContext, SessionEvent
from agentcore.signals import LoggedEvent, session_event
from agentcore.testing import TESTING_AGENT, assert_invariants, calls, make_session, make_turn, make_user

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def mine():
    """A runtime of the test's own."""
    made = AgentRuntime()
    yield made
    forget(made)


def forget(made):
    # A log record of an error keeps frames, and they keep a runtime and its handlers beyond the test.
    session_event.disconnect(made._handlers._receive)


@pytest.fixture
def told(mine):
    """What a handler of everything was told."""
    events = []
    mine.on_any(events.append)
    return events


def kinds(events):
    return [event.type for event in events]


def test_a_handler_is_told_of_its_type_and_of_no_other(mine, scripted):
    events, ignored = [], []
    mine.on(EventType.TURN_COMPLETED, events.append)
    mine.on("turn.failed", ignored.append)
    scripted(["Hello."])
    result = runtime.execute(TESTING_AGENT, "hi")
    [event] = events
    assert isinstance(event, LoggedEvent)
    assert (event.type, event.execution_id, event.session_id) == (
        "turn.completed",
        result.execution_id,
        result.session_id,
    )
    assert event.data == {"response": "Hello."}
    assert ignored == []


def test_other_names_of_a_type_are_the_same_type(mine, scripted):
    events = []
    mine.on(EventType.EXECUTION_COMPLETED, events.append)
    mine.on(EventType.EXECUTION_STARTED, events.append)
    scripted(["Hello."])
    runtime.execute(TESTING_AGENT, "hi")
    assert kinds(events) == ["turn.running", "turn.completed"]


def test_a_handler_of_everything_is_told_the_whole_log_in_order(told, scripted):
    scripted([calls(("lookup", {"q": "a"})), "Hello."])
    runtime.execute(TESTING_AGENT, "hi")
    rows = SessionEvent.objects.order_by("sequence")
    assert [event.sequence for event in told] == list(range(1, rows.count() + 1))
    assert kinds(told) == [row.type for row in rows]
    assert [event.hash for event in told] == [row.hash for row in rows]
    assert [event.data for event in told] == [row.data for row in rows]


def test_off_ends_it_and_forgets_nothing_else(mine, scripted):
    first, second = [], []
    mine.on("turn.completed", first.append)
    mine.on("turn.completed", second.append)
    mine.off("turn.completed", first.append)
    mine.off("turn.completed", first.append)
    mine.off("turn.failed", second.append)
    scripted(["Hello."])
    runtime.execute(TESTING_AGENT, "hi")
    assert (len(first), len(second)) == (0, 1)


def test_off_forgets_a_handler_of_everything(mine, scripted):
    events = []
    mine.on_any(events.append)
    mine.off("*", events.append)
    scripted(["Hello."])
    runtime.execute(TESTING_AGENT, "hi")
    assert events == []


def test_handlers_are_called_in_the_order_they_were_added(mine, make_turn):
    order = []
    for number in range(5):
        mine.on("turn.input", lambda event, number=number: order.append(number))
    make_turn()
    assert order == [0, 1, 2, 3, 4]


def test_a_handler_added_or_removed_while_one_runs_does_no_harm(mine, make_turn):
    events = []

    def once(event):
        mine.off("turn.input", once)
        mine.on("turn.input", events.append)

    mine.on("turn.input", once)
    make_turn()
    make_turn()
    assert len(events) == 1


@pytest.mark.parametrize("error", [RuntimeError("broken"), AssertionError(), KeyError("k")])
def test_a_handler_that_raises_is_logged_and_changes_nothing(error, mine, scripted, caplog):
    after = []

    def broken(event):
        raise error

    mine.on_any(broken)
    mine.on_any(after.append)
    scripted([calls(("lookup", {"q": "a"})), "Hello."])
    assert runtime.execute(TESTING_AGENT, "hi").response == "Hello."
    assert len(after) == SessionEvent.objects.count()
    assert "An event handler failed" in caplog.text
    assert_invariants()


def test_a_receiver_of_the_signal_that_raises_is_logged_and_changes_nothing(told, scripted, caplog):
    def broken(event, **kwargs):
        raise RuntimeError("broken receiver")

    session_event.connect(broken)
    try:
        scripted(["Hello."])
        assert runtime.execute(TESTING_AGENT, "hi").response == "Hello."
    finally:
        session_event.disconnect(broken)
    assert len(told) == SessionEvent.objects.count()
    assert "broken receiver" in caplog.text


def test_evt_05_a_handler_is_told_after_the_commit_and_reads_what_it_was_told_of(mine, scripted):
    stale = []

    def look(event):
        assert not connections["default"].in_atomic_block
        thread = threading.Thread(target=elsewhere, args=(event,))
        thread.start()
        thread.join(20)

    def elsewhere(event):
        try:
            row = SessionEvent.objects.filter(hash=event.hash).exists()
            state = AgentContext.objects.values_list("state", flat=True).filter(execution_id=event.execution_id).first()
            if not row or (event.type == "turn.completed" and state != "completed"):
                stale.append((event.type, row, state))
        finally:
            connections.close_all()

    mine.on_any(look)
    scripted([calls(("lookup", {"q": "a"})), "Hello."])
    runtime.execute(TESTING_AGENT, "hi")
    assert stale == []


def test_evt_05_nothing_is_told_before_the_commit_and_nothing_after_a_rollback(told, make_session):
    session = make_session()
    told.clear()
    with transaction.atomic():
        turn = runtime.enqueue(session.session_id, "hi").turn
        runtime.cancel(session.session_id)
        assert told == []
    assert kinds(told) == ["turn.input", "agent.state.changed", "turn.cancelled"]
    assert {event.execution_id for event in told} == {str(turn.execution_id)}
    told.clear()
    with transaction.atomic():
        runtime.enqueue(session.session_id, "hi")
        transaction.set_rollback(True)
    assert told == []


def test_a_refusal_is_told_of_nothing(told, make_session):
    session = make_session()
    make_turn(session)
    told.clear()
    with pytest.raises(Exception, match="active turn"):
        make_turn(session)
    assert told == []


def test_changes_a_handler_makes_are_told_after_what_it_is_told(mine, told, scripted):
    """A handler may make changes; the handlers after it hear of them later, not in between."""
    reviewer = make_user(permissions=("agentcore.decide_toolapproval",))
    late = []
    mine.on("tool.approval.requested", lambda event: runtime.approve(event.data["approval_id"], reviewer))
    mine.on_any(late.append)
    scripted([calls(("pay", {"amount": 1, "to": "x"})), "Paid."])
    assert runtime.execute(TESTING_AGENT, "pay").response == "Paid."
    for events in (told, late):
        assert [event.sequence for event in events] == list(range(1, SessionEvent.objects.count() + 1))
    assert_invariants()


def test_an_async_handler_is_awaited_and_may_use_the_runtime(mine, scripted):
    reviewer = make_user(permissions=("agentcore.decide_toolapproval",))
    events = []

    async def approve(event):
        events.append((event.type, threading.current_thread()))
        await runtime.aapprove(event.data["approval_id"], reviewer)

    mine.on("tool.approval.requested", approve)
    scripted([calls(("pay", {"amount": 1, "to": "x"})), "Paid."])
    assert runtime.execute(TESTING_AGENT, "pay").response == "Paid."
    assert len(events) == 1


class Callable:
    def __init__(self):
        self.events = []

    async def __call__(self, event):
        self.events.append(event)

    async def method(self, event):
        self.events.append(event)


def sync_wrapper(function):
    @functools.wraps(function)
    def wrapped(event):
        return function(event)

    return wrapped


def test_whatever_gives_a_coroutine_is_awaited(mine, make_turn):
    handler = Callable()
    for form in (handler, handler.method, functools.partial(handler.method), sync_wrapper(handler.method)):
        mine.on("turn.input", form)
    make_turn()
    assert len(handler.events) == 4


def test_an_async_handler_that_raises_is_logged(mine, make_turn, caplog):
    async def broken(event):
        raise RuntimeError("broken handler")

    mine.on("turn.input", broken)
    make_turn()
    assert "broken handler" in caplog.text


async def test_an_async_handler_is_awaited_under_a_running_loop_too(mine, scripted):
    events = []

    async def keep(event):
        events.append(event.type)

    mine.on_any(keep)
    scripted(["Hello."])
    assert (await runtime.aexecute(TESTING_AGENT, "hi")).response == "Hello."
    assert events[-1] == "turn.completed"
    assert len(events) == await SessionEvent.objects.acount()


def test_handlers_of_two_runtimes_are_all_told(mine, make_turn):
    other, events = AgentRuntime(), []
    mine.on("turn.input", lambda event: events.append("mine"))
    other.on("turn.input", lambda event: events.append("other"))
    make_turn()
    forget(other)
    assert sorted(events) == ["mine", "other"]


def test_the_value_of_a_custom_event_reaches_the_handler(mine, make_turn):
    events = []
    mine.on("shop.noted", events.append)
    turn = make_turn()
    with log.writing(turn.session_id) as journal:
        journal.append_custom("shop.noted", execution_id=turn.execution_id, data={"n": 1.5})
    assert events[0].data == {"n": 1.5}
    assert events[0].as_dict()["type"] == "shop.noted"


class InATestCaseTests(TestCase):
    """Nothing commits, so handlers are told only of what a test asks to be executed."""

    def setUp(self):
        self.runtime, self.events = AgentRuntime(), []
        self.runtime.on_any(self.events.append)
        self.addCleanup(forget, self.runtime)

    def test_nothing_is_told_by_itself(self):
        make_turn()
        assert self.events == []

    def test_captured_callbacks_tell(self):
        with self.captureOnCommitCallbacks(execute=True):
            make_session()
        assert kinds(self.events) == ["session.started"]
