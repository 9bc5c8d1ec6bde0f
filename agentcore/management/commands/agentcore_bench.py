"""Measure turns, approvals and the runtime itself on a database of their own, made and removed by the command."""

from __future__ import annotations

import json
import math
import platform
import tempfile
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import django
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from django.test.utils import override_settings, setup_databases, teardown_databases

from agentcore import database, dispatch
from agentcore.management.benchmark import scenarios

COLUMNS = ("runs", "per_second", "p50_ms", "p95_ms", "cpu_ms", "statements", "transactions", "rows", "row_kb")
NAMES = ("A", "B", "C", "registration", "lookup", "metrics", "health")
QUICK = {"registration": 200, "lookup": 2000, "metrics": 20, "health": 20}


class Command(BaseCommand):
    help = (
        "Measure turns against a model that answers at once: A with one tool, B with an approval, C in a session "
        "with 10, 100 and 1,000 earlier messages; and registration, lookup, metrics and health. Works on a test "
        "database of the project's own kind; the project's data is not touched."
    )
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
        parser.add_argument("--runs", type=float, default=1.0, help="more or fewer runs: a factor, 1 by default")
        parser.add_argument(
            "--only", default="", help="comma-separated: A, B, C, registration, lookup, metrics, health"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if not 0 < options["runs"] < math.inf:
            raise CommandError("--runs is a factor above 0.")
        wanted = _wanted(options["only"])
        # With DEBUG on, Django keeps every statement in memory.
        with (
            override_settings(DEBUG=False),
            _database_of_its_own(),
            scenarios.agent_of_the_benchmark(),
            dispatch.held(),
        ):
            found = {name: measure() for name, measure in _measurements(options["runs"]) if name[0] in wanted}
            about = _about()
        results = {_title(name): figures for name, figures in found.items()}
        if options["json"]:
            self.stdout.write(json.dumps({**about, "results": results}))
            return
        self.stdout.write(", ".join(f"{name} {value}" for name, value in about.items()))
        for line in _table(results):
            self.stdout.write(line)


def _wanted(only: str) -> set[str]:
    wanted = {name.strip() for name in only.split(",") if name.strip()} or set(NAMES)
    if unknown := wanted - set(NAMES):
        raise CommandError(f"--only: {', '.join(sorted(unknown))} is none of {', '.join(NAMES)}.")
    return wanted


def _measurements(factor: float) -> Iterator[tuple[tuple[str, int], Callable[[], dict[str, Any]]]]:
    def times(count: int) -> int:
        return max(round(count * factor), 1)

    yield ("A", 0), lambda: scenarios.turn_with_tool(times(scenarios.RUNS["A"]))
    yield ("B", 0), lambda: scenarios.approval_round_trip(times(scenarios.RUNS["B"]))
    for earlier in scenarios.EARLIER:
        yield ("C", earlier), lambda earlier=earlier: scenarios.turn_after(earlier, times(scenarios.RUNS["C"]))  # type: ignore[misc]
    yield ("registration", 0), lambda: scenarios.agent_registration(times(QUICK["registration"]))
    yield ("lookup", 0), lambda: scenarios.tool_lookup(times(QUICK["lookup"]))
    yield ("metrics", 0), lambda: scenarios.metrics(times(QUICK["metrics"]))
    yield ("health", 0), lambda: scenarios.health_check(times(QUICK["health"]))


def _title(name: tuple[str, int]) -> str:
    return f"{name[0]} after {name[1]}" if name[1] else name[0]


def _about() -> dict[str, str]:
    connection = connections[database.alias()]
    return {
        "database": str(connection.display_name),
        "version": ".".join(map(str, connection.get_database_version())),
        "python": platform.python_version(),
        "django": django.get_version(),
    }


def _table(results: dict[str, dict[str, Any]]) -> Iterator[str]:
    yield f"{'':14}" + "".join(f"{name:>13}" for name in COLUMNS)
    for title, figures in results.items():
        yield f"{title:14}" + "".join(f"{figures.get(name, ''):>13}" for name in COLUMNS)


@contextmanager
def _database_of_its_own() -> Iterator[None]:
    """Make a test database, on SQLite in a file: what is only in memory would say nothing of a real one."""
    connection = connections[database.alias()]
    with tempfile.TemporaryDirectory() as folder:
        test = connection.settings_dict["TEST"]
        before = test.get("NAME")
        if connection.vendor == "sqlite":
            test["NAME"] = str(Path(folder) / "bench.sqlite3")
        made = setup_databases(verbosity=0, interactive=False)
        try:
            yield
        finally:
            teardown_databases(made, verbosity=0)
            test["NAME"] = before
