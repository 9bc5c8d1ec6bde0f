"""How the database is set up does not matter: SQLite by Django's defaults, PostgreSQL with few connections."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from rest_framework.test import APIClient

from agentcore import TurnState, runtime
from agentcore.agents.registry import registry
from agentcore.models import AgentContext, ToolApproval
from agentcore.states import ACTIVE, TERMINAL
from agentcore.testing import assert_invariants, make_user
from tests import settings, sqlite_file
from tests.concurrency import crash_worker
from tests.concurrency.crash_worker import AGENT, ANSWER
from tests.concurrency.harness import Farm, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

DECIDE = "agentcore.decide_toolapproval"
TURNS = 20
MANY = 50
FEW = 3


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    crash_worker.define_agent()
    farm = Farm(tmp_path)
    yield farm
    farm.close()
    registry.unregister(AGENT)


@pytest.fixture
def default_sqlite(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Let the test's database be what `startproject` makes: no options, no write-ahead log."""
    if settings.TEST_DB != "sqlite":
        pytest.skip("is about SQLite")
    with sqlite_file.plain_copy(tmp_path, {}):
        yield {"OPTIONS": {}}


def test_dur_22_sqlite_with_its_default_settings_locks_nobody_out(
    default_sqlite: dict[str, Any], farm: Farm, tmp_path: Path
) -> None:
    """Two worker processes, and a web process that posts, polls and approves at the same time."""
    owner, reviewer = make_user("owner"), make_user("reviewer", permissions=(DECIDE,))
    sessions = [runtime.create_session(AGENT, user=owner).session_id for _ in range(TURNS)]
    stop = str(tmp_path / "stop")
    workers = [farm.start("serve", options={"database": default_sqlite}, stop=stop, threads=2) for _ in range(2)]
    over = threading.Event()
    poller = threading.Thread(target=_poll, args=(owner, sessions, over, refused := []))
    poller.start()
    mine, theirs = _client(owner), _client(reviewer)
    try:
        for session in sessions:
            _ask(refused, 202, mine.post(f"/api/sessions/{session}/turns/", {"message": "one reply"}, format="json"))
        approved: set[int] = set()
        wait_until(lambda: _approve_all(theirs, approved, refused), what="all are approved", seconds=45)
        ended = AgentContext.objects.exclude(state__in=TERMINAL)
        wait_until(lambda: not ended.exists(), what="all end", seconds=45)
    finally:
        over.set()
        poller.join()
        Path(stop).touch()
    assert refused == []
    assert [worker.result["failures"] for worker in workers] == [[], []]
    assert "locked" not in "".join(worker.log for worker in workers)
    assert Counter(AgentContext.objects.values_list("state", "response")) == {(TurnState.COMPLETED, ANSWER): TURNS}
    assert Counter(line["kind"] for line in farm.ledger.read() if line["kind"] != "model") == {
        "charge": TURNS,
        "lookup": TURNS,
        "pay": TURNS,
    }
    assert_invariants()


def _client(user: Any) -> APIClient:
    client = APIClient()
    client.force_authenticate(user)
    return client


def _ask(refused: list[str], status: int, answer: Any) -> Any:
    if answer.status_code != status:
        refused.append(f"{answer.status_code} {answer.content!r}")
    return answer.json()


def _poll(user: Any, sessions: list[str], over: threading.Event, refused: list[str]) -> None:
    client = _client(user)
    while not over.is_set():
        for session in sessions:
            _ask(refused, 200, client.get(f"/api/sessions/{session}/events/"))
    connections.close_all()


def _approve_all(client: APIClient, approved: set[int], refused: list[str]) -> bool:
    for waiting in _ask(refused, 200, client.get("/api/approvals/?status=pending"))["results"]:
        if waiting["id"] not in approved:
            approved.add(waiting["id"])
            _ask(refused, 200, client.post(f"/api/approvals/{waiting['id']}/approve/", {}, format="json"))
    return len(approved) == TURNS


@pytest.mark.services("postgres")
@pytest.mark.parametrize("is_pooled", [True, False], ids=["pooled", "not-pooled"])
def test_dur_21_many_turns_at_once_need_few_connections(farm: Farm, tmp_path: Path, is_pooled: bool) -> None:
    turns = [runtime.enqueue(runtime.create_session(AGENT).session_id, "three tools").turn for _ in range(MANY)]
    options: dict[str, Any] = {"application_name": "crash-many"}
    few = FEW if is_pooled else 0
    if is_pooled:
        options["pool"] = {"min_size": 0, "max_size": few, "timeout": 25}
    release = str(tmp_path / "release")
    seen = farm.run(
        "many",
        options={"database": {"OPTIONS": options}, "hold": "model", "release": release},
        execution_ids=[str(turn.execution_id) for turn in turns],
        release=release,
        few=few,
    )
    assert seen.pop("connections") <= few
    assert seen == {"failures": [], "in_transaction": 0, "asked": MANY}
    assert not AgentContext.objects.filter(state__in=ACTIVE).exists()
    assert Counter(AgentContext.objects.values_list("state", "response")) == {(TurnState.COMPLETED, ANSWER): MANY}
    assert not ToolApproval.objects.exists()
    assert_invariants()
