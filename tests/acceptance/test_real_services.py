"""The story over PostgreSQL and Redis: web server, worker and beat are processes of their own, and die by SIGKILL."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

import psycopg
import pytest
import redis
from websockets.sync.client import ClientConnection, connect

from tests import settings
from tests.redis_database import own_redis_database

pytestmark = [pytest.mark.services("redis", "postgres"), pytest.mark.timeout(150)]

REPOSITORY = Path(__file__).resolve().parents[2]
SECONDS = 30

# Each test has an order of its own: what was paid back once cannot be paid back again.
COMPLAINT = "My order {order} arrived broken, I want my money back"
QUESTION = "What was my order status?"

MAKE_USERS = """
import json
from django.contrib.auth.models import Permission, User
from rest_framework.authtoken.models import Token

for name in ("customer", "reviewer", "colleague"):
    User.objects.create_user(name)
decide = Permission.objects.get(codename="decide_toolapproval")
for name in ("reviewer", "colleague"):
    User.objects.get(username=name).user_permissions.add(decide)
print(json.dumps({user.username: Token.objects.create(user=user).key for user in User.objects.all()}))
"""

ASSERT_INVARIANTS = "from agentcore.testing import assert_invariants; assert_invariants(); print('hold')"

# What is on this machine is reached without a proxy.
DIRECT = build_opener(ProxyHandler({}))

Frame = dict[str, Any]


class Answer(NamedTuple):
    status: int
    body: Any


class Site:
    """The demonstration site as it is deployed, on a database and a Redis database of its own."""

    def __init__(self, folder: Path, *, database: str, redis_url: str) -> None:
        self.folder = folder
        self.port = _free_port()
        self.env = {
            # pytest-django names the settings of these tests; the site has its own.
            **{name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"},
            "DEBUG": "0",
            "DJANGO_INSECURE_HTTP": "1",
            "AGENTCORE_DEMO_DIR": str(folder),
            "AGENTCORE_MODEL": "demo:support",
            "DATABASE": "postgres",
            "DATABASE_NAME": database,
            "REDIS_URL": redis_url,
            "LOG_LEVEL": "INFO",
        }
        celery = ["celery", "-A", "project"]
        self.commands = {
            "web": ["daphne", "-b", "127.0.0.1", "-p", str(self.port), "project.asgi:application"],
            "worker": [*celery, "worker", "--pool=prefork", "--concurrency=2", "--loglevel=INFO"],
            "beat": [*celery, "beat", "--loglevel=INFO", f"--pidfile={folder / 'beat.pid'}"],
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.tokens: dict[str, str] = {}

    def start(self, *names: str) -> None:
        """Start processes, and return when they are ready for work."""
        for name in names:
            self._log(name).unlink(missing_ok=True)
            with self._log(name).open("wb") as log:
                self.processes[name] = subprocess.Popen(
                    [sys.executable, "-m", *self.commands[name]],
                    cwd=REPOSITORY,
                    env=self.env,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        for name in names:
            _wait_until(lambda name=name: self._is_ready(name), what=f"{name} is ready; see {self._log(name)}")

    def kill(self, *names: str) -> None:
        """Kill processes with all their children: no handler runs, nothing is written any more."""
        for name in names:
            process = self.processes.pop(name)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            (self.folder / f"{name}.pid").unlink(missing_ok=True)

    def manage(self, *arguments: str) -> str:
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(command, cwd=REPOSITORY, env=self.env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def call(self, who: str, method: str, path: str, body: Any = None) -> Answer:
        """Call the API as somebody, by token."""
        headers = {"Authorization": f"Token {self.tokens[who]}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"http://127.0.0.1:{self.port}/api/{path}", data=data, headers=headers, method=method)
        try:
            with DIRECT.open(request, timeout=SECONDS) as response:
                return Answer(response.status, json.load(response))
        except HTTPError as error:
            with error:
                return Answer(error.code, json.load(error))

    def listen(self, who: str, path: str) -> ClientConnection:
        """Open a socket as somebody. It sends no ping: what keeps it open is the server's doing."""
        headers = {"Authorization": f"Token {self.tokens[who]}"}
        address = f"ws://127.0.0.1:{self.port}/ws/agentcore/{path}"
        return connect(address, additional_headers=headers, ping_interval=None, close_timeout=1, proxy=None)

    def _is_ready(self, name: str) -> bool:
        if self.processes[name].poll() is not None:
            raise AssertionError(f"{name} ended: {self._log(name).read_text()[-2000:]}")
        if name == "web":
            with DIRECT.open(f"http://127.0.0.1:{self.port}/api/health/", timeout=SECONDS) as response:
                return bool(response.status == 200)
        return {"worker": " ready.", "beat": "beat: Starting"}[name] in self._log(name).read_text()

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with ExitStack() as stack:
        site = Site(
            tmp_path_factory.mktemp("site"),
            database=stack.enter_context(_database()),
            redis_url=stack.enter_context(own_redis_database()),
        )
        stack.callback(lambda: site.kill(*list(site.processes)))
        site.manage("migrate", "--verbosity", "0")
        site.tokens = json.loads(site.manage("shell", "-c", MAKE_USERS).splitlines()[-1])
        site.start("web", "worker", "beat")
        yield site


