"""Every query of lists, sweeps, archiving, retention, erasure, history and metrics, with 1,000,000 steps in PostgreSQL.

Each is explained after it ran: one that reads a large table from end to end fails. What Django's admin counts for its
page numbers reads an index from end to end, and passes. Prints the slowest of each:
`AGENTCORE_TEST_DB=postgres pytest -m slow -s tests/benchmarks/test_a_million_steps.py`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection, transaction
from django.db.models import Model
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from agentcore import runtime
from agentcore.engine import metrics
from agentcore.keeping import archiving, erasure, retention
from agentcore.models import (
    AgentContext,
    AgentSession,
    AgentStep,
    ApprovalDecision,
    SessionEvent,
    ToolApproval,
    ToolCall,
)
from agentcore.testing import ScriptedProvider, calls, make_user
from tests.integration.api import client_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.services("postgres"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(3600),
]

SESSIONS, TURNS, STEPS, CALLS, APPROVALS = 100_000, 200_000, 1_000_000, 500_000, 100_000
EVENTS_PER_TURN = 10
LONG = 2_000
USERS = 5_000
# Rows have keys from here on; those of the turn they are copied from lie below.
BASE = 1_000
LARGE = 50_000
# Read whole wherever somebody lists approvals of every status: the permissions that were asked for, to find those that
# the user has. No index can help: the column is too long for one on MariaDB.
KNOWN = 'SELECT DISTINCT "agentcore_toolapproval"."permission"'
# A statement that takes longer is printed.
SLOW = 20

# The session of a turn `t`: the first turns are all in one long session, the others two to a session.
SESSION_OF = f"(CASE WHEN t <= {LONG} THEN {BASE} + 1 ELSE {BASE} + 2 + t % {SESSIONS - 1} END)"
RANK = f"(CASE WHEN t <= {LONG} THEN t - 1 ELSE t / {SESSIONS - 1} END)"
AGE = f"(now() - interval '400 days' * (1 - t::float / {TURNS}))"
UUID = "md5('turn' || t)::uuid"

# What differs in the copies, as SQL; every other column is that of the row they are copied from.
COPIES: dict[type[Model], tuple[str, dict[str, str]]] = {
    AgentSession: (
        f"generate_series(1, {SESSIONS}) AS t",
        {
            "id": f"{BASE} + t",
            "session_id": "'bench-' || t",
            "user_id": f"(SELECT min(id) FROM auth_user WHERE username LIKE 'bench-%%') + t %% {USERS}",
            "user_key": f"((SELECT min(id) FROM auth_user WHERE username LIKE 'bench-%%') + t %% {USERS})::text",
            "status": "CASE WHEN t %% 4 = 0 THEN 'active' ELSE 'archived' END",
            "created_at": f"now() - interval '400 days' * (1 - t::float / {SESSIONS})",
            "updated_at": f"now() - interval '400 days' * (1 - t::float / {SESSIONS})",
            "deleted_at": "CASE WHEN t %% 50 = 0 THEN now() END",
            "last_sequence": f"CASE WHEN t = 1 THEN {LONG * EVENTS_PER_TURN} ELSE 30 END",
        },
    ),
    AgentContext: (
        f"generate_series(1, {TURNS}) AS t",
        {
            "id": f"{BASE} + t",
            "execution_id": UUID,
            "session_id": SESSION_OF,
            "user_id": f"(SELECT user_id FROM agentcore_agentsession s WHERE s.id = {SESSION_OF})",
            "user_key": f"(SELECT user_key FROM agentcore_agentsession s WHERE s.id = {SESSION_OF})",
            "idempotency_digest": "md5('key' || t)",
            "created_at": AGE,
            "updated_at": AGE,
            "completed_at": AGE,
        },
    ),
    AgentStep: (
        f"generate_series(1, {STEPS}) AS n",
        {"id": f"{BASE} + n", "turn_id": f"{BASE} + 1 + (n - 1) / 5", "number": "(n - 1) %% 5 + 1"},
    ),
    ToolCall: (
        f"generate_series(1, {CALLS}) AS n",
        {
            "id": f"{BASE} + n",
            "step_id": f"{BASE} + 2 * n",
            "turn_id": f"{BASE} + 1 + (2 * n - 1) / 5",
            "call_id": "'bench-' || n",
            "tool": "CASE WHEN n %% 5 = 0 THEN 'pay' ELSE 'lookup' END",
        },
    ),
    ToolApproval: (
        f"generate_series(1, {APPROVALS}) AS n CROSS JOIN LATERAL (SELECT 1 + (10 * n - 1) / 5 AS t) AS of_turn",
        {
            "id": f"{BASE} + n",
            "call_id": f"{BASE} + 5 * n",
            "turn_id": f"{BASE} + t",
            "session_id": SESSION_OF,
            "status": "CASE WHEN n %% 1000 = 0 THEN 'pending' ELSE 'approved' END",
            "requester_key": "(n %% 500)::text",
            "updated_at": AGE,
            "requested_at": AGE,
            "decided_at": f"CASE WHEN n %% 1000 = 0 THEN NULL ELSE {AGE} END",
            "expires_at": "now() + interval '2 days'",
            "arguments_digest": "md5('arguments' || n)",
        },
    ),
    ApprovalDecision: (
        f"generate_series(1, {APPROVALS}) AS n",
        {"id": f"{BASE} + n", "approval_id": f"{BASE} + n", "actor_key": "(n %% 100)::text"},
    ),
    SessionEvent: (
        f"generate_series(1, {TURNS}) AS t CROSS JOIN generate_series(1, {EVENTS_PER_TURN}) AS k",
        {
            "id": f"{BASE} + (t - 1) * {EVENTS_PER_TURN} + k",
            "session_id": SESSION_OF,
            "turn_id": UUID,
            "sequence": f"{RANK} * {EVENTS_PER_TURN} + k",
            "created_at": AGE,
        },
    ),
}


@dataclass(frozen=True)
class Plan:
    """What one statement did, by PostgreSQL's own account."""

    name: str
    sql: str
    milliseconds: float
    buffers: int
    scans: tuple[str, ...]


