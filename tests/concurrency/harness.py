"""Start, stop, kill and watch processes that work on the test's database."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.db import connection

from agentcore.models import (
    AgentContext,
    AgentSession,
    AgentStep,
    ApprovalDecision,
    ContextEntry,
    SessionEvent,
    ToolApproval,
    ToolCall,
)
from tests import settings
from tests.concurrency.crash_worker import Ledger

REPOSITORY = Path(__file__).resolve().parents[2]
SECONDS = 30
EVERY_MODEL = (
    AgentSession,
    AgentContext,
    AgentStep,
    ToolCall,
    ToolApproval,
    ApprovalDecision,
    ContextEntry,
    SessionEvent,
)


def environment(**extra: str) -> dict[str, str]:
    """Return the environment of a child process that uses this test's database."""
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]),
        "AGENTCORE_TEST_DB": settings.TEST_DB,
        "AGENTCORE_TEST_NAME": str(connection.settings_dict["NAME"]),
        **extra,
    }


class Process:
    """One process that does one job."""

    def __init__(self, farm: Farm, pid: int, order: dict[str, Any]) -> None:
        self._farm, self.pid, self._order = farm, pid, order
        self.ended: int | None = None

    def wait(self, seconds: float = SECONDS) -> Process:
        """Wait until it has ended; fail when it does not."""
        while self.ended is None:
            news = self._farm.ask({"wait": self.pid, "seconds": seconds})
            assert news, f"{self._order['job']} did not end within {seconds} s\n{self.log}"
            self.ended = news.get("ended")
        return self

    def wait_until_stopped(self, seconds: float = SECONDS) -> None:
        news = self._farm.ask({"wait": self.pid, "seconds": seconds})
        assert news == {"stopped": signal.SIGSTOP}, f"{news}\n{self.log}"

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    @property
    def result(self) -> dict[str, Any]:
        """What it returned; it must have ended well."""
        self.wait()
        assert self.ended == 0, f"{self._order['job']} ended with {self.ended}\n{self.log}"
        result: dict[str, Any] = json.loads(Path(self._order["result"]).read_text())
        return result

    @property
    def trace(self) -> list[str]:
        path = Path(self._order["trace"])
        return path.read_text().splitlines() if path.exists() else []

    @property
    def log(self) -> str:
        path = Path(self._order["log"])
        return path.read_text() if path.exists() else ""


class Farm:
    """The process that all others are forked from."""

    def __init__(self, folder: Path, **extra: str) -> None:
        self.folder = folder
        self.ledger = Ledger(folder / "ledger")
        self.numbers = itertools.count(1)
        self._living: list[Process] = []
        with (folder / "farm.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "tests.concurrency.crash_worker"],
                cwd=REPOSITORY,
                env=environment(**extra),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                bufsize=1,
            )

    def start(self, job: str, *, ledger: Ledger | None = None, options: dict[str, Any], **arguments: Any) -> Process:
        """Fork a process that does a job; `options` say how it is to live and die."""
        name = str(self.folder / f"{next(self.numbers)}-{job}")
        order = {
            "job": job,
            "arguments": arguments,
            "ledger": str((ledger or self.ledger).path),
            "log": f"{name}.log",
            "trace": f"{name}.trace",
            "result": f"{name}.json",
            **options,
        }
        process = Process(self, self.ask(order)["pid"], order)
        self._living = [living for living in self._living if living.ended is None]
        self._living.append(process)
        return process

    def run(self, job: str, *, options: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
        return self.start(job, options=options or {}, **arguments).result

    def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, (self.folder / "farm.log").read_text()
        news: dict[str, Any] = json.loads(answer)
        return news

    def close(self) -> None:
        """Kill what still lives."""
        for process in self._living:
            if process.ended is None:
                process.send(signal.SIGKILL)
                process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        finally:
            self._process.kill()
            self._process.wait()
            if self._process.stdout:
                self._process.stdout.close()


class Worker:
    """A Celery worker that does one turn at a time, and takes some more from the broker before it can begin them."""

    def __init__(self, farm: Farm, url: str, *, delay: float = 0.0, pool: str = "prefork") -> None:
        self._log = farm.folder / f"worker-{next(farm.numbers)}.log"
        command = ["celery", "-A", "tests.concurrency.celery_worker", "worker", f"--pool={pool}"]
        options = ["--concurrency=1", "--loglevel=INFO", "--without-gossip", "--without-mingle"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *command, *options],
                cwd=REPOSITORY,
                env=environment(CRASH_BROKER=url, CRASH_LEDGER=str(farm.ledger.path), CRASH_DELAY=str(delay)),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def __enter__(self) -> Worker:
        wait_until(lambda: " ready." in self.log or self._process.poll() is not None, what="the worker is ready")
        assert self._process.poll() is None, self.log
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, number: int) -> None:
        """Send a signal to the worker's first process, as who stops a service does."""
        self._process.send_signal(number)

    def wait(self, seconds: float) -> int:
        return self._process.wait(seconds)

    def kill(self) -> None:
        """Kill it with all its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Outage:
    """Stands before a server, and lets it be reached (`end`), refuse connections, or take them and never answer.

    What was open when it began to hang stays open and silent for ever: nobody tells its owner.
    """

    def __init__(self, url: str) -> None:
        there = urlsplit(url)
        self._there = (there.hostname or "127.0.0.1", there.port or 6379)
        self._lock = threading.Lock()
        self._open: list[tuple[socket.socket, socket.socket | None]] = []
        self._listener: socket.socket | None = None
        self._hangs = False
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        self.url = there._replace(netloc=f"127.0.0.1:{self.port}").geturl()
        self.delay = 0.0

    def __enter__(self) -> Outage:
        self.end()
        return self

    def __exit__(self, *_: object) -> None:
        self.refuse()

    def refuse(self) -> None:
        """Be down: what is open breaks, and nothing new is taken."""
        with self._lock:
            listener, self._listener = self._listener, None
            broken, self._open = self._open, []
        if listener is not None:
            # close() alone would leave it to the thread that accepts.
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for pair in broken:
            for end in pair:
                if end is not None:
                    with suppress(OSError):
                        end.shutdown(socket.SHUT_RDWR)
                    end.close()

    def hang(self) -> None:
        """Take every connection and say nothing, on those that are open either."""
        self._hangs = True
        self._listen()

    def end(self) -> None:
        """Be there again for who comes now."""
        self._hangs = False
        self._listen()

    def _listen(self) -> None:
        with self._lock:
            if self._listener is None:
                self._listener = socket.create_server(("127.0.0.1", self.port))
                threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = None if self._hangs else socket.create_connection(self._there)
            with self._lock:
                self._open.append((client, server))
            if server is not None:
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if self._hangs:
                    return
                time.sleep(self.delay)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


def snapshot() -> dict[str, list[dict[str, Any]]]:
    """Return every row of agentcore, to see whether anything was written since."""
    return {model.__name__: list(model.objects.order_by("pk").values()) for model in EVERY_MODEL}


def wait_until(
    is_so: Callable[[], Any], *, what: str, seconds: float = SECONDS, told: Callable[[], str] = lambda: ""
) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, f"after {seconds} s it is not so that {what}\n{told()}"
        time.sleep(0.02)
