"""The demonstration as a visitor meets it: one command, one process, and what it promises about its end."""

import base64
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, ProxyHandler, Request, build_opener

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

pytestmark = pytest.mark.timeout(120)

REPOSITORY = Path(__file__).resolve().parents[2]
BROKEN = "My order 12345 arrived broken, I want my money back"


class Demo:
    """A running demo, and what its visitors do."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        line = process.stdout.readline()
        told = json.loads(line)
        self.url = told["url"]
        self.users = {user["role"]: user for user in told["users"]}
        self.port = int(self.url.rsplit(":", 1)[1])

    def call(self, role: str, method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Token {self.users[role]['token']}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"{self.url}/api/{path}", data=data, headers=headers, method=method)
        with build_opener(ProxyHandler({})).open(request, timeout=10) as answer:
            return json.load(answer)

    def ask(self, message: str = BROKEN) -> str:
        """Send a message in a new session; return the turn's id."""
        session = self.call("customer", "POST", "sessions/", {"agent": "support-agent"})["session_id"]
        return self.call("customer", "POST", f"sessions/{session}/turns/", {"message": message})["execution_id"]

    def turn(self, execution_id: str, *, until: str, timeout: float = 15) -> Any:
        ends_at = time.monotonic() + timeout
        while True:
            turn = self.call("customer", "GET", f"turns/{execution_id}/")
            if turn["state"] == until:
                return turn
            assert time.monotonic() < ends_at, turn
            time.sleep(0.05)

    def approve(self, approval_id: int) -> Any:
        return self.call("reviewer", "POST", f"approvals/{approval_id}/approve/", {})

    def socket(self, role: str, path: str, **fields: Any) -> Any:
        headers = {"Authorization": f"Token {self.users[role]['token']}"} if role else {}
        fields = {"additional_headers": headers, "proxy": None, **fields}
        return connect(f"ws://127.0.0.1:{self.port}/ws/agentcore/{path}", **fields)

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        """Return the exit code, and how many seconds it took."""
        began = time.monotonic()
        self.process.send_signal(number)
        return self.process.wait(10), time.monotonic() - began


def command(*arguments: str) -> list[str]:
    return [sys.executable, "manage.py", "quickstart", *arguments]


def environment(**fields: str) -> dict[str, str]:
    """Return a visitor's shell: what the tests' own run is told must not reach the demo."""
    ours = ("DJANGO_SETTINGS_MODULE", "DATABASE", "REDIS_URL", "AGENTCORE_DEMO_DIR", "AGENTCORE_MODEL")
    return {**{name: value for name, value in os.environ.items() if name not in ours}, **fields}


