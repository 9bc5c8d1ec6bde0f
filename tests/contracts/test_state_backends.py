"""Every state backend keeps what it is given as long as it should, and a turn is the same under each of them."""

from __future__ import annotations

import itertools
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
import redis
from django.contrib.auth import get_user_model

from agentcore import ToolContext, TurnState, agent, runtime, state, tool
from agentcore import clock as agentcore_clock
from agentcore.agents.registry import registry
from agentcore.engine import model_calls
from agentcore.exceptions import Conflict
from agentcore.models import AgentContext, ContextEntry, ToolApproval
from agentcore.state import Phase
from agentcore.state.locmem import LocalState
from agentcore.testing import assert_invariants, calls, make_user, run_turns
from tests import settings as test_settings
from tests.concurrency.harness import Outage
from tests.redis_database import own_redis_database

pytestmark = pytest.mark.django_db(transaction=True)

BACKENDS = ["memory", "database", "redis", "hybrid"]
HOT = ["memory", "redis", "hybrid"]
IN_REDIS = ("redis", "hybrid")
TTL = {"active": 3600, "completed": 86_400, "failed": 604_800}
AGENT = "state-agent"
OVER = "agentcore:over"
SECONDS = 20


class Died(BaseException):
    """As SIGKILL would: nothing that catches errors catches it."""


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str | None]:
    if test_settings.REDIS_URL:
        with own_redis_database() as url:
            yield url
    else:
        yield None


UseBackend = Callable[..., state.StateBackend]
DieAt = Callable[[int], None]


@pytest.fixture
def use_backend(settings: Any, redis_url: str | None) -> UseBackend:
    def use(name: str, **others: Any) -> state.StateBackend:
        if name in IN_REDIS and redis_url is None:
            pytest.skip("needs Redis: set REDIS_URL")
        settings.AGENTCORE = {**test_settings.AGENTCORE, "STATE_BACKEND": name, "REDIS_URL": redis_url, **others}
        return state.current()

    return use


@pytest.fixture
def server(redis_url: str | None) -> Iterator[Any]:
    if redis_url is None:
        pytest.skip("needs Redis: set REDIS_URL")
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        client.flushdb()
        yield client


@pytest.fixture
def seen() -> list[Any]:
    return []


@pytest.fixture(autouse=True)
def _agent(seen: list[Any]) -> Iterator[None]:
    @agent(name=AGENT, model="scripted:x", max_steps=600)
    class StateAgent:
        @tool(description="Note", idempotent=True)
        def note(self, key: str, value: str, ctx: ToolContext) -> str:
            ctx.working_memory[key] = value
            return value

        @tool(description="Note, with an effect")
        def book(self, key: str, value: str, ctx: ToolContext) -> str:
            ctx.working_memory[key] = value
            return value

        @tool(description="Look", idempotent=True)
        def look(self, ctx: ToolContext) -> dict[str, str]:
            known = dict(ctx.working_memory)
            stored = dict(ContextEntry.objects.order_by("pk").values_list("key", "value"))
            seen.append((known, stored, state.working_memory(ctx.execution_id)))
            return known

        @tool(description="Pay", requires_approval=True)
        def pay(self, amount: int, ctx: ToolContext) -> dict[str, Any]:
            seen.append(dict(ctx.working_memory))
            return {"paid": amount}

    yield
    registry.unregister(AGENT)


def watched(replies: list[Any], look: Callable[[int], object]) -> Callable[[Any], Any]:
    """Return a script that lets `look` see, by number, when the model is asked."""
    numbers = itertools.count(1)
    left = iter(replies)

    def reply(request: Any) -> Any:
        look(next(numbers))
        return next(left)

    return reply


def start(message: str = "go", **options: Any) -> AgentContext:
    session = runtime.create_session(AGENT, user=make_user())
    return runtime.enqueue(session.session_id, message, **options).turn


def approve() -> None:
    runtime.approve(ToolApproval.objects.pending().get().pk, reviewer())


def reviewer() -> Any:
    found = get_user_model().objects.filter(username="reviewer").first()
    return found or make_user("reviewer", permissions=("agentcore.decide_toolapproval",))


