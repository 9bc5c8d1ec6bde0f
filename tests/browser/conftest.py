"""The demonstration in a process of its own, and people with browsers who use it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

import pytest
from playwright.sync_api import BrowserContext, Page

REPOSITORY = Path(__file__).resolve().parents[2]
# Where pictures are kept for people to look at; without it none are taken.
SCREENSHOTS = os.environ.get("AGENTCORE_SCREENSHOTS")
START_SECONDS = 60
PAGE_SECONDS = 20

CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]

# Chromium tells of a violated policy in words of its own; here all begin alike.
TELL_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy violated: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`));
"""
# What pages rightly complain of while there is no server.
NO_SERVER = ("WebSocket connection to", "net::ERR_CONNECTION_REFUSED")


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    chromium = os.environ.get("CHROMIUM", "/usr/bin/chromium")
    return {**browser_type_launch_args, "executable_path": chromium, "args": CHROMIUM_ARGUMENTS, "headless": True}


class Demo:
    """`manage.py quickstart`: one process, with its data in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[str] | None = None
        self.url = ""
        self.users: dict[str, dict[str, str]] = {}

    def start(self) -> None:
        """Start it, on the same port as before if it ran before; return once it answers."""
        port = self.url.rpartition(":")[2] or "0"
        command = [sys.executable, "manage.py", "quickstart", "--json", "--no-browser", "--port", port]
        # pytest-django names the settings of these tests; the demonstration has its own.
        env = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
        with (self.folder / "log").open("a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [*command, "--data-dir", str(self.folder)],
                cwd=REPOSITORY,
                env=env,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        given = json.loads(self._first_line())
        self.url = given["url"].rstrip("/")
        self.users = {user["role"]: user for user in given["users"]}

    def kill(self) -> None:
        """Kill it: no handler runs, nothing is written any more."""
        self.signal(signal.SIGKILL)

    def signal(self, number: signal.Signals) -> int:
        """Send a signal, and return the exit status."""
        process, self.process = self.process, None
        if process is None:
            return 0
        os.killpg(process.pid, number)
        try:
            return process.wait(timeout=10)
        finally:
            process.kill()
            if process.stdout is not None:
                process.stdout.close()

    def call(self, role: str, method: str, path: str, body: Any = None) -> Any:
        """Call the API with a person's token."""
        headers = {"Authorization": f"Token {self.users[role]['token']}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"{self.url}/api/{path}", data=data, headers=headers, method=method)
        with build_opener(ProxyHandler({})).open(request, timeout=PAGE_SECONDS) as response:
            return json.load(response)

    def _first_line(self) -> str:
        process = self.process
        assert process is not None
        assert process.stdout is not None
        # A server that hangs ends its output, and so the wait for it.
        watchdog = threading.Timer(START_SECONDS, os.killpg, (process.pid, signal.SIGKILL))
        watchdog.start()
        try:
            line = process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            self.kill()
            raise AssertionError(f"quickstart did not start:\n{(self.folder / 'log').read_text()[-3000:]}")
        return line


@pytest.fixture(scope="session")
def migrated_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder as the first start leaves it: each test begins with a copy, which saves the migrations."""
    demo = Demo(tmp_path_factory.mktemp("first"))
    try:
        demo.start()
        assert demo.signal(signal.SIGTERM) == 0
    finally:
        demo.kill()
    return demo.folder


@pytest.fixture
def demo(migrated_folder: Path, tmp_path: Path) -> Iterator[Demo]:
    demo = Demo(shutil.copytree(migrated_folder, tmp_path / "data"))
    try:
        demo.start()
        yield demo
    finally:
        demo.kill()


class Person:
    """Somebody with a browser window. What goes wrong in it is kept in `problems`."""

    def __init__(self, demo: Demo, context: BrowserContext, role: str, *, runs_scripts: bool) -> None:
        self.demo = demo
        self.role = role
        self.runs_scripts = runs_scripts
        self.problems: list[str] = []
        self.context = context
        context.set_default_timeout(PAGE_SECONDS * 1000)
        context.add_init_script(TELL_VIOLATIONS)
        context.on("console", lambda message: self._note(message.type == "error", f"{message.text} {message.location}"))
        context.on("weberror", lambda error: self._note(True, str(error.error)))
        self.page: Page = context.new_page()

    def open(self, path: str) -> Page:
        """Go to a page, through the log-in where it asks for one."""
        self.page.goto(self.demo.url + path)
        if self.page.locator("input[name=password]").count():
            self.page.locator("input[name=username]").fill(self.demo.users[self.role]["username"])
            self.page.locator("input[name=password]").fill(self.demo.users[self.role]["password"])
            self.page.locator("input[name=password]").press("Enter")
            self.page.wait_for_url(self.demo.url + path)
        return self.page

    def stay(self) -> None:
        """Mark the page as it is loaded now."""
        self.page.evaluate("window.isTheSamePage = true")

    def has_stayed(self) -> bool:
        """Say whether the page was not loaded again since `stay`."""
        return bool(self.page.evaluate("window.isTheSamePage === true"))

    def shoot(self, name: str, *, whole: bool = False) -> None:
        """Keep a picture of the window, or of the whole page, where AGENTCORE_SCREENSHOTS says."""
        # With its styles: a redirect may just have begun to show.
        self.page.wait_for_load_state("load")
        if SCREENSHOTS:
            Path(SCREENSHOTS).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=Path(SCREENSHOTS, f"{name}.png"), full_page=whole)

    def forgive_lost_connections(self) -> None:
        self.problems = [problem for problem in self.problems if not problem.startswith(NO_SERVER)]

    def _note(self, is_problem: bool, text: str) -> None:
        if is_problem:
            self.problems.append(text)


MakePerson = Callable[..., Person]


@pytest.fixture
def person(demo: Demo, new_context: Any) -> Iterator[MakePerson]:
    """Give a browser window of its own to who has a role; keyword arguments go to Playwright's new_context."""
    people: list[Person] = []

    def make(role: str, **options: Any) -> Person:
        options.setdefault("viewport", {"width": 1280, "height": 860})
        runs_scripts = options.get("java_script_enabled", True)
        people.append(Person(demo, new_context(**options), role, runs_scripts=runs_scripts))
        return people[-1]

    yield make
    assert [problem for one in people for problem in one.problems] == []
