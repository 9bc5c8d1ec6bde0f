"""The wheel as a stranger meets it: built, installed into a fresh environment, used by a fresh project."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from email.parser import Parser
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, ProxyHandler, Request, build_opener

import pytest
from websockets.sync.client import connect

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

REPOSITORY = Path(__file__).resolve().parents[2]
# What a checkout holds beside its sources.
LEFTOVERS = shutil.ignore_patterns(
    ".git", ".venv*", ".demo", "__pycache__", "*.pyc", ".*_cache", ".hypothesis", "dist", "build", "test-results"
)
PASSWORD = "a-password-of-the-test"

APPS = ["channels", "rest_framework", "django_filters", "drf_spectacular", "agentcore", "orders"]

INSTALLED = f"""
INSTALLED_APPS += {APPS!r}
ASGI_APPLICATION = "shop.asgi.application"
"""

# What the checks' hints say, for a project that has SQLite and no broker.
HINTED = """
DATABASES["default"]["OPTIONS"] = {"transaction_mode": "IMMEDIATE", "timeout": 20}
AGENTCORE = {"DISPATCH": "thread"}
"""

URLS = """
from django.urls import include

urlpatterns += [path("", include("agentcore.urls"))]
"""

ASGI = """
import os

from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
http = get_asgi_application()

from agentcore.routing import websocket_urlpatterns

application = ProtocolTypeRouter({"http": http, "websocket": URLRouter(websocket_urlpatterns)})
"""

AGENTS = '''
from decimal import Decimal

from agentcore import ToolContext, agent, tool

from orders.models import Refund


@agent(name="shop-agent", description="Helps with orders", system_prompt="You help with orders.", model="demo:support")
class ShopAgent:
    @tool(idempotent=True)
    def lookup_order(self, order_id: str) -> dict:
        """Look up an order by its ID."""
        return {"order_id": order_id, "status": "delivered", "total": "49.90"}

    @tool(description="Process a refund for an order", requires_approval=True)
    def process_refund(self, order_id: str, amount: Decimal, ctx: ToolContext) -> dict:
        Refund.objects.create(order_id=order_id, amount=amount, key=ctx.call_id)
        return {"order_id": order_id, "amount": amount}

    @process_refund.preview
    def _(self, order_id, amount, ctx) -> str:
        return f"Pays back {amount} for order {order_id}."
'''

MODELS = """
from django.db import models


class Refund(models.Model):
    order_id = models.CharField(max_length=20)
    amount = models.DecimalField(max_digits=8, decimal_places=2)
    key = models.CharField(max_length=100, unique=True)
"""

RUN_A_TURN = f"""
import json
from django.contrib.auth.models import User
from agentcore import runtime

customer = User.objects.create_user("customer", password={PASSWORD!r})
User.objects.create_superuser("boss", password={PASSWORD!r})
result = runtime.execute("shop-agent", "Order 12345 arrived broken, I want my money back", user=customer)
print(json.dumps({{
    "execution_id": str(result.execution_id),
    "session_id": result.session_id,
    "state": result.state,
    "pending": [approval.id for approval in result.pending_approvals],
}}))
"""

READ_THE_REFUNDS = """
import json
from orders.models import Refund

print(json.dumps([[refund.order_id, str(refund.amount)] for refund in Refund.objects.all()]))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: hatchling reads .gitignore, and nothing of the checkout's is touched."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(REPOSITORY, folder / "source", ignore=LEFTOVERS)
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", folder / "dist", folder / "source"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    output = built.stdout + built.stderr
    if built.returncode and "No matching distribution found for hatchling" in output:
        pytest.skip("building the wheel needs hatchling, and no package registry answers")
    assert built.returncode == 0, output
    [found] = (folder / "dist").glob("*.whl")
    return found


def test_the_wheel_holds_the_whole_app_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    app = {name for name in names if name.startswith("agentcore/")}
    assert app == set(_sources())
    about = {name for name in names - app if re.match(r"agentcore-[^/]+\.dist-info/", name)}
    assert names == app | about
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in about)


