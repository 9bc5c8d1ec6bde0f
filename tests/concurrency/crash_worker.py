"""Processes of their own that work on turns, and that die or stop where a test wants it.

`python -m tests.concurrency.crash_worker` reads orders from its standard input, one JSON object a line: to fork a
process that does a job, and to tell how such a process ended. Django is set up once, before any fork: a process
costs some ten milliseconds. Imported by Celery (`-A tests.concurrency.celery_worker`) it brings the same agent.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

if __name__ == "__main__":
    import django

    django.setup()

from celery import current_app
from celery.app import amqp  # noqa: F401 - here, and not once in each process
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.test import override_settings
from django.utils.module_loading import import_string
from kombu.transport import memory  # noqa: F401
from kombu.transport import redis as redis_transport  # noqa: F401

from agentcore import ToolContext, agent, dispatch, runtime, tasks, tool
from agentcore.messages import ModelReply, ModelRequest
from agentcore.models import AgentContext
from agentcore.providers import registry as providers
from agentcore.states import TurnState
from agentcore.testing import ScriptedProvider, calls, text

logger = logging.getLogger(__name__)

AGENT = "crash-agent"
ANSWER = "All of it is done."
LOOKUP, CHARGE, PAY = ("lookup", {"q": "a"}), ("charge", {"n": 5}), ("pay", {"amount": 10, "to": "acme"})

# What the model asks for, one entry a reply; after the last one it answers.
SCRIPTS: dict[str, list[list[tuple[str, dict[str, Any]]]]] = {
    "one reply": [[CHARGE, LOOKUP, PAY]],
    "three replies": [[CHARGE], [LOOKUP, PAY]],
    "three tools": [[("lookup", {"q": "a"})], [("lookup", {"q": "b"}), ("charge", {"n": 1})]],
    "three tools and pay": [[("lookup", {"q": "a"}), ("lookup", {"q": "b"}), ("charge", {"n": 1}), PAY]],
    "four steps": [[("charge", {"n": number})] for number in range(1, 5)],
    "nothing": [],
}


class Ledger:
    """What was done, outside every transaction: each line is on the disk before the process goes on."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def write(self, kind: str, key: str, **facts: Any) -> None:
        line = json.dumps({"kind": kind, "key": key, "pid": os.getpid(), **facts}) + "\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line.encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []


