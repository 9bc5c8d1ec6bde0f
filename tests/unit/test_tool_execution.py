"""How a tool's code is run: in a thread of its own, for so long, and without harm to the worker."""

import asyncio
import contextvars
import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import Group
from django.db import connection, connections, transaction

from agentcore.exceptions import LeaseLost, ToolError
from agentcore.tools.execution import Bell, Outcome, abandoned_threads, run_tool
from agentcore.tools.results import to_json

SOON = 0.01
LONG = 30

language: contextvars.ContextVar[str] = contextvars.ContextVar("language", default="none")


def wait_for_threads() -> None:
    for thread in threading.enumerate():
        if thread.name == "agentcore-tool":
            thread.join(LONG)


def recurse() -> None:
    recurse()


def raising(error: BaseException) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


def test_a_value_comes_back_from_a_thread_of_its_own() -> None:
    outcome = run_tool(threading.current_thread, timeout=LONG)

    assert outcome.kind == "completed"
    assert outcome.value.daemon
    assert outcome.value is not threading.current_thread()
    assert outcome.duration >= 0


def test_context_variables_are_copied_into_the_thread_and_not_back() -> None:
    def work() -> str:
        seen = language.get()
        language.set("changed")
        return seen

    language.set("de")

    assert run_tool(work, timeout=LONG).value == "de"
    assert language.get() == "de"


def test_an_async_function_has_a_loop_of_its_own() -> None:
    language.set("fr")

    async def work() -> tuple[str, bool]:
        await asyncio.sleep(0)
        return language.get(), threading.current_thread() is threading.main_thread()

    assert run_tool(work, timeout=LONG).value == ("fr", False)


async def test_a_running_loop_in_the_caller_does_not_matter() -> None:
    async def work() -> str:
        return "done"

    assert run_tool(work, timeout=LONG).value == "done"


@pytest.mark.parametrize(
    "error",
    [ValueError("db password=hunter2"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), ToolError("no")],
)
@pytest.mark.parametrize("is_async", [False, True])
def test_prv_25_whatever_a_tool_raises_stays_in_its_outcome(error: BaseException, is_async: bool) -> None:
    async def work() -> None:
        raise error

    outcome = run_tool(work if is_async else raising(error), timeout=LONG)

    assert outcome.kind == "failed"
    assert isinstance(outcome.error, type(error))
    assert outcome.value is None


@pytest.mark.parametrize("in_caller", [False, True])
def test_prv_25_endless_recursion_is_a_failure(in_caller: bool) -> None:
    assert isinstance(run_tool(recurse, timeout=LONG, in_caller=in_caller).error, RecursionError)


def test_the_value_is_converted_in_the_thread_and_a_broken_conversion_fails() -> None:
    assert run_tool(lambda: {3, 1}, timeout=LONG, convert=to_json).value == [1, 3]
    assert run_tool(lambda: "x", timeout=LONG, convert=int).kind == "failed"


def test_a_timeout_leaves_the_thread_and_hands_on_its_late_result() -> None:
    release, told = threading.Event(), threading.Event()
    late: list[Outcome] = []
    before = abandoned_threads()

    def work() -> str:
        release.wait(LONG)
        return "late"

    def on_late(outcome: Outcome) -> None:
        late.append(outcome)
        told.set()

    outcome = run_tool(work, timeout=SOON, on_late=on_late)
    assert (outcome.kind, outcome.value, outcome.error) == ("timed_out", None, None)
    assert outcome.duration >= SOON
    assert abandoned_threads() == before + 1

    release.set()
    assert told.wait(LONG)
    assert [(item.kind, item.value) for item in late] == [("completed", "late")]
    wait_for_threads()
    assert abandoned_threads() == before


def test_a_bell_calls_the_waiting_thread_while_the_tool_works() -> None:
    answered = threading.Event()
    by: list[threading.Thread] = []

    def answer() -> None:
        by.append(threading.current_thread())
        answered.set()

    bell = Bell(answer)

    def work() -> bool:
        bell.event.set()
        return answered.wait(LONG)

    assert run_tool(work, timeout=LONG, bell=bell).value is True
    assert set(by) == {threading.current_thread()}


def test_a_bell_that_rings_on_does_not_extend_the_time() -> None:
    release = threading.Event()
    bell = Bell(lambda: bell.event.set())
    bell.event.set()

    assert run_tool(lambda: release.wait(LONG), timeout=SOON, bell=bell).kind == "timed_out"
    release.set()
    wait_for_threads()