@pytest.mark.parametrize(
    "name",
    [
        "agentcore/py.typed",
        "agentcore/migrations/0001_initial.py",
        "agentcore/templates/agentcore/base.html",
        "agentcore/templates/agentcore/reviews/list.html",
        "agentcore/static/agentcore/agentcore.css",
        "agentcore/static/agentcore/live.js",
        "agentcore/static/agentcore/reviews/list.js",
        "agentcore/templatetags/agentcore_text.py",
        "agentcore/management/commands/agentcore_tick.py",
        "agentcore/testing/plugin.py",
    ],
)
def test_the_wheel_holds(wheel: Path, name: str) -> None:
    assert name in zipfile.ZipFile(wheel).namelist()


def test_the_wheel_says_what_it_is_and_needs(wheel: Path) -> None:
    about = _metadata(wheel)
    assert (about["Name"], about["License-Expression"]) == ("agentcore", "MIT")
    assert about["Requires-Python"] == ">=3.11"
    assert "Typing :: Typed" in about.get_all("Classifier", [])
    needed = {re.split(r"[^\w-]", need)[0] for need in about.get_all("Requires-Dist", []) if "extra ==" not in need}
    assert {"django", "djangorestframework", "channels", "celery", "pydantic"} <= needed
    assert not needed & {"pytest", "daphne", "openai", "playwright"}


def _sources() -> Iterator[str]:
    for path in (REPOSITORY / "agentcore").rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            yield path.relative_to(REPOSITORY).as_posix()


