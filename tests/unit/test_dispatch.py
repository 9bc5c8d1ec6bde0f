"""Ask a worker: after the commit, by Celery or by a thread, and never at the cost of what was stored."""

import queue
import threading
import time

import pytest
from celery import Celery, current_app
from django.db import connections, transaction
from django.test import TestCase, override_settings

from agentcore import TurnState, dispatch, runtime, tasks
from agentcore.models import AgentContext, SessionEvent
from agentcore.testing import ScriptedProvider, calls, make_session, make_turn, make_user

IN_THREADS = {"DISPATCH": "thread"}
ANSWER_SECONDS = 20
# Left to itself, Celery takes six seconds to find that a broker refuses.
QUICK_SECONDS = 4


@pytest.fixture(autouse=True)
def _published_at_once(monkeypatch):
    """Messages are published by a thread of their own; these tests look at them right after they were sent."""
    send = dispatch._send

    def send_and_wait(execution_id):
        send(execution_id)
        assert dispatch.flush(ANSWER_SECONDS)

    monkeypatch.setattr(dispatch, "_send", send_and_wait)


@pytest.fixture
def sent(monkeypatch):
    """What was handed to Celery: the keywords and options of each task."""
    messages = []
    monkeypatch.setattr(tasks.run_turn, "apply_async", lambda *, producer, **options: messages.append(options))
    return messages


@pytest.fixture
def eager():
    app = current_app._get_current_object()
    app.conf.task_always_eager = True
    yield
    app.conf.task_always_eager = False


@transaction.atomic
def enqueue_and_fail(session):
    runtime.enqueue(session.session_id, "hi")
    raise ZeroDivisionError


@pytest.mark.django_db(transaction=True)
def test_dur_19_a_task_is_sent_after_the_commit_with_the_published_name_and_keyword(sent, make_turn):
    with transaction.atomic():
        turn = make_turn()
        assert sent == []
    assert sent == [{"kwargs": {"execution_id": str(turn.execution_id)}, "queue": None, "retry": False}]
    assert tasks.run_turn.name == "agentcore.run_turn"


@pytest.mark.django_db(transaction=True)
def test_dur_19_nothing_is_sent_after_a_rollback(sent, make_session):
    session = make_session()
    with pytest.raises(ZeroDivisionError):
        enqueue_and_fail(session)
    with transaction.atomic():
        runtime.enqueue(session.session_id, "hi")
        transaction.set_rollback(True)
    assert sent == []
    assert not AgentContext.objects.exists()
    assert runtime.enqueue(session.session_id, "hi").duplicate is False
    assert len(sent) == 1


@pytest.mark.django_db(transaction=True)
def test_a_savepoint_that_is_rolled_back_sends_nothing(sent, make_session):
    kept, dropped = make_session(), make_session()
    with transaction.atomic():
        turn = runtime.enqueue(kept.session_id, "hi").turn
        with pytest.raises(ZeroDivisionError):
            enqueue_and_fail(dropped)
    assert [message["kwargs"]["execution_id"] for message in sent] == [str(turn.execution_id)]


@pytest.mark.django_db(transaction=True)
def test_the_queue_of_the_settings_is_used(sent, make_turn):
    with override_settings(AGENTCORE={"CELERY_QUEUE": "agents"}):
        make_turn()
    assert sent[0]["queue"] == "agents"


@pytest.mark.django_db(transaction=True)
def test_a_duplicate_sends_nothing_again(sent, make_session):
    session = make_session()
    runtime.enqueue(session.session_id, "hi", idempotency_key="k")
    assert runtime.enqueue(session.session_id, "hi", idempotency_key="k").duplicate
    assert len(sent) == 1


@pytest.mark.django_db(transaction=True)
def test_an_eager_celery_runs_the_turn_at_the_commit(eager, scripted, make_turn, assert_invariants):
    scripted(["Hello."])
    with transaction.atomic():
        turn = make_turn()
        assert AgentContext.objects.get().state == TurnState.QUEUED
    assert runtime.result(turn.execution_id).response == "Hello."
    assert_invariants()