class Points:
    """The places where a process may die: round each commit, round each call of the model, after each effect.

    Each is told in the trace; at the one numbered `at` the process sends itself a signal.
    """

    THREADS = ("MainThread", "agentcore-tool")

    def __init__(self, trace: str, at: int | None, number: int) -> None:
        self._trace, self._at, self._signal = Path(trace), at, number
        self._count = 0

    def reach(self, label: str) -> None:
        # Threads that renew leases or publish messages come and go by time: their commits are nobody's turn.
        if not threading.current_thread().name.startswith(self.THREADS):
            return
        with self._trace.open("a") as trace:
            trace.write(label + "\n")
        self._count += 1
        if self._count - 1 == self._at:
            os.kill(os.getpid(), self._signal)
            # A stop takes hold of every thread, but not of all in the same instant.
            time.sleep(0.05)

    def watch_commits(self) -> None:
        commit = BaseDatabaseWrapper._commit

        def watched(wrapper: BaseDatabaseWrapper) -> Any:
            label = _writer()
            self.reach(f"before the commit of {label}")
            answer = commit(wrapper)
            self.reach(f"after the commit of {label}")
            return answer

        BaseDatabaseWrapper._commit = watched
        connection_created.connect(self._watch_single_statements, weak=False)

    def _watch_single_statements(self, *, connection: BaseDatabaseWrapper, **_: Any) -> None:
        connection.execute_wrappers.append(self._single_statement)

    def _single_statement(self, execute: Any, sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        """A change outside a transaction is its own commit."""
        verb = sql.split(None, 1)[0].upper()
        if context["connection"].in_atomic_block or verb not in {"UPDATE", "INSERT", "DELETE"}:
            return execute(sql, params, many, context)
        label = f"a single {verb} by {_writer()}"
        self.reach(f"before {label}")
        answer = execute(sql, params, many, context)
        self.reach(f"after {label}")
        return answer


class NoPoints(Points):
    def __init__(self) -> None:
        pass

    def reach(self, label: str) -> None:
        pass

    def watch_commits(self) -> None:
        pass


WRITERS = ("agentcore.turns", "agentcore.approvals", "agentcore.engine", "agentcore.dispatch")


def _writer() -> str:
    """Name the verb whose transaction this is: the nearest caller that is of the product."""
    frame = sys._getframe(2)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith(WRITERS):
            return f"{module.removeprefix('agentcore.')}.{frame.f_code.co_name}"
        frame = frame.f_back
    return "somebody"


class Stage:
    """Where tools and model of this process write what they do, and where they wait."""

    def __init__(self) -> None:
        self.ledger = Ledger(os.environ.get("CRASH_LEDGER", os.devnull))
        self.points: Points = NoPoints()
        self.delay = float(os.environ.get("CRASH_DELAY", "0"))
        self.hold = ""
        self.release = ""
        self.model: Any = None

    def pause(self, kind: str) -> None:
        """Wait as long as every call takes, or, where a test holds this kind of call, until it lets go."""
        time.sleep(self.delay)
        until = time.monotonic() + 60
        while kind == self.hold and not Path(self.release).exists() and time.monotonic() < until:
            time.sleep(0.01)

    def effect(self, kind: str, ctx: ToolContext, **facts: Any) -> dict[str, Any]:
        self.ledger.write(kind, ctx.call_id, turn=ctx.execution_id, **facts)
        self.points.reach(f"after the effect of {kind}")
        self.pause(kind)
        return {"done": kind, **facts}


stage = Stage()


def define_agent() -> type:
    """Define the agent of these tests; the caller forgets it again if others should not see it."""

    @agent(name=AGENT, model="scripted:crash")
    class CrashAgent:
        @tool(description="Look something up", idempotent=True)
        def lookup(self, q: str, ctx: ToolContext) -> dict[str, Any]:
            return stage.effect("lookup", ctx, q=q)

        @tool(description="Charge; not to be repeated")
        def charge(self, n: int, ctx: ToolContext) -> dict[str, Any]:
            return stage.effect("charge", ctx, n=n)

        @tool(description="Pay", requires_approval=True)
        def pay(self, amount: int, to: str, ctx: ToolContext) -> dict[str, Any]:
            return stage.effect("pay", ctx, amount=amount, to=to)

    return CrashAgent


def model(request: ModelRequest) -> ModelReply:
    """Answer by nothing but what the request holds: the user's message names the script."""
    asked = [message for message in request.messages if message.role == "user"][-1].content or ""
    turn = request.messages[max(n for n, message in enumerate(request.messages) if message.role == "user") :]
    replies = sum(message.role == "assistant" for message in turn)
    stage.points.reach("the model is asked")
    stage.pause("model")
    script = SCRIPTS.get(asked.split(":")[0], [])
    reply = calls(*script[replies]) if replies < len(script) else text(ANSWER)
    stage.points.reach("the model has answered")
    return reply


class Model(ScriptedProvider):
    """Checks each request as ScriptedProvider does; that it was asked is in the ledger whatever it finds."""

    def complete(self, request: ModelRequest) -> ModelReply:
        stage.ledger.write("model", request.model)
        return super().complete(request)


def install_model() -> None:
    """Let the model be that of this process for as long as it lives."""
    stage.model = providers.override("scripted", Model(model))
    stage.model.__enter__()


# Jobs: what one process does. What they return is the job's result.


def enqueue(*, session_id: str, message: str, key: str, user: int | None = None) -> dict[str, Any]:
    began = time.monotonic()
    owner = get_user_model().objects.get(pk=user) if user else None
    enqueued = runtime.enqueue(session_id, message, idempotency_key=key, user=owner)
    return {
        "execution_id": str(enqueued.turn.execution_id),
        "duplicate": enqueued.duplicate,
        "seconds": time.monotonic() - began,
    }


def work(*, execution_id: str) -> dict[str, Any]:
    tasks.run_turn(execution_id=execution_id)
    return {}


def sweep() -> dict[str, int]:
    counts = runtime.tick()
    dispatch.flush(10)
    return counts


def decide(*, approval: int, by: int, verdict: str = "approve", result: Any = None) -> dict[str, Any]:
    began = time.monotonic()
    person = get_user_model().objects.get(pk=by)
    if verdict == "respond":
        decided = runtime.respond(approval, person, result)
    else:
        decided = runtime.approve(approval, person)
    return {"status": decided.status, "seconds": time.monotonic() - began}


def serve(*, stop: str, threads: int = 4) -> dict[str, Any]:
    """Work queued turns, as a worker with several threads and no broker would, until the file `stop` is there."""
    runs: list[str] = []

    def take() -> None:
        while not Path(stop).exists():
            queued = AgentContext.objects.filter(state=TurnState.QUEUED).order_by("?")[:1]
            for execution_id in list(queued.values_list("execution_id", flat=True)):
                tasks.run_turn(execution_id=str(execution_id))
                runs.append(str(execution_id))
            time.sleep(0.05)
        connections.close_all()

    failures = _all_at_once([take] * threads)
    return {"runs": len(runs), "failures": failures}


def many(*, execution_ids: list[str], release: str, few: int) -> dict[str, Any]:
    """Run many turns at once, each in a thread; return how many connections are open while all ask the model.

    Nobody is answered before at most `few` are, or a minute is over.
    """
    opened: dict[str, int] = {}

    def watch() -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            asked = sum(line["kind"] == "model" for line in stage.ledger.read())
            if asked >= len(execution_ids):
                break
            time.sleep(0.05)
        # What a thread gave back the moment it asked, the server may still count for a moment.
        while True:
            opened["connections"], opened["in_transaction"] = _connections("crash-many")
            if opened["connections"] <= few or time.monotonic() > until:
                break
            time.sleep(0.05)
        opened["asked"] = asked
        connections.close_all()
        Path(release).touch()

    turns = [lambda execution_id=execution_id: work(execution_id=execution_id) for execution_id in execution_ids]
    return {"failures": _all_at_once([watch, *turns]), **opened}


def _connections(application_name: str) -> tuple[int, int]:
    """Return how many connections of that name are open, and how many of them are idle in a transaction."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT COUNT(*), COUNT(*) FILTER (WHERE state LIKE 'idle in transaction%%') FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = %s",
            [application_name],
        )
        row: tuple[int, int] = cursor.fetchone()
        return row


def _all_at_once(functions: list[Callable[[], Any]]) -> list[str]:
    failures: list[str] = []

    def call(function: Callable[[], Any]) -> None:
        try:
            function()
        except Exception as error:
            logger.exception("A thread failed")
            failures.append(repr(error))
        finally:
            connections.close_all()

    running = [threading.Thread(target=call, args=(function,)) for function in functions]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return failures


JOBS: dict[str, Callable[..., dict[str, Any]]] = {
    job.__name__: job for job in (enqueue, work, sweep, decide, serve, many)
}


def _do(order: dict[str, Any]) -> None:
    """Be the process that does a job; the result is written when it is done."""
    logging.basicConfig(filename=order["log"], level=logging.WARNING, force=True)
    if order.get("broker"):
        current_app.conf.broker_url = order["broker"]
    if order.get("database"):
        connection.settings_dict.update(order["database"])
    override_settings(AGENTCORE={**settings.AGENTCORE, **order.get("settings", {})}).enable()
    stage.ledger = Ledger(order["ledger"])
    stage.delay, stage.hold, stage.release = order.get("delay", 0.0), order.get("hold", ""), order.get("release", "")
    if order.get("trace"):
        stage.points = Points(order["trace"], order.get("at"), order.get("signal", signal.SIGKILL))
        stage.points.watch_commits()
    job = JOBS.get(order["job"]) or import_string(order["job"])
    result = job(**order.get("arguments", {}))
    connections.close_all()
    unfinished = Path(order["result"] + ".new")
    unfinished.write_text(json.dumps(result))
    unfinished.rename(order["result"])
    dispatch.flush(order.get("flush", 2.0))


def _fork(order: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        _do(order)
        code = 0
    except BaseException:
        logger.exception("The job failed")
    finally:
        logging.shutdown()
        os._exit(code)


def _news_of(pid: int, seconds: float) -> dict[str, Any]:
    """Wait until a process of ours ends or stops; say which."""
    until = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
        if found and os.WIFSTOPPED(status):
            return {"stopped": os.WSTOPSIG(status)}
        if found:
            return {"ended": os.waitstatus_to_exitcode(status)}
        if time.monotonic() >= until:
            return {}
        time.sleep(0.005)


def main(orders: TextIO, answers: TextIO) -> None:
    """Take orders until there are no more of them."""
    define_agent()
    install_model()
    for line in orders:
        order = json.loads(line)
        answer = _news_of(order["wait"], order["seconds"]) if "wait" in order else {"pid": _fork(order)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    # Under its own name, so that what it defines is defined once.
    from tests.concurrency import crash_worker

    crash_worker.main(sys.stdin, sys.stdout)
