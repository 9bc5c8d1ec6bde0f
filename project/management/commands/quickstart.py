"""Start the demonstration: web server, worker and live events in this one process, on SQLite."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import io
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

# Before anything of Twisted: it installs the reactor on asyncio.
from daphne.server import Server, twisted_loop  # type: ignore[import-untyped]  # isort: skip
from django.conf import settings
from django.core.management import CommandError, call_command
from django.core.management.base import BaseCommand, CommandParser
from django.db import close_old_connections
from twisted.internet import reactor as installed_reactor

from agentcore import AgentRuntime
from project.asgi import application
from project.users import DemoUser, make_customer, make_reviewer

try:
    import fcntl
except ImportError:  # Windows: nobody keeps a second demo from this data folder there
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger("project.quickstart")

# Any: what the module stands for is chosen at run time.
reactor: Any = installed_reactor

DOCS = Path(__file__).resolve().parents[3] / "docs"
HOST = "127.0.0.1"
TICK_SECONDS = 3.0
# What is not done by then goes on at the next start; what hangs does not hold up the end.
FINISH_SECONDS = 1.0
EXIT_SECONDS = 1.5


class Command(BaseCommand):
    help = "Start the demonstration site in one process: migrate, demo data, web server, worker and live events."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--port", type=port_number, default=8000, help="0 takes a free one (default: 8000)")
        parser.add_argument("--data-dir", help="where database and secret key are kept (default: .demo)")
        parser.add_argument("--no-browser", action="store_true", help="open no browser")
        parser.add_argument("--json", action="store_true", help="print nothing but one line of JSON, once it runs")

    def handle(self, *, port: int, data_dir: str | None, no_browser: bool, json: bool, **options: Any) -> None:
        require_own_settings(data_dir)
        # Whatever a tool or a library prints: standard output holds what this command says.
        with (
            contextlib.redirect_stdout(sys.stderr),
            Stop() as stop,
            only_one_on(settings.DATA_DIR),
            bound_socket(port) as listener,
        ):
            call_command("migrate", interactive=False, verbosity=0, stdout=self.stderr)
            users = [make_customer(), make_reviewer()]
            ingest_docs()
            close_old_connections()
            listen(listener)
            reactor.callWhenRunning(stop.look)
            self.serve(listener, users, as_json=json, opens_browser=not (no_browser or json))

    def serve(self, listener: socket.socket, users: list[DemoUser], *, as_json: bool, opens_browser: bool) -> None:
        """Run until a signal ends it."""
        url = f"http://{HOST}:{listener.getsockname()[1]}"
        # No other process works on these data: turns that one left behind are nobody's.
        AgentRuntime().recover(everything=True)
        ticker = Ticker()
        ticker.start()
        in_background(self.announce, url, users, as_json=as_json, opens_browser=opens_browser)
        server = Server(
            application=application,
            endpoints=[f"fd:fileno={listener.detach()}"],
            signal_handlers=False,
            server_name="agentcore",
        )
        server.run()
        ticker.stop()
        end_connections()
        if not AgentRuntime().shutdown(FINISH_SECONDS):
            end_process()

    def announce(self, url: str, users: list[DemoUser], *, as_json: bool, opens_browser: bool) -> None:
        """Say where the site is and who may log in, once it answers."""
        wait_for_answer(url)
        if as_json:
            self.stdout.write(json.dumps({"url": url, "users": [asdict(user) for user in users]}))
        else:
            self.stdout.write(as_text(url, users))
        self.stdout.flush()
        if opens_browser and has_display():
            webbrowser.open(url)


def ingest_docs() -> None:
    """Give the research agent this project's own documentation, as far as it changed since the last start."""
    if not DOCS.is_dir():
        return
    try:
        call_command("agentcore_ingest", DOCS, agent="research-agent", stdout=io.StringIO())
    except CommandError as problem:
        logger.warning("Some of the documentation was not ingested: %s", problem)