def _metadata(wheel: Path) -> Message:
    archive = zipfile.ZipFile(wheel)
    [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    return Parser().parsestr(archive.read(name).decode())


class Shop:
    """A fresh project, in a fresh environment of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "shop"
        self.python = folder / "venv" / "bin" / "python"
        # pytest-django names the settings of these tests; a stranger's shell does not.
        foreign = {"DJANGO_SETTINGS_MODULE", "PYTHONPATH", "VIRTUAL_ENV"}
        self.env = {name: value for name, value in os.environ.items() if name not in foreign}

    def run(self, *arguments: str | Path, status: int = 0) -> str:
        """Run this environment's Python in the project's folder; return what it says."""
        command = [self.python, *arguments]
        done = subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False)
        assert done.returncode == status, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr if status else done.stdout

    def manage(self, *arguments: str, status: int = 0) -> str:
        return self.run("manage.py", *arguments, status=status)

    def shell(self, script: str) -> Any:
        """Run a script in `manage.py shell`; return what it prints last, read as JSON."""
        return json.loads(self.manage("shell", "-c", script).strip().splitlines()[-1])

    def add(self, name: str, text: str) -> None:
        with (self.folder / name).open("a", encoding="utf-8") as file:
            file.write(text)


@pytest.fixture(scope="module")
def shop(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A project that `django-admin startproject` made, with the wheel and its dependencies installed from scratch."""
    shop = Shop(tmp_path_factory.mktemp("stranger"))
    shop.folder.mkdir()
    _run([sys.executable, "-m", "venv", "--without-pip", shop.python.parent.parent])
    pip = [sys.executable, "-m", "pip", "--python", shop.python, "--disable-pip-version-check"]
    # daphne, because some ASGI server is needed to see the pages; agentcore itself does not ask for one.
    _run([*pip, "install", "--quiet", "-c", REPOSITORY / "constraints.txt", wheel, "daphne"])
    _run([*pip, "check"])
    shop.run("-m", "django", "startproject", "shop", ".")
    shop.manage("startapp", "orders")
    shop.add("orders/models.py", MODELS)
    shop.add("orders/agents.py", AGENTS)
    shop.add("shop/settings.py", INSTALLED)
    shop.add("shop/urls.py", URLS)
    (shop.folder / "shop" / "asgi.py").write_text(ASGI, encoding="utf-8")
    return shop


def _run(command: list[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def test_a_fresh_project_needs_a_few_lines_and_no_more(shop: Shop) -> None:
    """In one test, since each part stands on the one before: checks, migrations, a turn, the pages, a decision."""
    assert "/venv/" in shop.run("-c", "import agentcore; print(agentcore.__file__)")
    _check_the_checks(shop)
    shop.manage("makemigrations", "orders")
    shop.manage("makemigrations", "--check", "--dry-run")
    shop.manage("migrate", "--verbosity", "0")
    turn = shop.shell(RUN_A_TURN)
    assert (turn["state"], len(turn["pending"])) == ("waiting_for_approval", 1)
    assert shop.shell(READ_THE_REFUNDS) == []
    with _serve(shop) as address:
        _decide_on_the_page(address, turn)
    assert shop.shell(READ_THE_REFUNDS) == [["12345", "49.90"]]


def _check_the_checks(shop: Shop) -> None:
    """The bare lines are enough to work; what would bite later is named, and following the hints silences it."""
    warned = shop.manage("check", "--fail-level", "WARNING", status=1)
    assert set(re.findall(r"\(agentcore\.(\w+)\)", warned)) == {"W001", "W002"}
    shop.add("shop/settings.py", HINTED)
    assert "no issues" in shop.manage("check", "--fail-level", "WARNING")


def _decide_on_the_page(address: str, turn: dict[str, Any]) -> None:
    visitor = Visitor(address)
    assert visitor.get("/reviews/").url.startswith(f"{address}/accounts/login/?next=/reviews/")
    assert visitor.get("/api/approvals/").status in (401, 403)
    visitor.log_in("boss")
    queue = visitor.get("/reviews/")
    assert queue.status == 200
    for text in ("process_refund", "12345", "49.90", "Pays back 49.90 for order 12345."):
        assert text in queue.text
    [number] = turn["pending"]
    assert visitor.get(f"/admin/agentcore/toolapproval/{number}/change/").status == 200
    page = visitor.get(f"/reviews/{number}/")
    version = re.search(r'name="version" value="(\d+)"', page.text)
    assert version is not None
    with visitor.listen(f"/ws/agentcore/sessions/{turn['session_id']}/?after=0") as socket:
        assert visitor.post(f"/reviews/{number}/approve/", version=version[1], note="").status == 200
        kinds = list(_kinds_until(socket, "turn.completed"))
    assert kinds[0] == "session.started"
    assert kinds.count("tool.execution.completed") == 2
    ended = json.loads(visitor.get(f"/api/turns/{turn['execution_id']}/").text)
    assert ended["state"] == "completed"
    assert "49.90" in ended["response"]


def _kinds_until(socket: Any, last: str) -> Iterator[str]:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        frame = json.loads(socket.recv(timeout=30))
        if frame["kind"] == "event":
            yield frame["type"]
            if frame["type"] == last:
                return
    raise AssertionError(f"{last} did not come")


@contextmanager
def _serve(shop: Shop) -> Iterator[str]:
    """Run the project's ASGI application while the block lasts; give its address."""
    port = _free_port()
    command = [shop.python, "-m", "daphne", "-b", "127.0.0.1", "-p", str(port), "shop.asgi:application"]
    with (shop.folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=shop.folder, env=shop.env, stdout=log, stderr=log, start_new_session=True
        )
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_until(lambda: Visitor(address).get("/api/health/").status == 200)
        yield address
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until(is_so: Callable[[], bool], *, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if is_so():
                return
        except URLError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"not so after {seconds} s")


class Answer:
    def __init__(self, *, url: str, status: int, text: str) -> None:
        self.url, self.status, self.text = url, status, text


class Visitor:
    """Somebody with a browser: cookies, redirects, and the CSRF token of the page before."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.cookies = CookieJar()
        self.opener = build_opener(ProxyHandler({}), HTTPCookieProcessor(self.cookies))

    def get(self, path: str) -> Answer:
        return self._open(Request(self.address + path))

    def post(self, path: str, **fields: str) -> Answer:
        given = {"csrfmiddlewaretoken": self._cookie("csrftoken"), **fields}
        return self._open(Request(self.address + path, data=urlencode(given).encode()))

    def log_in(self, username: str) -> None:
        self.get("/admin/login/")
        assert self.post("/admin/login/?next=/admin/", username=username, password=PASSWORD).url.endswith("/admin/")

    def listen(self, path: str) -> Any:
        cookies = {"Cookie": f"sessionid={self._cookie('sessionid')}"}
        address = self.address.replace("http", "ws") + path
        return connect(address, origin=self.address, additional_headers=cookies, close_timeout=1, proxy=None)

    def _cookie(self, name: str) -> str:
        [value] = [cookie.value or "" for cookie in self.cookies if cookie.name == name]
        return value

    def _open(self, request: Request) -> Answer:
        try:
            with self.opener.open(request, timeout=30) as response:
                return Answer(url=response.url, status=response.status, text=response.read().decode())
        except HTTPError as error:
            with error:
                return Answer(url=error.url or "", status=error.code, text=error.read().decode())