@pytest.fixture
def filled(run_turns: Any) -> None:
    with ScriptedProvider([calls(("lookup", {"q": "a"}), ("pay", {"amount": 1, "to": "x"})), "Done."]).installed():
        found = runtime.execute("testing-agent", "hello", session_id="template")
        reviewer = make_user("reviewer", permissions=("agentcore.decide_toolapproval",))
        runtime.approve(found.pending_approvals[0].id, reviewer)
        run_turns()
    get_user_model().objects.bulk_create([get_user_model()(username=f"bench-{n}") for n in range(USERS)])
    begin = time.monotonic()
    with connection.cursor() as cursor:
        # Only for this: foreign keys are right by the way the rows are made.
        cursor.execute("SET session_replication_role = replica")
        cursor.execute("SET synchronous_commit = off")
        for model, (source, changes) in COPIES.items():
            _copy(cursor, model, source, changes)
        cursor.execute("SET session_replication_role = DEFAULT")
        cursor.execute("VACUUM ANALYZE")
    print(f"\nfilled in {time.monotonic() - begin:.0f} s: {AgentStep.objects.count()} steps")
    metrics.catch_up()


def _copy(cursor: Any, model: type[Model], source: str, changes: dict[str, str]) -> None:
    """Insert copies of the model's first row, with some columns of their own."""
    table, columns = model._meta.db_table, [field.column for field in model._meta.concrete_fields]
    values = ", ".join(changes.get(column, f'template."{column}"').replace("%%", "%") for column in columns)
    names = ", ".join(f'"{column}"' for column in columns)
    cursor.execute(
        f"INSERT INTO {table} ({names}) SELECT {values} FROM {source}"
        f" CROSS JOIN (SELECT * FROM {table} ORDER BY id LIMIT 1) AS template"
    )
    cursor.execute(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), (SELECT max(id) FROM {table}))")


def large_tables() -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT relname FROM pg_class WHERE relkind = 'r' AND reltuples > %s", [LARGE])
        return {name for (name,) in cursor.fetchall()}


def explained(name: str, statements: list[str], large: set[str]) -> Iterator[Plan]:
    """Explain each statement that reads or changes a large table; what changes something is rolled back."""
    for sql in dict.fromkeys(statements):
        if sql.startswith(("SELECT", "UPDATE", "DELETE")) and any(table in sql for table in large):
            with rolled_back(), connection.cursor() as cursor:
                cursor.execute("SET LOCAL session_replication_role = replica")
                cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}".replace("%", "%%"), [])
                answer = cursor.fetchone()[0]
            found = (json.loads(answer) if isinstance(answer, str) else answer)[0]
            top = found["Plan"]
            yield Plan(
                name=name,
                sql=sql,
                milliseconds=found["Execution Time"],
                buffers=top["Shared Hit Blocks"] + top["Shared Read Blocks"],
                scans=tuple(node["Relation Name"] for node in _nodes(top) if _is_scan(node, large)),
            )


@contextmanager
def rolled_back() -> Iterator[None]:
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _is_scan(node: dict[str, Any], large: set[str]) -> bool:
    return node["Node Type"] == "Seq Scan" and node.get("Relation Name") in large