def end_of(turn: AgentContext) -> tuple[str, str | None]:
    turn.refresh_from_db()
    return turn.state, turn.response


# The protocol


@pytest.mark.parametrize("name", HOT)
def test_single_fields_are_set_and_others_stay(use_backend: UseBackend, name: str) -> None:
    backend = use_backend(name)
    assert backend.read("one") == {}
    assert backend.write("one", {"a": "1", "b": "ü\n"}, phase=Phase.ACTIVE)
    assert backend.write("one", {"b": "3"}, phase=Phase.ACTIVE)
    assert backend.write("two", {"a": "other"}, phase=Phase.ACTIVE)
    assert backend.read("one") == {"a": "1", "b": "3"}
    assert backend.forget("one") is True
    assert (backend.read("one"), backend.read("two")) == ({}, {"a": "other"})
    assert backend.forget("one") is False
    backend.forget("two")


@pytest.mark.parametrize("name", ["memory", "redis"])
def test_a_copy_lives_as_long_as_its_phase_says(use_backend: UseBackend, name: str, clock: Any) -> None:
    backend = use_backend(name, STATE_TTL={"active": 0.2, "completed": 500, "failed": 0.2})
    for phase in Phase:
        backend.write(phase, {"a": "1"}, phase=phase)
    # What was to be forgotten soon waits for a person by now.
    backend.write("changed", {"a": "1"}, phase=Phase.ACTIVE)
    backend.write("changed", {"b": "2"}, phase=Phase.WAITING)
    time.sleep(0.3)
    left = {key: backend.read(key) for key in [*Phase, "changed"]}
    assert left == {
        "active": {},
        "failed": {},
        "waiting": {"a": "1"},
        "completed": {"a": "1"},
        "changed": {"a": "1", "b": "2"},
    }
    for key in left:
        backend.forget(key)


def test_the_copies_in_memory_are_bounded() -> None:
    backend = LocalState(max_turns=2)
    for key in ("one", "two"):
        backend.write(key, {"a": key}, phase=Phase.WAITING)
    backend.write("one", {"b": "used again"}, phase=Phase.ACTIVE)
    backend.write("three", {"a": "three"}, phase=Phase.ACTIVE)
    assert [bool(backend.read(key)) for key in ("one", "two", "three")] == [True, False, True]


# A turn


@pytest.mark.parametrize("name", BACKENDS)
def test_working_memory_is_seen_at_once_and_stored_at_the_pause(
    use_backend: UseBackend, name: str, scripted: Any, seen: list[Any]
) -> None:
    backend = use_backend(name)
    scripted([calls(("note", {"key": "a", "value": "1"})), calls(("look", {})), calls(("pay", {"amount": 5})), "Done."])
    turn = start()
    run_turns()
    stored = {} if backend.is_hot else {"a": "1"}
    assert seen == [({"a": "1"}, stored, {"a": "1"})]
    assert end_of(turn) == (TurnState.WAITING_FOR_APPROVAL, None)
    assert dict(ContextEntry.objects.values_list("key", "value")) == {"a": "1"}
    assert state.working_memory(turn.execution_id) == {"a": "1"}
    approve()
    run_turns()
    assert end_of(turn) == (TurnState.COMPLETED, "Done.")
    assert seen[1:] == [{"a": "1"}]
    assert_invariants()


@pytest.mark.parametrize("name", BACKENDS)
def test_what_a_call_with_an_effect_noted_is_stored_with_its_result(
    use_backend: UseBackend, name: str, scripted: Any, seen: list[Any]
) -> None:
    use_backend(name)
    scripted(
        [
            calls(("note", {"key": "a", "value": "1"}), ("book", {"key": "b", "value": "2"})),
            calls(("look", {})),
            "Done.",
        ]
    )
    turn = start()
    run_turns()
    assert seen == [({"a": "1", "b": "2"},) * 3]
    assert end_of(turn) == (TurnState.COMPLETED, "Done.")