def port_number(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise ValueError(text)
    return port


def require_own_settings(data_dir: str | None) -> None:
    """Raise CommandError when the settings were not loaded for the demonstration: manage.py sees to that."""
    if data_dir is not None and Path(data_dir).resolve() != settings.DATA_DIR:
        raise CommandError(
            f"The settings are loaded for {settings.DATA_DIR}, not for {data_dir}: run `python manage.py quickstart "
            "--data-dir …`, or set AGENTCORE_DEMO_DIR."
        )
    if settings.AGENTCORE["DISPATCH"] != "thread":
        raise CommandError("REDIS_URL is set: run `python manage.py quickstart`, which does without.")


class Stop:
    """Makes SIGINT and SIGTERM end the server, or the command while it does not serve yet: without an error."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def __enter__(self) -> Stop:
        in_background(self._end_late)
        self._before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        sys.unraisablehook = self._ignore_the_end
        return self

    def __exit__(self, *_: object) -> None:
        sys.unraisablehook = sys.__unraisablehook__
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ignore_the_end(self, lost: Any) -> None:
        """Say nothing of the end where Python cannot raise it, as in a callback of the garbage collector."""
        if not (self._asked.is_set() and isinstance(lost.exc_value, SystemExit)):
            sys.__unraisablehook__(lost)

    def look(self) -> None:
        """End the server if that was asked for, also before it ran: what a signal raises is lost in some places."""
        if self._asked.is_set() and reactor.running:
            reactor.stop()

    def _ask(self, *_: object) -> None:
        if self._asked.is_set():
            return
        self._asked.set()
        if not reactor.running:
            raise SystemExit(0)
        reactor.callFromThread(self.look)

    def _end_late(self) -> None:
        """End the process, whoever still runs: a page's query or a tool that hangs must not hold up its end."""
        self._asked.wait()
        time.sleep(EXIT_SECONDS)
        end_process()


@contextlib.contextmanager
def only_one_on(data_dir: Path) -> Iterator[None]:
    """Hold the data folder's lock, which ends with the process; raise CommandError when another one has it."""
    with lock_file(data_dir) as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise CommandError(
                    f"A demo is running on {data_dir} already. Stop it, or take another folder with --data-dir."
                ) from error
        yield


def lock_file(data_dir: Path) -> TextIO:
    try:
        return (data_dir / "lock").open("a")
    except OSError as error:
        raise CommandError(f"The data folder {data_dir} cannot be used: {error.strerror}.") from error


def bound_socket(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # The connections of a server that just ended keep nobody from its port.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError as error:
        raise port_is_taken(port, error) from error
    return listener


def listen(listener: socket.socket) -> None:
    try:
        listener.listen(128)
    except OSError as error:
        raise port_is_taken(listener.getsockname()[1], error) from error


def port_is_taken(port: int, error: OSError) -> CommandError:
    return CommandError(
        f"Port {port} on {HOST} cannot be used: {error.strerror}. Take another with --port, or --port 0 for a free one."
    )


def in_background(function: Any, *args: Any, **kwargs: Any) -> None:
    threading.Thread(target=function, args=args, kwargs=kwargs, name=function.__name__, daemon=True).start()


class Ticker(threading.Thread):
    """Does the periodic work, at once and then every few seconds."""

    def __init__(self) -> None:
        super().__init__(name="ticker", daemon=True)
        self._ends = threading.Event()

    def run(self) -> None:
        while not self._ends.is_set():
            try:
                AgentRuntime().tick()
            except Exception:
                logger.exception("The periodic work failed; it is tried again")
            finally:
                close_old_connections()
            self._ends.wait(TICK_SECONDS)

    def stop(self) -> None:
        self._ends.set()
        self.join(FINISH_SECONDS)


def end_connections() -> None:
    """End what serves open connections. Daphne leaves out all of them when a socket was opened a moment before."""
    tasks = asyncio.all_tasks(twisted_loop)
    for task in tasks:
        task.cancel()
    if tasks:
        twisted_loop.run_until_complete(asyncio.wait(tasks, timeout=FINISH_SECONDS))


def end_process() -> None:
    """End without taking the interpreter down under threads that work: that crashes it."""
    sys.stderr.flush()
    os._exit(0)


def wait_for_answer(url: str) -> None:
    while True:
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=5)
        try:
            connection.request("GET", settings.LOGIN_URL)
            connection.getresponse()
        except (OSError, http.client.HTTPException):
            time.sleep(0.05)
        else:
            return
        finally:
            connection.close()


def as_text(url: str, users: list[DemoUser]) -> str:
    pages = {"customer": f"{url}/", "reviewer": f"{url}/reviews/"}
    lines = [f"The agentcore demo runs at {url}/", ""]
    for user in users:
        lines += [
            f"  {user.username:<10} password  {user.password}    {pages[user.role]}",
            f"  {'':<10} API token {user.token}",
        ]
    lines += ["", f"Data: {settings.DATA_DIR}. Passwords and tokens are new at each start. Stop it with Ctrl-C."]
    return "\n".join(lines)


def has_display() -> bool:
    """Say whether a browser would have a screen; on Linux a text browser would take this terminal."""
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