@pytest.fixture
def running(site: Site) -> Site:
    """The site with all its processes, also after a test that failed while one of them was dead."""
    site.start(*(name for name in site.commands if name not in site.processes))
    return site


def test_the_story_outlives_every_process(running: Site) -> None:
    site = running
    with site.listen("reviewer", "approvals/") as reviewing:
        assert _next(reviewing)["kind"] == "snapshot"
        session_id = _create_session(site)
        with site.listen("customer", f"sessions/{session_id}/?after=0") as chat:
            execution_id = _send(site, session_id, COMPLAINT.format(order="12345"))
            seen = _events_until(chat, "turn.waiting")
        asked = _approval_of(reviewing, execution_id)
    assert _kinds(seen, "tool.") == [
        "tool.execution.started",
        "tool.execution.completed",
        "tool.approval.requested",
    ]
    assert (asked["tool"], asked["status"]) == ("process_refund", "pending")
    assert asked["arguments"]["order_id"] == "12345"
    assert "12345" in asked["preview"]

    site.kill("web", "worker", "beat")
    site.start("web", "worker", "beat")

    [waiting] = site.call("reviewer", "GET", f"approvals/?status=pending&session_id={session_id}").body["results"]
    assert waiting == asked
    with site.listen("customer", f"sessions/{session_id}/?after={seen[-1]['sequence']}") as chat:
        decided = site.call("reviewer", "POST", f"approvals/{asked['id']}/approve/", {"version": asked["version"]})
        assert (decided.status, decided.body["status"]) == (200, "approved")
        seen += _events_until(chat, "turn.completed")
    assert [event["sequence"] for event in seen] == list(range(1, len(seen) + 1))
    assert site.call("reviewer", "POST", f"approvals/{asked['id']}/approve/", {}).status == 200

    turn = _turn(site, execution_id)
    assert (turn["state"], turn["error"], turn["pending_approvals"]) == ("completed", None, [])
    assert "refund" in turn["response"].lower()
    _assert_refunded_once(site, turn, asked["arguments"])

    second = _turn(site, _send(site, session_id, QUESTION, until="completed"))
    assert _calls(second) == []
    assert _status_found(turn) in second["response"]
    assert site.manage("shell", "-c", ASSERT_INVARIANTS).endswith("hold")


def test_an_approval_given_while_no_worker_runs_is_worked_on_when_one_starts(running: Site) -> None:
    site = running
    session_id = _create_session(site)
    execution_id = _send(site, session_id, COMPLAINT.format(order="12346"), until="waiting_for_approval")
    [asked] = _turn(site, execution_id)["pending_approvals"]
    site.kill("worker")
    decided = site.call("reviewer", "POST", f"approvals/{asked['id']}/approve/", {})
    assert decided.body["status"] == "approved"
    assert _turn(site, execution_id)["state"] == "queued"
    site.start("worker")
    _wait_for_state(site, execution_id, "completed")
    _assert_refunded_once(site, _turn(site, execution_id), decided.body["arguments"])