@pytest.mark.parametrize("name", BACKENDS)
def test_a_worker_that_takes_over_knows_what_the_dead_one_noted(
    use_backend: UseBackend,
    name: str,
    scripted: Any,
    seen: list[Any],
    clock: Any,
    die_at_request: DieAt,
) -> None:
    use_backend(name)
    scripted([calls(("note", {"key": "a", "value": "1"})), calls(("look", {})), "Done."])
    die_at_request(2)
    turn = start()
    take_over_from_the_dead(clock)
    assert end_of(turn) == (TurnState.COMPLETED, "Done.")
    [(known, _, read)] = seen
    assert known == read == {"a": "1"}
    assert dict(ContextEntry.objects.values_list("key", "value")) == {"a": "1"}
    assert_invariants()


@pytest.fixture
def die_at_request(monkeypatch: pytest.MonkeyPatch) -> DieAt:
    """Let the worker die right before it asks the model for the n-th time."""

    def at(number: int) -> None:
        numbers, ask = itertools.count(1), model_calls.ask

        def dying(*args: Any, **kwargs: Any) -> Any:
            if next(numbers) == number:
                raise Died
            return ask(*args, **kwargs)

        monkeypatch.setattr(model_calls, "ask", dying)

    return at


def take_over_from_the_dead(clock: Any, meanwhile: Callable[[], object] = lambda: None) -> None:
    with pytest.raises(Died):
        run_turns()
    meanwhile()
    clock.advance(1_800)
    assert runtime.recover()["taken_over"] == 1
    run_turns()


@pytest.mark.parametrize("name", BACKENDS)
def test_the_next_worker_shows_the_model_the_same(use_backend: UseBackend, name: str, scripted: Any) -> None:
    use_backend(name)
    provider = scripted(
        [
            calls(("note", {"key": "a", "value": "1"}), ("look", {})),
            calls(("note", {"key": "b", "value": "2"})),
            calls(("pay", {"amount": 5})),
            "Done.",
        ]
    )
    start()
    run_turns()
    approve()
    run_turns()
    before, after = (list(request.messages[1:]) for request in provider.requests[2:4])
    assert after[: len(before)] == before
    assert [message.role for message in after[len(before) :]] == ["assistant", "tool"]
    assert json.loads(after[-1].content or "") == {"paid": 5}


@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(BACKENDS, 2)))
def test_a_project_moves_between_backends_with_turns_under_way(
    use_backend: UseBackend, first: str, second: str, scripted: Any, seen: list[Any]
) -> None:
    """One turn waits for a person, one was given back to the queue, one has not begun."""
    use_backend(first)
    waiting = start("wait")
    scripted([calls(("note", {"key": "a", "value": "1"})), calls(("pay", {"amount": 5}))])
    run_turns()
    session = runtime.create_session(AGENT, user=waiting.user)
    new = runtime.enqueue(session.session_id, "new").turn
    use_backend(second)
    scripted(["Done.", "Done."])
    approve()
    run_turns()
    assert end_of(waiting) == end_of(new) == (TurnState.COMPLETED, "Done.")
    assert seen == [{"a": "1"}]
    assert_invariants()


# In Redis


def test_red_01_a_copy_that_waits_has_no_end_and_the_turn_needs_none(
    use_backend: UseBackend, server: Any, scripted: Any, seen: list[Any]
) -> None:
    use_backend("redis", STATE_TTL={**TTL, "active": 2})
    scripted([calls(("note", {"key": "a", "value": "1"})), calls(("pay", {"amount": 5})), "Done."])
    turn = start()
    run_turns()
    key = f"agentcore:turn:{turn.execution_id}"
    assert (server.ttl(key), server.hget(key, "state")) == (-1, "waiting_for_approval")
    time.sleep(2.5)
    assert server.exists(key)
    approve()
    run_turns()
    assert (end_of(turn), seen) == ((TurnState.COMPLETED, "Done."), [{"a": "1"}])
    assert 86_000 < server.ttl(key) <= 86_400
    assert server.hget(key, "state") == "completed"