@pytest.mark.django_db(transaction=True)
def test_dur_01_a_task_delivered_again_does_nothing(eager, scripted, make_turn):
    provider = scripted(["Hello."])
    turn = make_turn()
    log = list(SessionEvent.objects.values())
    for message in ({"execution_id": str(turn.execution_id), "of_a_newer_sender": 1}, {}, {"execution_id": None}):
        tasks.run_turn.apply_async(kwargs=message)
    tasks.run_turn(execution_id=str(turn.execution_id))
    assert provider.call_count == 1
    assert list(SessionEvent.objects.values()) == log


@pytest.mark.django_db(transaction=True)
def test_the_message_on_the_broker_is_json_with_one_keyword(make_turn):
    with current_app.connection_for_read() as connection:
        # The broker lives in this process: other tests leave their messages in it.
        connection.SimpleQueue("celery").clear()
    turn = make_turn()
    with current_app.connection_for_read() as connection:
        message = connection.SimpleQueue("celery").get(block=False)
    assert message.content_type == "application/json"
    arguments, keywords, _ = message.payload
    assert (arguments, keywords) == ([], {"execution_id": str(turn.execution_id)})
    assert message.headers["task"] == "agentcore.run_turn"


@pytest.fixture(params=["redis://127.0.0.1:9/0", "pyamqp://guest@127.0.0.1:9//"])
def dead_broker(request):
    """A Celery app whose broker refuses every connection."""
    before = current_app._get_current_object()
    app = Celery("broken", broker=request.param, set_as_current=False)
    app.set_current()
    yield app
    before.set_current()


@pytest.mark.django_db(transaction=True)
def test_dur_20_a_broker_that_is_down_costs_no_turn_and_no_time(dead_broker, scripted, clock, mended, caplog):
    provider = scripted(["Hello."])
    session = make_session()
    began = time.monotonic()
    enqueued = runtime.enqueue(session.session_id, "hi", idempotency_key="k")
    assert time.monotonic() - began < QUICK_SECONDS
    assert runtime.enqueue(session.session_id, "hi", idempotency_key="k").duplicate
    assert "The broker did not take a turn" in caplog.text
    assert runtime.result(enqueued.turn.execution_id).state == TurnState.QUEUED
    assert provider.call_count == 0
    # The broker is back; nobody posts anything. What it did not take is due at the very next sweep.
    messages = mended()
    assert runtime.recover()["sent_again"] == 1
    assert runtime.recover()["sent_again"] == 0
    assert messages == [str(enqueued.turn.execution_id)]
    tasks.run_turn(execution_id=messages[0])
    assert runtime.result(enqueued.turn.execution_id).response == "Hello."
    assert list(SessionEvent.objects.filter(type="turn.input").values_list("sequence", flat=True)) == [2]


@pytest.fixture
def mended(monkeypatch):
    """Let the broker take tasks from here on; returns what it is sent."""

    def mend():
        messages = []
        monkeypatch.setattr(dispatch, "_publish", lambda app, execution_id: messages.append(execution_id))
        return messages

    return mend


@pytest.mark.django_db(transaction=True)
def test_dur_20_each_sending_again_waits_twice_as_long(sent, make_turn, clock):
    make_turn()
    for pause in (60, 120, 240):
        clock.advance(pause - 1)
        assert runtime.recover()["sent_again"] == 0
        clock.advance(2)
        assert runtime.recover()["sent_again"] == 1
    assert len(sent) == 4


@pytest.mark.django_db(transaction=True)
def test_in_thread_mode_a_turn_runs_in_this_process(scripted, assert_invariants):
    names = []

    def answer(request):
        names.append(threading.current_thread().daemon)
        return "Hello."

    scripted(answer)
    with override_settings(AGENTCORE=IN_THREADS):
        turn = make_turn()
        assert runtime.wait(turn.execution_id, ANSWER_SECONDS).response == "Hello."
        assert runtime.shutdown(ANSWER_SECONDS)
    assert names == [True]
    assert_invariants()


@pytest.mark.django_db(transaction=True)
def test_in_thread_mode_a_decision_lets_the_turn_go_on(scripted):
    scripted([calls(("pay", {"amount": 10, "to": "acme"})), "Paid."])
    reviewer = make_user(permissions=("agentcore.decide_toolapproval",))
    with override_settings(AGENTCORE=IN_THREADS):
        turn = make_turn()
        waiting = runtime.wait(turn.execution_id, ANSWER_SECONDS)
        runtime.approve(waiting.pending_approvals[0].id, reviewer)
        assert runtime.wait(turn.execution_id, ANSWER_SECONDS).response == "Paid."
        assert runtime.shutdown(ANSWER_SECONDS)