@contextmanager
def started(data_dir: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start the command, its errors in a file beside its data folder, and see to it that it ends."""
    with (data_dir.parent / f"{data_dir.name}.log").open("a") as log:
        process = subprocess.Popen(
            command("--port", "0", "--data-dir", str(data_dir), *arguments),
            cwd=REPOSITORY,
            # Services that the shell knows must not matter.
            env=environment(REDIS_URL="redis://127.0.0.1:1/0", DATABASE="postgres"),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    with process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def running(data_dir: Path) -> Iterator[Demo]:
    with started(data_dir, "--json") as process:
        yield Demo(process)


def errors(data_dir: Path) -> str:
    return data_dir.with_suffix(".log").read_text()


@pytest.fixture
def data_dir(tmp_path):
    return tmp_path / "demo"


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    with running(tmp_path_factory.mktemp("shared") / "demo") as started:
        yield started


def rows(data_dir: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(data_dir / "db.sqlite3")) as connection:
        return connection.execute(query).fetchall()


def test_it_says_one_line_once_it_answers_and_ends_cleanly(data_dir):
    with running(data_dir) as demo:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", demo.url)
        assert {role: user["username"] for role, user in demo.users.items()} == {
            "customer": "customer",
            "reviewer": "reviewer",
        }
        assert demo.call("customer", "GET", "agents/")["results"]
        with demo.socket("reviewer", "approvals/") as live:
            assert json.loads(live.recv(5)) == {"kind": "snapshot", "pending": 0, "newest": None}
            code, seconds = demo.stop()
        assert (code, demo.process.stdout.read()) == (0, "")
        assert seconds < 5
        assert {path.name for path in data_dir.iterdir()} >= {"db.sqlite3", "secret-key"}
    assert "Traceback" not in errors(data_dir)


def test_the_refund_story(demo):
    execution = demo.ask()
    [pending] = demo.turn(execution, until="waiting_for_approval")["pending_approvals"]
    shown = demo.call("reviewer", "GET", f"approvals/{pending['id']}/")
    assert shown["arguments"] == {"order_id": "12345", "amount": "49.90"}
    with pytest.raises(HTTPError) as refused:
        demo.call("customer", "POST", f"approvals/{pending['id']}/approve/", {})
    with refused.value as answer:
        assert answer.code == 404
    assert demo.approve(pending["id"])["status"] == "approved"
    assert "refund of 49.90 for order 12345 was made" in demo.turn(execution, until="completed")["response"]


def test_sockets_tell_it_live(demo):
    session = demo.call("customer", "POST", "sessions/", {"agent": "support-agent"})["session_id"]
    with demo.socket("customer", f"sessions/{session}/") as live, demo.socket("reviewer", "approvals/") as waiting:
        assert json.loads(waiting.recv(5))["kind"] == "snapshot"
        while json.loads(live.recv(5))["kind"] != "ready":
            pass
        demo.call("customer", "POST", f"sessions/{session}/turns/", {"message": "Refund 20 euros of order 12346"})
        frames = [json.loads(live.recv(5))]
        while frames[-1].get("type") != "turn.waiting":
            frames.append(json.loads(live.recv(5)))
        assert [frame["sequence"] for frame in frames] == list(range(2, len(frames) + 2))
        asked = json.loads(waiting.recv(5))["approval"]
        assert (asked["session_id"], asked["arguments"]["amount"]) == (session, "20")


def test_a_browser_logs_in_and_its_cookie_opens_sockets_from_our_pages_only(demo):
    cookies = CookieJar()
    browser = build_opener(ProxyHandler({}), HTTPCookieProcessor(cookies))
    page = browser.open(f"{demo.url}/accounts/login/", timeout=10).read().decode()
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page).group(1)
    reviewer = demo.users["reviewer"]
    form = {"username": "reviewer", "password": reviewer["password"], "csrfmiddlewaretoken": token}
    assert browser.open(f"{demo.url}/accounts/login/", urlencode(form).encode(), timeout=10).url == f"{demo.url}/"
    for path in ("/reviews/", "/admin/", "/admin/project/order/", "/admin/agentcore/toolapproval/"):
        assert browser.open(f"{demo.url}{path}", timeout=10).status == 200
    sent = {"Cookie": "; ".join(f"{cookie.name}={cookie.value}" for cookie in cookies)}
    with demo.socket("", "approvals/", additional_headers=sent, origin=demo.url) as live:
        assert json.loads(live.recv(5))["kind"] == "snapshot"
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{demo.port + 1}"):
        with demo.socket("", "approvals/", additional_headers=sent, origin=origin) as live:
            assert close_code(live) == 4403


def test_closed_sockets_say_why(demo):
    with demo.socket("", "approvals/", origin=demo.url) as live:
        assert close_code(live) == 4401
    with demo.socket("customer", "approvals/") as live:
        assert close_code(live) == 4403
    with demo.socket("customer", "sessions/absent/") as live:
        assert close_code(live) == 4404
    with demo.socket("customer", "approvals/", additional_headers={}, subprotocols=["agentcore.token.x"]) as live:
        assert close_code(live) == 4401
    session = demo.call("customer", "POST", "sessions/", {"agent": "support-agent"})["session_id"]
    with demo.socket("customer", f"sessions/{session}/?after=9") as live:
        assert close_code(live) == 4400


def close_code(live: Any) -> int | None:
    with pytest.raises(ConnectionClosed) as closed:
        live.recv(5)
    return closed.value.rcvd and closed.value.rcvd.code


@pytest.mark.slow
def test_a_killed_process_keeps_the_waiting_approval_and_pays_once(data_dir):
    with running(data_dir) as demo:
        execution = demo.ask()
        [pending] = demo.turn(execution, until="waiting_for_approval")["pending_approvals"]
        old_token = demo.users["reviewer"]["token"]
        assert demo.stop(signal.SIGKILL)[0] == -signal.SIGKILL
    with running(data_dir) as demo:
        assert demo.users["reviewer"]["token"] != old_token
        assert demo.turn(execution, until="waiting_for_approval")["pending_approvals"] == [pending]
        demo.approve(pending["id"])
        demo.turn(execution, until="completed")
        assert demo.approve(pending["id"])["status"] == "approved"
        assert demo.stop()[0] == 0
    assert [str(amount) for (amount,) in rows(data_dir, "SELECT amount FROM project_refund")] == ["49.9"]


@pytest.mark.slow
def test_turns_that_the_killed_process_had_go_on_at_the_next_start(data_dir):
    with running(data_dir) as demo:
        executions = [demo.ask(message) for message in (BROKEN, "Where is order 12346?", BROKEN)]
        demo.stop(signal.SIGKILL)
    # As if it had died while it worked on one, and before it took another.
    with closing(sqlite3.connect(data_dir / "db.sqlite3")) as connection, connection:
        for state, execution in (("thinking", executions[0]), ("queued", executions[1])):
            connection.execute(
                "UPDATE agentcore_agentcontext SET state = ?, lease_expires_at = '2099-01-01', active_session_id = "
                "session_id, completed_at = NULL, response = NULL WHERE execution_id = ? AND state NOT LIKE 'waiting%'",
                (state, execution.replace("-", "")),
            )
    with running(data_dir) as demo:
        demo.turn(executions[0], until="waiting_for_approval", timeout=10)
        demo.turn(executions[1], until="completed", timeout=10)
        demo.turn(executions[2], until="waiting_for_approval", timeout=10)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("seconds", [0.0, 0.5, 1.0])
def test_a_signal_while_it_starts_ends_it_without_an_error(data_dir, number, seconds):
    with started(data_dir, "--json") as process:
        ends_at = time.monotonic() + 30
        # The lock is taken right after the signals are minded.
        while not (data_dir / "lock").exists() and time.monotonic() < ends_at:
            time.sleep(0.01)
        time.sleep(seconds)
        process.send_signal(number)
        assert process.wait(10) == 0, errors(data_dir)
    assert "Traceback" not in errors(data_dir)


@pytest.mark.slow
def test_without_json_it_tells_people_and_sigint_ends_it(data_dir):
    with started(data_dir, "--no-browser") as process:
        told = [process.stdout.readline() for _ in range(6)]
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
    assert re.match(r"The agentcore demo runs at http://127\.0\.0\.1:\d+/\n", told[0])
    text = "".join(told)
    assert "customer" in text
    assert "reviewer" in text


@pytest.mark.slow
def test_a_taken_port_and_a_taken_folder_are_named(demo, data_dir, tmp_path):
    def refused(*arguments: str) -> str:
        done = subprocess.run(
            command("--json", *arguments),
            cwd=REPOSITORY,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert (done.returncode, done.stdout) == (1, "")
        assert "Traceback" not in done.stderr
        return done.stderr

    assert f"Port {demo.port} on 127.0.0.1 cannot be used" in refused(
        "--port", str(demo.port), "--data-dir", str(data_dir)
    )
    with running(tmp_path / "taken"):
        assert "A demo is running on" in refused("--port", "0", "--data-dir", str(tmp_path / "taken"))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to see how much memory is used")
def test_evt_13_clients_that_do_not_read_cost_no_memory_and_delay_nobody(data_dir):
    with running(data_dir) as demo:
        count = 10_000
        write_events(data_dir, count)
        token = demo.users["customer"]["token"]
        with demo.socket("customer", f"sessions/big/?after={count}") as live:
            live.recv(5)
        before = memory(demo)
        slow = [unread(demo, token) for _ in range(5)]
        with demo.socket("customer", "sessions/big/?after=0") as live:
            seen = [json.loads(live.recv(20))["sequence"] for _ in range(count + 1)]
        assert seen == list(range(1, count + 2))
        # 20 MB of events for each of them.
        assert memory(demo) - before < 30
        for client in slow:
            client.close()


def write_events(data_dir: Path, count: int) -> None:
    script = f"""
from django.contrib.auth import get_user_model
from agentcore import runtime
from agentcore.events import log
session = runtime.create_session(
    "support-agent", session_id="big", user=get_user_model().objects.get(username="customer")
)
for _ in range({count} // 1000):
    with log.writing(session.pk) as journal:
        for number in range(1000):
            journal.append("note", text="x" * 2000)
"""
    subprocess.run(
        [sys.executable, "manage.py", "shell", "-c", script],
        cwd=REPOSITORY,
        env=environment(AGENTCORE_DEMO_DIR=str(data_dir)),
        check=True,
        stdout=subprocess.DEVNULL,
    )


def unread(demo: Demo, token: str) -> socket.socket:
    """Open a socket and never read from it."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", demo.port))
    lines = [
        "GET /ws/agentcore/sessions/big/?after=0 HTTP/1.1",
        f"Host: 127.0.0.1:{demo.port}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}",
        "Sec-WebSocket-Version: 13",
        f"Authorization: Token {token}",
    ]
    client.sendall("\r\n".join([*lines, "", ""]).encode())
    return client


def memory(demo: Demo) -> float:
    """Return how many megabytes the demo's process holds."""
    status = Path(f"/proc/{demo.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) / 1024
