"""One worker process with 200 threads and 10 database connections, on a model that takes a second for each reply.

Prints how much longer 200 turns take together than one alone would: `pytest -m slow -s tests/benchmarks`.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from django.db import connection, connections

from agentcore import agent, runtime, tasks, tool
from agentcore.agents.registry import registry
from agentcore.messages import ModelReply, ModelRequest
from agentcore.models import AgentContext
from agentcore.providers import registry as providers
from agentcore.providers.base import ModelProvider
from agentcore.testing import assert_invariants, calls, text

NAME = "patient"
TURNS = 200
CONNECTIONS = 10
REPLY_SECONDS = 1.0
# How psycopg calls what Django calls so.
WHERE = {"dbname": "NAME", "host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD"}


class SlowModel(ModelProvider):
    """Asks for a tool so often, then answers; takes a second each time, as an API does: waiting, not working."""

    def __init__(self, tools: int) -> None:
        self.tools = tools

    def complete(self, request: ModelRequest) -> ModelReply:
        time.sleep(REPLY_SECONDS)
        done = sum(message.role == "tool" for message in request.messages)
        return calls(("lookup", {"q": str(done)})) if done < self.tools else text("Done.")


@pytest.fixture
def pooled() -> Iterator[None]:
    """Let every connection of this process come from one pool."""
    options = connections.settings["default"]["OPTIONS"]
    connection.close()
    before = dict(options)
    options["pool"] = {"min_size": CONNECTIONS, "max_size": CONNECTIONS, "timeout": 60}
    yield
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]  # PostgreSQL's
    options.clear()
    options.update(before)


@pytest.fixture
def patient() -> Iterator[None]:
    @agent(name=NAME, model="slow:x")
    class Patient:
        @tool(description="Looks something up", idempotent=True)
        def lookup(self, q: str) -> str:
            return q

    yield
    registry.unregister(NAME)


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.services("postgres")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("replies", [2, 6])
def test_many_turns_wait_for_their_model_at_the_same_time(
    replies: int, pooled: None, patient: None, capsys: pytest.CaptureFixture[str]
) -> None:
    turns = [runtime.enqueue(runtime.create_session(NAME).session_id, "go").turn for _ in range(TURNS)]
    seen: list[int] = []
    with providers.override("slow", SlowModel(replies - 1)), ThreadPoolExecutor(TURNS) as threads:
        over = threading.Event()
        watching = threads_watching(over, seen)
        began = time.monotonic()
        list(threads.map(lambda turn: tasks.run_turn(execution_id=str(turn.execution_id)), turns))
        seconds = time.monotonic() - began
        over.set()
        watching.join()
    ideal = replies * REPLY_SECONDS
    with capsys.disabled():
        print(f"\n{TURNS} turns of {replies} replies: {seconds:.2f} s, {seconds / ideal:.2f} of ideal, ", end="")
        print(f"at most {max(seen)} connections")
    assert max(seen) <= CONNECTIONS
    assert Counter(AgentContext.objects.values_list("state", "step_count")) == {("completed", replies): TURNS}
    assert_invariants()


def threads_watching(over: threading.Event, seen: list[int]) -> threading.Thread:
    """Count this database's connections now and then, over one of its own that is not counted."""
    at = connection.settings_dict
    where = {
        "dbname": at["NAME"],
        "host": at["HOST"],
        "port": at["PORT"],
        "user": at["USER"],
        "password": at["PASSWORD"],
    }
    count = (
        "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )

    def watch() -> None:
        with psycopg.connect(**where, autocommit=True) as own:
            while not over.wait(0.1):
                seen.append(own.execute(count).fetchone()[0])

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread
