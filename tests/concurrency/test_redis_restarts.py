"""A real Redis that is killed and started again under turns: with nothing, or with an old snapshot of what it held."""

from __future__ import annotations

import itertools
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from agentcore import ToolContext, TurnState, agent, runtime, state, tool
from agentcore.agents.registry import registry
from agentcore.engine import model_calls
from agentcore.models import AgentContext, ContextEntry, ToolApproval
from agentcore.state import redis as redis_state
from agentcore.state.hybrid import HybridState
from agentcore.testing import assert_invariants, calls, make_user, run_turns
from tests import settings as test_settings

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs redis-server, to start one of its own"),
]

AGENT = "restart-agent"
SECONDS = 20


class Died(BaseException):
    """As SIGKILL would: nothing that catches errors catches it."""


class Server:
    """A Redis of the test's own, which keeps on disk what `save` wrote last and nothing else."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        options = ["--port", str(self._port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self._folder)]
        self._process = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            with suppress(redis.RedisError), self.client() as client:
                client.ping()
                return
            time.sleep(0.02)
        raise AssertionError("The Redis of the test did not start.")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def restart(self) -> None:
        self.kill()
        self.start()

    def save(self) -> None:
        with self.client() as client:
            client.save()

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url, decode_responses=True)

    def copy_of(self, turn: AgentContext) -> dict[str, str]:
        with self.client() as client:
            return dict(client.hgetall(f"agentcore:turn:{turn.execution_id}"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    made.start()
    yield made
    made.kill()


@pytest.fixture(params=["redis", "hybrid"], autouse=True)
def backend(request: pytest.FixtureRequest, settings: Any, server: Server, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(redis_state, "REST_SECONDS", 0.1)
    settings.AGENTCORE = {**test_settings.AGENTCORE, "STATE_BACKEND": request.param, "REDIS_URL": server.url}
    return state.current()


@pytest.fixture(params=["nothing", "an old snapshot"])
def keeps_snapshot(request: pytest.FixtureRequest) -> bool:
    return bool(request.param != "nothing")


@pytest.fixture(autouse=True)
def seen() -> Iterator[list[Any]]:
    """What each call found in working memory; calls with an effect are told apart by their name."""
    found: list[Any] = []

    @agent(name=AGENT, model="scripted:x")
    class RestartAgent:
        @tool(description="Note", idempotent=True)
        def note(self, key: str, value: str, ctx: ToolContext) -> str:
            ctx.working_memory[key] = value
            return value

        @tool(description="Look", idempotent=True)
        def look(self, ctx: ToolContext) -> str:
            found.append(dict(ctx.working_memory))
            return "looked"

        @tool(description="Book")
        def book(self, what: str) -> str:
            found.append(f"booked {what}")
            return f"booked {what}"

        @tool(description="Pay", requires_approval=True)
        def pay(self, amount: int) -> str:
            found.append(f"paid {amount}")
            return f"paid {amount}"

    yield found
    registry.unregister(AGENT)


def note(value: str) -> Any:
    return calls(("note", {"key": "a", "value": value}))


def at_requests(replies: list[Any], acts: dict[int, Callable[[], object]]) -> Callable[[Any], Any]:
    """Return a script that acts, by number, when the model is asked."""
    numbers, left = itertools.count(1), iter(replies)

    def reply(request: Any) -> Any:
        acts.get(next(numbers), lambda: None)()
        return next(left)

    return reply


def start() -> AgentContext:
    session = runtime.create_session(AGENT, user=make_user("owner"))
    return runtime.enqueue(session.session_id, "go").turn


def approve() -> None:
    reviewer = make_user("reviewer", permissions=("agentcore.decide_toolapproval",))
    runtime.approve(ToolApproval.objects.pending().get().pk, reviewer)


def end_of(turn: AgentContext) -> tuple[str, str | None]:
    turn.refresh_from_db()
    return turn.state, turn.response


def told_to_model(provider: Any) -> list[str]:
    """What the model was told of calls, at its last request."""
    return [message.content for message in provider.requests[-1].messages if message.role == "tool"]


def test_a_running_turn_goes_on_through_a_restart(
    server: Server, scripted: Any, seen: list[Any], keeps_snapshot: bool
) -> None:
    replies = [note("1"), note("2"), calls(("look", {}), ("book", {"what": "a table"})), calls(("look", {})), "Done."]
    acts = {2: server.save, 3: server.restart} if keeps_snapshot else {3: server.restart}
    provider = scripted(at_requests(replies, acts))
    turn = start()
    run_turns()
    assert end_of(turn) == (TurnState.COMPLETED, "Done.")
    assert seen == [{"a": "2"}, "booked a table", {"a": "2"}]
    assert told_to_model(provider) == ["1", "2", "looked", "booked a table", "looked"]
    assert dict(ContextEntry.objects.values_list("key", "value")) == {"a": "2"}
    assert_invariants()


def test_a_paused_turn_goes_on_after_a_restart(
    server: Server, scripted: Any, seen: list[Any], keeps_snapshot: bool
) -> None:
    replies = [note("1"), note("2"), calls(("pay", {"amount": 5})), calls(("look", {})), "Done."]
    provider = scripted(at_requests(replies, {2: server.save} if keeps_snapshot else {}))
    turn = start()
    run_turns()
    assert end_of(turn) == (TurnState.WAITING_FOR_APPROVAL, None)
    server.restart()
    approve()
    run_turns()
    assert end_of(turn) == (TurnState.COMPLETED, "Done.")
    assert seen == ["paid 5", {"a": "2"}]
    assert told_to_model(provider) == ["1", "2", "paid 5", "looked"]
    assert_invariants()


def test_a_copy_that_a_snapshot_brings_back_to_wait_ends_all_the_same(
    backend: state.StateBackend, server: Server, scripted: Any
) -> None:
    if isinstance(backend, HybridState):
        pytest.skip("has no copies of turns that wait")
    scripted([note("1"), calls(("pay", {"amount": 5})), "Done."])
    turn = start()
    run_turns()
    server.save()
    server.kill()
    approve()
    run_turns()
    assert end_of(turn) == (TurnState.COMPLETED, "Done.")
    server.start()
    time.sleep(0.2)  # REST_SECONDS
    key = f"agentcore:turn:{turn.execution_id}"
    with server.client() as client:
        assert (client.hget(key, "state"), client.ttl(key)) == ("waiting_for_approval", -1)
        runtime.tick()
        assert 86_000 < client.ttl(key) <= 86_400


def test_who_takes_over_after_a_restart_goes_on_from_the_rows(
    server: Server,
    scripted: Any,
    seen: list[Any],
    clock: Any,
    keeps_snapshot: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Steps and effects are rows; of notes since the last pause there is what the snapshot had, or nothing."""

    def die_at_the_fourth(*args: Any, **kwargs: Any) -> Any:
        if next(numbers) == 4:
            raise Died
        return ask(*args, **kwargs)

    numbers, ask = itertools.count(1), model_calls.ask
    monkeypatch.setattr(model_calls, "ask", die_at_the_fourth)
    replies = [note("1"), note("2"), calls(("book", {"what": "a table"})), calls(("look", {})), "Done."]
    provider = scripted(at_requests(replies, {2: server.save} if keeps_snapshot else {}))
    turn = start()
    with pytest.raises(Died):
        run_turns()
    assert server.copy_of(turn)["memory:a"]
    server.restart()
    clock.advance(1_800)
    assert runtime.recover()["taken_over"] == 1
    run_turns()
    assert end_of(turn) == (TurnState.COMPLETED, "Done.")
    assert seen == ["booked a table", {"a": "1"} if keeps_snapshot else {}]
    assert told_to_model(provider) == ["1", "2", "booked a table", "looked"]
    assert_invariants()


def test_after_a_restart_redis_is_used_again(server: Server, scripted: Any) -> None:
    copies: list[dict[str, str]] = []
    server.kill()
    assert runtime.health()["parts"]["state"]["status"] == "degraded"
    server.start()
    time.sleep(0.2)
    assert runtime.health()["parts"]["state"]["status"] == "healthy"
    scripted(at_requests([note("1"), "Done."], {2: lambda: copies.append(server.copy_of(turn))}))
    turn = start()
    run_turns()
    [copy] = copies
    assert {"state", "memory:a", "step:1"} <= set(copy)