def _api() -> Iterator[tuple[str, Callable[[], object]]]:
    owner = get_user_model().objects.get(pk=AgentSession.objects.get(pk=BASE + 1).user_id)
    clients = {
        "owner": client_of(owner),
        "staff": client_of(make_user(permissions=("agentcore.view_agentsession", "agentcore.decide_toolapproval"))),
    }
    turn = AgentContext.objects.get(pk=BASE + 1)
    paths = [
        "sessions/",
        "sessions/?status=archived",
        "sessions/?agent=testing-agent&status=all",
        "sessions/bench-1/",
        "sessions/bench-1/turns/",
        "sessions/bench-1/turns/?state=completed",
        "sessions/bench-1/turns/?state=failed",
        "sessions/bench-1/events/?after=15000",
        f"turns/{turn.execution_id}/",
        "approvals/",
        "approvals/?status=approved",
        "approvals/?status=approved&tool=pay",
        "approvals/?status=approved&session_id=bench-1",
        f"approvals/?status=approved&execution_id={turn.execution_id}",
    ]
    for who, client in clients.items():
        for path in paths:
            yield f"API {path} ({who})", lambda client=client, path=path: _ok(client.get(f"/api/{path}"))  # type: ignore[misc]


def _admin() -> Iterator[tuple[str, Callable[[], object]]]:
    client = Client()
    client.force_login(make_user(is_staff=True, is_superuser=True))
    turn = AgentContext.objects.get(pk=BASE + 1)
    queries = {
        AgentSession: ["", "?status__exact=active", "?agent__id__exact=1"],
        AgentContext: ["", f"?session__id__exact={BASE + 1}", "?state__exact=failed", f"?q={turn.execution_id}"],
        AgentStep: ["", f"?turn__id__exact={turn.pk}"],
        ToolApproval: ["", "?status=all", f"?status=all&session__id__exact={BASE + 1}"],
        ApprovalDecision: [""],
        SessionEvent: ["", f"?session__id__exact={BASE + 1}"],
    }
    for model, found in queries.items():
        try:
            url = reverse(f"admin:agentcore_{model._meta.model_name}_changelist")
        except Exception:
            continue
        for query in found:
            yield f"admin {model.__name__}{query}", lambda url=url, query=query: _ok(client.get(url + query))  # type: ignore[misc]


def _ok(response: Any) -> None:
    assert response.status_code == 200, response.content[:500]


def _keeping() -> Iterator[tuple[str, Callable[[], object]]]:
    user = AgentSession.objects.get(pk=BASE + 77_777).user
    settings = {"days": 399.5}
    yield "tick", runtime.tick
    yield "archive: dry run", lambda: next(archiving.idle(30))
    yield "archive 100", lambda: archiving.archive_idle(30, limit=100)
    yield "trim: 20 sessions", lambda: retention.trim(**settings, limit=20)
    yield "trim: nothing is old", lambda: retention.trim(500)
    yield "erase: dry run", lambda: erasure.found(user)
    yield "erase", lambda: runtime.erase(user)
    yield "delete for good", lambda: AgentSession.objects.get(pk=BASE + 55_555).delete()


def _work() -> Iterator[tuple[str, Callable[[], object]]]:
    yield "a turn after 2,000 others", _go_on
    yield "metrics", runtime.metrics
    yield "health", runtime.health


def _go_on() -> None:
    AgentSession.objects.filter(pk=BASE + 1).update(status="active")
    with ScriptedProvider(["Still here."]).installed():
        assert runtime.execute("testing-agent", "more", session_id="bench-1").response == "Still here."


def test_no_query_reads_a_large_table_from_end_to_end(filled: None) -> None:
    large, plans = large_tables(), []
    for part in (_api, _admin, _work, _keeping):
        for name, ask in part():
            with CaptureQueriesContext(connection) as captured:
                begin = time.monotonic()
                ask()
                seconds = time.monotonic() - begin
            statements = [query["sql"] for query in captured.captured_queries]
            found = list(explained(name, statements, large))
            plans += found
            slowest = max(found, key=lambda plan: plan.milliseconds, default=None)
            told = f"slowest {slowest.milliseconds:.1f} ms, {slowest.buffers} pages" if slowest else ""
            print(f"{name}: {seconds * 1000:.0f} ms, {len(statements)} statements; {told}")
            if slowest and slowest.milliseconds > SLOW:
                print(f"    {slowest.sql[:600]}")
    bad = [plan for plan in plans if plan.scans and not plan.sql.startswith(KNOWN)]
    for plan in bad:
        print(f"\n{plan.name}: {plan.scans} {plan.milliseconds:.1f} ms\n  {plan.sql[:1500]}")
    assert not bad