def test_what_an_answer_raises_ends_the_waiting_and_not_the_tool() -> None:
    release = threading.Event()
    before = abandoned_threads()

    def answer() -> None:
        raise LeaseLost

    bell = Bell(answer)
    bell.event.set()

    with pytest.raises(LeaseLost):
        run_tool(lambda: release.wait(LONG), timeout=LONG, bell=bell)
    assert abandoned_threads() == before + 1
    release.set()
    wait_for_threads()
    assert abandoned_threads() == before


def test_a_late_result_of_an_async_tool_is_handed_on_too() -> None:
    release, told = threading.Event(), threading.Event()
    late: list[Outcome] = []

    async def work() -> str:
        await asyncio.to_thread(release.wait, LONG)
        return "late"

    def on_late(outcome: Outcome) -> None:
        late.append(outcome)
        told.set()

    assert run_tool(work, timeout=SOON, on_late=on_late).kind == "timed_out"
    release.set()
    assert told.wait(LONG)
    assert late[0].value == "late"
    wait_for_threads()


def test_a_late_result_that_nobody_can_take_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    release = threading.Event()
    before = abandoned_threads()

    def on_late(outcome: Outcome) -> None:
        raise ValueError("no database")

    with caplog.at_level(logging.ERROR):
        run_tool(lambda: release.wait(LONG), timeout=SOON, on_late=on_late)
        release.set()
        wait_for_threads()

    assert "late_result_lost" in caplog.text
    assert abandoned_threads() == before


async def test_in_the_caller_a_running_loop_is_told() -> None:
    async def work() -> None: ...

    assert isinstance(run_tool(work, timeout=LONG, in_caller=True).error, RuntimeError)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_async", [False, True])
def test_connections_of_a_tool_are_its_own_and_closed(is_async: bool) -> None:
    used: list[Any] = []

    def query() -> int:
        used.append(connections["default"])
        return Group.objects.count()

    outcome = run_tool(sync_to_async(query) if is_async else query, timeout=LONG)

    assert outcome.value == 0
    assert used[0] is not connections["default"]
    assert used[0].connection is None


@pytest.mark.django_db(transaction=True)
def test_an_async_tool_may_query_while_its_caller_is_awaited() -> None:
    async def work() -> int:
        return await Group.objects.acount()

    async def caller() -> Any:
        # The worker's own thread is lent to thread-sensitive code here, and busy waiting for the tool.
        return await sync_to_async(run_tool)(work, timeout=LONG)

    assert async_to_sync(caller)().value == 0


@pytest.mark.django_db(transaction=True)
def test_prv_25_a_tool_that_leaves_a_transaction_open_harms_nobody() -> None:
    def work() -> None:
        transaction.atomic().__enter__()
        Group.objects.create(name="never")

    assert run_tool(work, timeout=LONG).kind == "completed"
    Group.objects.create(name="after")
    assert [group.name for group in Group.objects.all()] == ["after"]


@pytest.mark.django_db
@pytest.mark.parametrize("is_async", [False, True])
def test_in_the_caller_a_tool_sees_the_rows_of_the_test(is_async: bool) -> None:
    Group.objects.create(name="a")

    async def work() -> int:
        return await Group.objects.acount()

    assert run_tool(work if is_async else Group.objects.count, timeout=LONG, in_caller=True).value == 1


def break_transaction() -> None:
    Group.objects.create(name="a")


def break_and_swallow() -> None:
    try:
        Group.objects.create(name="a")
    except Exception:
        connection.set_rollback(True)


def break_by_sql() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT nothing FROM nowhere")


@pytest.mark.django_db
@pytest.mark.parametrize("work", [break_transaction, break_and_swallow, break_by_sql])
def test_prv_25_after_a_database_error_in_the_caller_the_next_write_works(work: Callable[[], None]) -> None:
    Group.objects.create(name="a")

    run_tool(work, timeout=LONG, in_caller=True)

    Group.objects.create(name="b")
    assert Group.objects.count() == 2


@pytest.mark.django_db
def test_in_the_caller_what_a_failed_tool_wrote_stays_written() -> None:
    def work() -> None:
        Group.objects.create(name="a")
        raise ValueError

    assert run_tool(work, timeout=LONG, in_caller=True).kind == "failed"
    assert Group.objects.count() == 1


HANGING = """
import asyncio, threading
from agentcore.tools.execution import run_tool

async def wait_async():
    await asyncio.Event().wait()

print(run_tool({function}, timeout=0.01).kind)
"""


@pytest.mark.parametrize("function", ["threading.Event().wait", "wait_async"])
def test_a_tool_that_never_ends_does_not_keep_the_process_alive(function: str) -> None:
    script = HANGING.format(function=function)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=LONG, check=True)

    assert ended.stdout == "timed_out\n"
