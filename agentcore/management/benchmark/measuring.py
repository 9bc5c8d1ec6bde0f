"""Measure something done many times: how long it takes, what it costs, and what it writes."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.apps import apps
from django.core.serializers.json import DjangoJSONEncoder
from django.db import connections
from django.db.models import Max
from django.test.utils import CaptureQueriesContext

from agentcore import database

# What opens and closes a transaction is no statement of ours.
BRACKETS = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE")


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Times of `count` runs: `median` and `p95` in milliseconds, `per_second` over all, `cpu` in ms per run."""

    count: int
    per_second: float
    median: float
    p95: float
    cpu: float

    def as_dict(self) -> dict[str, float]:
        return {
            "runs": self.count,
            "per_second": round(self.per_second, 2),
            "p50_ms": round(self.median, 3),
            "p95_ms": round(self.p95, 3),
            "cpu_ms": round(self.cpu, 3),
        }


@dataclass(kw_only=True)
class Written:
    """What one run wrote: rows of each model, and the kilobytes their values have as text."""

    rows: dict[str, int] = field(default_factory=dict)
    kilobytes: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return {"rows": sum(self.rows.values()), "rows_by_model": self.rows, "row_kb": round(self.kilobytes, 2)}


def timed(work: Callable[[], object], *, count: int, warm_up: int = 0) -> Timing:
    """Do something `count` times, one after another, after some times that are not counted."""
    for _ in range(warm_up):
        work()
    gc.collect()
    times: list[float] = []
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    wall, spent = time.perf_counter() - began, time.process_time() - cpu
    times.sort()
    return Timing(
        count=count,
        per_second=count / wall,
        median=times[len(times) // 2] * 1e3,
        p95=times[min(count - 1, round(count * 0.95))] * 1e3,
        cpu=spent / count * 1e3,
    )


@contextmanager
def counting_statements() -> Iterator[dict[str, int]]:
    """Count what the block sends to the database: `{"statements", "transactions"}`."""
    found: dict[str, int] = {}
    with CaptureQueriesContext(connections[database.alias()]) as captured:
        yield found
    sent = [str(query["sql"]).lstrip().upper() for query in captured.captured_queries]
    found["transactions"] = sum(sql.startswith("BEGIN") for sql in sent)
    found["statements"] = sum(not sql.startswith(BRACKETS) for sql in sent)


@contextmanager
def weighing_rows() -> Iterator[Written]:
    """Weigh the rows of agentcore that the block inserts."""
    models = list(apps.get_app_config("agentcore").get_models())
    before = {model: model._default_manager.aggregate(last=Max("pk"))["last"] or 0 for model in models}
    written = Written()
    yield written
    encode = DjangoJSONEncoder(ensure_ascii=False, default=str).encode
    for model, last in before.items():
        rows = list(model._default_manager.filter(pk__gt=last).values_list())
        if rows:
            written.rows[model.__name__] = len(rows)
            written.kilobytes += sum(len(encode(row).encode()) for row in rows) / 1024