@pytest.mark.parametrize("name", IN_REDIS)
def test_red_01_a_paused_turn_goes_on_from_an_empty_redis(
    use_backend: UseBackend, server: Any, name: str, scripted: Any, seen: list[Any]
) -> None:
    use_backend(name, STATE_TTL={**TTL, "active": 2})
    scripted([calls(("note", {"key": "a", "value": "1"})), calls(("pay", {"amount": 5})), "Done."])
    turn = start()
    run_turns()
    server.flushdb()
    approve()
    run_turns()
    assert (end_of(turn), seen) == ((TurnState.COMPLETED, "Done."), [{"a": "1"}])
    assert_invariants()


def test_a_copy_of_the_hybrid_backend_is_there_only_while_a_worker_has_the_turn(
    use_backend: UseBackend, server: Any, scripted: Any
) -> None:
    use_backend("hybrid")
    during: list[list[int]] = []
    replies = [calls(("note", {"key": "a", "value": "1"})), calls(("pay", {"amount": 5})), "Done."]
    scripted(watched(replies, lambda _: during.append([server.ttl(key) for key in server.keys("agentcore:turn:*")])))
    turn = start()
    run_turns()
    assert server.keys("agentcore:turn:*") == []
    approve()
    assert server.keys("agentcore:turn:*") == [f"agentcore:turn:{turn.execution_id}"]  # queued
    run_turns()
    assert server.keys("agentcore:turn:*") == []
    assert all(len(ttls) == 1 and 3_500 < ttls[0] <= 3_600 for ttls in during)
    assert len(during) == 3


@pytest.mark.parametrize("act", ["cancel", "expire"])
def test_a_turn_that_nobody_works_on_leaves_no_copy_for_ever(
    use_backend: UseBackend, server: Any, scripted: Any, clock: Any, act: str
) -> None:
    use_backend("redis")
    scripted([calls(("note", {"key": "a", "value": "1"})), calls(("pay", {"amount": 5})), "Never mind."])
    turn = start()
    run_turns()
    if act == "cancel":
        runtime.cancel(turn.session.session_id)
    else:
        clock.advance(8 * 86_400)
        runtime.tick()
    key = f"agentcore:turn:{turn.execution_id}"
    assert 0 < server.ttl(key) <= {"cancel": 604_800, "expire": 3_600}[act]


@pytest.mark.parametrize("how", ["ended", "without a row", "still waits"])
def test_a_copy_that_another_backend_left_to_wait_ends_with_its_turn(
    use_backend: UseBackend, server: Any, scripted: Any, how: str
) -> None:
    use_backend("redis")
    scripted([calls(("note", {"key": "a", "value": "1"})), calls(("pay", {"amount": 5})), "Done."])
    turn = start()
    run_turns()
    use_backend("database", SOFT_DELETE=False)
    key = f"agentcore:turn:{turn.execution_id}"
    server.sadd("agentcore:endless", "no id")  # as another hand might
    if how == "ended":
        approve()
        run_turns()
        assert server.ttl(key) == -1
    elif how == "without a row":
        server.sadd("agentcore:endless", missing := str(uuid.uuid4()))
        server.hset(f"agentcore:turn:{missing}", "state", "waiting_for_approval")
    runtime.tick()
    if how == "ended":
        assert 86_000 < server.ttl(key) <= 86_400
    else:
        assert server.ttl(key) == -1
        assert server.keys("agentcore:turn:*") == [key]
    assert server.smembers("agentcore:endless") == (set() if how == "ended" else {str(turn.execution_id)})


@pytest.mark.parametrize("name", ["memory", "redis"])
@pytest.mark.parametrize("how", ["deleted for good", "removed for its age"])
def test_a_copy_goes_with_its_rows(use_backend: UseBackend, name: str, how: str, scripted: Any, clock: Any) -> None:
    backend = use_backend(name, SOFT_DELETE=False, METRICS=False, STATE_TTL={**TTL, "completed": 864_000})
    scripted([calls(("note", {"key": "a", "value": "1"})), "Done.", "Done too."])
    turn, other = start(), start()
    run_turns()
    copies = [str(turn.execution_id), str(other.execution_id)]
    assert [bool(backend.read(copy)) for copy in copies] == [True, True]
    if how == "deleted for good":
        runtime.delete(turn.session.session_id)
    else:
        AgentContext.objects.filter(pk=other.pk).update(completed_at=agentcore_clock.now() + timedelta(days=9))
        clock.advance(timedelta(days=2))
        assert runtime.trim(1)["turns"] == 1
    assert [bool(backend.read(copy)) for copy in copies] == [False, True]
    backend.forget(copies[1])