def test_a_rejection_is_told_to_the_agent_with_its_reason(running: Site) -> None:
    site = running
    session_id = _create_session(site)
    execution_id = _send(site, session_id, COMPLAINT.format(order="12348"), until="waiting_for_approval")
    [asked] = _turn(site, execution_id)["pending_approvals"]
    reason = "The order is older than 90 days"
    rejected = site.call("reviewer", "POST", f"approvals/{asked['id']}/reject/", {"reason": reason})
    assert rejected.body["status"] == "rejected"
    _wait_for_state(site, execution_id, "completed")
    turn = _turn(site, execution_id)
    [refund] = _calls(turn, "process_refund")
    assert (refund["status"], refund["attempts"]) == ("rejected", 0)
    assert _refunds(site, "12348") == []
    assert reason in turn["response"]


def test_two_reviewers_at_once_make_one_decision_and_one_refund(running: Site) -> None:
    site = running
    session_id = _create_session(site)
    execution_id = _send(site, session_id, COMPLAINT.format(order="12347"), until="waiting_for_approval")
    [asked] = _turn(site, execution_id)["pending_approvals"]
    answers = _at_once(
        lambda: site.call("reviewer", "POST", f"approvals/{asked['id']}/approve/", {}),
        lambda: site.call("colleague", "POST", f"approvals/{asked['id']}/approve/", {}),
        lambda: site.call("reviewer", "POST", f"approvals/{asked['id']}/approve/", {}),
        lambda: site.call("colleague", "POST", f"approvals/{asked['id']}/approve/", {}),
    )
    assert sorted(answer.status for answer in answers) == [200, 200, 409, 409]
    _wait_for_state(site, execution_id, "completed")
    [shown] = (call["arguments"] for call in _calls(_turn(site, execution_id), "process_refund"))
    _assert_refunded_once(site, _turn(site, execution_id), shown)


def test_idle_sockets_stay_open(running: Site) -> None:
    """redis-py stops reading after 5 s by itself, and the layer's own read blocks for 5 s."""
    with _idle_sockets(running):
        time.sleep(12)


@pytest.mark.slow
def test_a_message_that_the_broker_lost_is_sent_again_while_sockets_idle_for_a_minute(running: Site) -> None:
    site = running
    session_id = _create_session(site)
    began = time.monotonic()
    with _idle_sockets(site):
        site.kill("worker")
        with closing(redis.Redis.from_url(site.env["REDIS_URL"])) as broker:
            # Else the broker hands the message to the dead worker's connection.
            _wait_until(lambda: not _is_read_from(broker), what="the broker missed the worker")
            execution_id = _send(site, session_id, COMPLAINT.format(order="12348"))
            # The answer does not wait for the broker: the message is published by a thread of the site.
            _wait_until(lambda: broker.delete("celery") == 1, what="the message reached the broker")
        site.start("worker")
        _wait_for_state(site, execution_id, "waiting_for_approval", seconds=120)
        assert site.call("customer", "POST", f"sessions/{session_id}/cancel/").status == 202
    # Else the sweep would have sent it at once, and the sockets would not have been idle for long.
    assert time.monotonic() - began > 30


def _is_read_from(broker: redis.Redis) -> bool:
    """Say whether a worker's connection waits for a message in this database of the broker."""
    database = str(broker.connection_pool.connection_kwargs["db"])
    return any(client["db"] == database and client["cmd"] == "brpop" for client in broker.client_list())


@contextmanager
def _idle_sockets(site: Site) -> Iterator[None]:
    """Open sockets that hear nothing while the block lasts; after it they must hear what happens."""
    session_id = _create_session(site)
    with ExitStack() as stack:
        chats = [stack.enter_context(site.listen("customer", f"sessions/{session_id}/?after=0")) for _ in range(3)]
        for chat in chats:
            _frame_of_kind(chat, "ready")
        reviewing = stack.enter_context(site.listen("reviewer", "approvals/"))
        assert _next(reviewing)["kind"] == "snapshot"
        yield
        execution_id = _send(site, session_id, COMPLAINT.format(order="12348"))
        for chat in chats:
            assert _events_until(chat, "turn.waiting")[0]["type"] == "turn.input"
        assert _approval_of(reviewing, execution_id)["status"] == "pending"
    assert site.call("customer", "POST", f"sessions/{session_id}/cancel/").status == 202


# The story's steps


def _create_session(site: Site) -> str:
    made = site.call("customer", "POST", "sessions/", {"agent": "support-agent"})
    assert made.status == 201, made
    session_id: str = made.body["session_id"]
    return session_id


