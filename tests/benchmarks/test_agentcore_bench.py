"""The benchmark command, from a shell, in the demonstration project."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]


def bench(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "project.settings", "AGENTCORE_DEMO_DIR": str(folder)}
    command = [sys.executable, "manage.py", "agentcore_bench", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, env=env, capture_output=True, text=True, check=False)


def test_every_measurement_is_made_and_told_as_json(tmp_path: Path) -> None:
    done = bench("--json", "--runs", "0.01", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    results = told["results"]
    assert list(results) == [
        "A",
        "B",
        "C after 10",
        "C after 100",
        "C after 1000",
        "registration",
        "lookup",
        "metrics",
        "health",
    ]
    assert all(figures["p50_ms"] > 0 and figures["runs"] >= 1 for figures in results.values())
    assert told["database"] == "SQLite"
    # What is written grows with the turn, never with the session.
    assert results["A"]["rows_by_model"]["SessionEvent"] == 15
    assert len({results[f"C after {earlier}"]["rows"] for earlier in (10, 100, 1000)}) == 1
    sizes = [results[f"C after {earlier}"]["row_kb"] for earlier in (10, 100, 1000)]
    assert max(sizes) - min(sizes) < 0.5
    # Nothing of it stays.
    assert [path for path in tmp_path.rglob("*") if "bench" in path.name] == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--only", "A,D"), "D is none of A, B, C"),
        *((("--runs", runs), "a factor above 0") for runs in ("0", "nan", "inf")),
    ],
)
def test_what_is_wrong_with_an_option_is_said(arguments: tuple[str, ...], told: str, tmp_path: Path) -> None:
    done = bench(*arguments, folder=tmp_path)
    assert done.returncode == 1
    assert told in done.stderr