def test_a_session_is_deleted_for_good_also_while_redis_is_away(
    use_backend: UseBackend, redis_url: str, scripted: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with Outage(redis_url or "") as outage:
        use_backend("redis", SOFT_DELETE=False, REDIS_URL=outage.url)
        scripted(["Done."])
        turn = start()
        run_turns()
        outage.refuse()
        runtime.delete(turn.session.session_id)
    assert not AgentContext.objects.exists()
    assert "Error calling" in caplog.text


def test_a_running_turn_outlives_its_copy(use_backend: UseBackend, server: Any, scripted: Any, seen: list[Any]) -> None:
    use_backend("redis")
    replies = [calls(("note", {"key": "a", "value": "1"})), calls(("look", {})), calls(("look", {})), "Done."]
    scripted(watched(replies, lambda number: server.flushdb()))
    turn = start()
    run_turns()
    assert end_of(turn) == (TurnState.COMPLETED, "Done.")
    assert [known for known, _, _ in seen] == [{"a": "1"}] * 2
    assert dict(ContextEntry.objects.values_list("key", "value")) == {"a": "1"}
    assert_invariants()


def test_who_takes_over_without_a_copy_goes_on_from_the_rows(
    use_backend: UseBackend,
    server: Any,
    scripted: Any,
    seen: list[Any],
    clock: Any,
    die_at_request: DieAt,
) -> None:
    """Steps, calls and results are rows; what idempotent calls noted since the last pause is gone with the copy."""
    use_backend("redis")
    notes = [calls(("book", {"key": "b", "value": "2"})), calls(("note", {"key": "a", "value": "1"}))]
    provider = scripted([*notes, calls(("look", {})), "Done."])
    die_at_request(3)
    turn = start()
    take_over_from_the_dead(clock, meanwhile=server.flushdb)
    assert end_of(turn) == (TurnState.COMPLETED, "Done.")
    assert [known for known, _, _ in seen] == [{"b": "2"}]
    told = [message.content for message in provider.requests[2].messages if message.role == "tool"]
    assert told == ["2", "1"]
    assert_invariants()


@pytest.mark.parametrize("name", IN_REDIS)
@pytest.mark.parametrize("how", ["refuses", "hangs"])
def test_red_03_a_turn_runs_pauses_and_ends_without_redis(
    use_backend: UseBackend, redis_url: str, name: str, how: str, scripted: Any, seen: list[Any]
) -> None:
    with Outage(redis_url or "") as outage:
        use_backend(name, REDIS_URL=outage.url)
        if how == "refuses":
            outage.refuse()
        else:
            outage.hang()
        note, pay = calls(("note", {"key": "a", "value": "1"})), calls(("pay", {"amount": 5}))
        scripted([note, calls(("look", {})), pay, "Done."])
        began = time.monotonic()
        turn = start()
        run_turns()
        assert end_of(turn) == (TurnState.WAITING_FOR_APPROVAL, None)
        approve()
        run_turns()
        assert end_of(turn) == (TurnState.COMPLETED, "Done.")
        assert [entry if isinstance(entry, dict) else entry[0] for entry in seen] == [{"a": "1"}] * 2
        assert time.monotonic() - began < 3
        assert runtime.health()["parts"]["state"]["status"] == "degraded"
    assert_invariants()


@pytest.mark.parametrize("name", BACKENDS)
def test_red_05_a_lease_shorter_than_the_models_work_is_renewed(
    use_backend: UseBackend, name: str, scripted: Any
) -> None:
    use_backend(name, LEASE_SECONDS=1)
    refused: list[type] = []

    def post_again(number: int) -> None:
        time.sleep(2)
        try:
            runtime.enqueue(turn.session.session_id, "another")
        except Conflict as conflict:
            refused.append(type(conflict))
        runtime.recover()
        time.sleep(1)

    scripted(watched(["Done."], post_again))
    turn = start()
    run_turns()
    assert (end_of(turn), turn.takeovers, refused) == ((TurnState.COMPLETED, "Done."), 0, [Conflict])
    assert AgentContext.objects.count() == 1


@pytest.mark.parametrize("name", IN_REDIS)
@pytest.mark.parametrize("steps", [30, pytest.param(500, marks=[pytest.mark.slow, pytest.mark.timeout(120)])])
def test_commands_and_bytes_of_a_step_do_not_grow(
    use_backend: UseBackend, server: Any, name: str, scripted: Any, steps: int, capsys: pytest.CaptureFixture[str]
) -> None:
    use_backend(name)
    replies = [calls(("note", {"key": f"k{n:03}", "value": "v"})) for n in range(100, 100 + steps)]
    with watched_server(server) as commands:
        marks: list[int] = []
        scripted(watched([*replies, "Done."], lambda _: marks.append(settled(server, commands))))
        turn = start()
        run_turns()
    assert end_of(turn) == (TurnState.COMPLETED, "Done.")
    costs = [commands[before:after] for before, after in itertools.pairwise(marks)]
    numbers, sizes = {len(cost) for cost in costs}, [sum(map(len, cost)) for cost in costs]
    with capsys.disabled():
        print(f"\n{name}: {numbers} commands and {min(sizes)} to {max(sizes)} characters for each of {steps} steps")
    assert numbers == {12}
    # The number of the step has more digits, and times have fewer.
    assert max(sizes) - min(sizes) <= 40


@contextmanager
def watched_server(server: Any) -> Iterator[list[str]]:
    """Collect what the server is told about turns, as MONITOR shows it."""
    commands: list[str] = []
    with server.monitor() as monitor:
        reader = threading.Thread(target=_collect, args=(monitor, own_database(server), commands), daemon=True)
        reader.start()
        yield commands
        server.exists(OVER)
        reader.join(SECONDS)


def own_database(server: Any) -> str:
    return str(server.get_connection_kwargs()["db"])


def _collect(monitor: Any, database: str, commands: list[str]) -> None:
    """Take the commands on one database, also those that a transaction holds together."""
    for seen in monitor.listen():
        if str(seen["db"]) == database:
            if OVER in seen["command"]:
                return
            commands.append(seen["command"])


def settled(server: Any, commands: list[str]) -> int:
    """Wait until MONITOR has shown what was said so far; return how many commands that is, marks left out."""
    mark = f"agentcore:mark:{uuid.uuid4().hex}"
    server.exists(mark)
    until = time.monotonic() + SECONDS
    while mark not in "".join(commands[-1:]):
        assert time.monotonic() < until, "MONITOR shows nothing"
        time.sleep(0.001)
    del commands[-1]
    return len(commands)


@pytest.mark.parametrize("name", IN_REDIS)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("step:1", "{nope"),
        ("step:1", '{"number":1,"message":null,"action":"","calls":[],"of_a_later_version":1}'),
        ("step:1", "[]"),
        ("memory:k", "[1]"),
        ("memory:k", '["v","2026-01-01T00:00:00"]'),
        ("memory:k", b"\xff\xfe"),
    ],
)
def test_a_copy_that_cannot_be_read_is_as_good_as_none(
    use_backend: UseBackend,
    server: Any,
    name: str,
    field: str,
    value: str | bytes,
    scripted: Any,
    seen: list[Any],
    die_at_request: DieAt,
    clock: Any,
) -> None:
    use_backend(name)
    scripted([calls(("book", {"key": "b", "value": "2"})), calls(("look", {})), "Done."])
    turn = start()
    die_at_request(2)
    key = f"agentcore:turn:{turn.execution_id}"
    take_over_from_the_dead(clock, meanwhile=lambda: server.hset(key, field, value))
    assert (end_of(turn), turn.takeovers) == ((TurnState.COMPLETED, "Done."), 1)
    assert [known for known, _, _ in seen] == [{"b": "2"}]
    assert_invariants()