@pytest.fixture
def threads(monkeypatch):
    """Threads of a test's own, whose work is to say that it began and to wait until it may end."""
    pool = dispatch._Pool("test", dispatch.THREADS)
    began, may_end = queue.SimpleQueue(), threading.Event()

    class Work:
        def __init__(self, name):
            self.name = name

        def __call__(self):
            began.put(self.name)
            may_end.wait(ANSWER_SECONDS)

    submit = pool.submit
    pool.submit = lambda name: submit(Work(name))
    pool.began, pool.may_end = began, may_end
    yield pool
    may_end.set()


def test_at_most_sixteen_turns_work_at_once_and_the_others_wait(threads):
    for number in range(dispatch.THREADS + 5):
        threads.submit(str(number))
    first = {threads.began.get(timeout=ANSWER_SECONDS) for _ in range(dispatch.THREADS)}
    assert first == {str(number) for number in range(dispatch.THREADS)}
    assert threads.began.empty()
    threads.may_end.set()
    rest = {threads.began.get(timeout=ANSWER_SECONDS) for _ in range(5)}
    assert rest == {str(dispatch.THREADS + number) for number in range(5)}


def test_a_turn_does_not_wait_behind_a_busy_thread_while_another_may_begin(threads, monkeypatch):
    """A thread that has taken a turn, and was not yet seen to be busy, is not free for the next one."""
    taken, may_go_on = threading.Event(), threading.Event()
    turns = threads._waiting = _HesitantQueue(taken, may_go_on)
    monkeypatch.setattr(dispatch.queue, "SimpleQueue", lambda: turns)
    threads.submit("a")
    assert taken.wait(ANSWER_SECONDS)
    threads.submit("b")
    assert threads.began.get(timeout=ANSWER_SECONDS) == "b"
    may_go_on.set()
    assert threads.began.get(timeout=ANSWER_SECONDS) == "a"


class _HesitantQueue(queue.SimpleQueue):
    """Holds up whoever takes "a" right after the taking."""

    def __init__(self, taken, may_go_on):
        self._taken, self._may_go_on = taken, may_go_on

    def get(self, *args, **kwargs):
        item = super().get(*args, **kwargs)
        if item.name == "a":
            self._taken.set()
            self._may_go_on.wait(ANSWER_SECONDS)
        return item


@pytest.mark.django_db(transaction=True)
def test_a_thread_that_fails_takes_the_next_turn(caplog):
    pool, done = dispatch._Pool("test", 1), queue.SimpleQueue()

    def fail():
        done.put("failed")
        raise ZeroDivisionError

    pool.submit(fail)
    pool.submit(lambda: done.put("next"))
    assert (done.get(timeout=ANSWER_SECONDS), done.get(timeout=ANSWER_SECONDS)) == ("failed", "next")
    assert pool.wait_until_idle(ANSWER_SECONDS)
    assert "left to the sweep" in caplog.text


class InATestCaseTests(TestCase):
    """Django's TestCase: nothing commits, so nothing is sent unless the test asks for the callbacks."""

    def test_a_turn_stays_queued_and_its_dispatch_is_a_callback(self):
        with current_app.connection_for_read() as connection:
            connection.SimpleQueue("celery").clear()
        with self.captureOnCommitCallbacks() as callbacks:
            turn = make_turn()
        assert turn.state == TurnState.QUEUED
        assert callbacks
        with current_app.connection_for_read() as connection, pytest.raises(queue.Empty):
            connection.SimpleQueue("celery").get(block=False)

    def test_executed_callbacks_run_an_eager_turn_in_the_tests_transaction(self):
        app = current_app._get_current_object()
        app.conf.task_always_eager = True
        self.addCleanup(setattr, app.conf, "task_always_eager", False)
        with ScriptedProvider(["Hello."]).installed(), self.captureOnCommitCallbacks(execute=True):
            turn = make_turn()
        assert runtime.result(turn.execution_id).response == "Hello."
        assert connections["default"].in_atomic_block