def _send(site: Site, session_id: str, message: str, *, until: str | None = None) -> str:
    sent = site.call("customer", "POST", f"sessions/{session_id}/turns/", {"message": message})
    assert sent.status == 202, sent
    execution_id: str = sent.body["execution_id"]
    if until is not None:
        _wait_for_state(site, execution_id, until)
    return execution_id


def _turn(site: Site, execution_id: str) -> dict[str, Any]:
    answer = site.call("customer", "GET", f"turns/{execution_id}/")
    assert answer.status == 200, answer
    turn: dict[str, Any] = answer.body
    return turn


def _wait_for_state(site: Site, execution_id: str, state: str, *, seconds: float = SECONDS) -> None:
    _wait_until(lambda: _turn(site, execution_id)["state"] == state, seconds=seconds, what=f"the turn is {state}")


def _calls(turn: dict[str, Any], tool: str | None = None) -> list[dict[str, Any]]:
    return [call for step in turn["steps"] for call in step["tool_calls"] if tool in (None, call["tool"])]


def _status_found(turn: dict[str, Any]) -> str:
    [found] = _calls(turn, "lookup_order")
    status: str = found["result"]["status"]
    return status


def _assert_refunded_once(site: Site, turn: dict[str, Any], arguments: dict[str, Any]) -> None:
    [refund] = _calls(turn, "process_refund")
    assert (refund["status"], refund["attempts"], refund["arguments"]) == ("completed", 1, arguments)
    assert _refunds(site, arguments["order_id"]) == [(refund["call_id"], Decimal(arguments["amount"]))]


def _refunds(site: Site, order: str) -> list[tuple[str, Decimal]]:
    """Read the shop's own table: what was paid back for an order, and by which call."""
    with _connect(site.env["DATABASE_NAME"]) as connection:
        found = connection.execute(
            "SELECT refund.call_id, refund.amount FROM project_refund AS refund"
            " JOIN project_order ON project_order.id = refund.order_id WHERE project_order.number = %s",
            [order],
        )
        return found.fetchall()


# Frames of the sockets


def _next(socket: ClientConnection, *, seconds: float = SECONDS) -> Frame:
    frame: Frame = json.loads(socket.recv(timeout=seconds))
    return frame


def _frames(socket: ClientConnection) -> Iterator[Frame]:
    deadline = time.monotonic() + SECONDS
    while True:
        yield _next(socket, seconds=max(deadline - time.monotonic(), 0))


def _frame_of_kind(socket: ClientConnection, kind: str) -> Frame:
    return next(frame for frame in _frames(socket) if frame["kind"] == kind)


def _events_until(socket: ClientConnection, last: str) -> list[Frame]:
    events = []
    for frame in _frames(socket):
        if frame["kind"] == "event":
            events.append(frame)
            if frame["type"] == last:
                return events
    raise AssertionError("the frames never end")


def _approval_of(socket: ClientConnection, execution_id: str) -> dict[str, Any]:
    for frame in _frames(socket):
        if frame["kind"] == "approval" and frame["approval"]["execution_id"] == execution_id:
            approval: dict[str, Any] = frame["approval"]
            return approval
    raise AssertionError("the frames never end")


def _kinds(events: list[Frame], prefix: str) -> list[str]:
    return [event["type"] for event in events if event["type"].startswith(prefix)]


# A database that is nobody else's


@contextmanager
def _database() -> Iterator[str]:
    """Make a PostgreSQL database, and drop it after the block."""
    name = f"agentcore_acceptance_{os.getpid()}"
    with _connect("postgres") as connection:
        connection.execute(f"CREATE DATABASE {name}")
    try:
        yield name
    finally:
        with _connect("postgres") as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _connect(database: str) -> psycopg.Connection[Any]:
    given = settings.database("postgres")
    parts = {"host": given["HOST"], "port": given["PORT"], "user": given["USER"], "password": given["PASSWORD"]}
    return psycopg.connect(dbname=database, autocommit=True, **parts)


# Waiting


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until(is_so: Callable[[], bool], *, what: str, seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if is_so():
                return
        except URLError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {what}")


def _at_once(*calls: Callable[[], Answer]) -> list[Answer]:
    """Make calls at the same moment, each in a thread of its own."""
    gate = threading.Barrier(len(calls))
    answers: list[Answer] = []

    def make(call: Callable[[], Answer]) -> None:
        gate.wait()
        answers.append(call())

    threads = [threading.Thread(target=make, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers
