"""How long a search takes in a large scope: 100,000 vectors of one scope, 1,000,000 in all.

`pytest -m slow -s tests/benchmarks/test_vector_search.py`; with AGENTCORE_TEST_PGVECTOR=1 pgvector too. The sizes are
AGENTCORE_BENCH_VECTORS (in all) and a tenth of it (each scope).
"""

from __future__ import annotations

import os
import statistics
import time

import numpy as np
import pytest
from django.apps import apps
from django.db import connection
from django.test import override_settings

from agentcore import vectors
from agentcore.vectors import Embedding, Item, Kind

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600), pytest.mark.django_db(transaction=True)]

COUNT = int(os.environ.get("AGENTCORE_BENCH_VECTORS", "1000000"))
SCOPES = 10
DIMENSION = 256
BATCH = 5_000
SEARCHES = 100
KIND = Kind("bench", DIMENSION)


@pytest.mark.parametrize("name", ["exact", "pgvector"])
def test_a_search_in_a_large_scope(name: str) -> None:
    if name == "pgvector" and not apps.is_installed("agentcore.vectors.pgvector"):
        pytest.skip("needs a PostgreSQL that has pgvector: set AGENTCORE_TEST_PGVECTOR=1")
    with override_settings(AGENTCORE={"VECTOR_INDEX": name}):
        index = vectors.index()
        # Around a few hundred topics, as texts are; independent directions would be all equally far.
        random = np.random.default_rng(11)
        topics = random.standard_normal((300, DIMENSION)).astype(np.float32)
        began_at = time.perf_counter()
        for start in range(0, COUNT, BATCH):
            values = embeddings(random, topics, BATCH)
            items = [
                Item(id=start + number, scope=f"user:{(start + number) % SCOPES}", embedding=made)
                for number, made in enumerate(values, start=1)
            ]
            index.put("bench", items)
        stored = time.perf_counter() - began_at
        began_at = time.perf_counter()
        index.prepare(KIND)
        prepared = time.perf_counter() - began_at
        queries = embeddings(random, topics, SEARCHES)
        index.search("bench", queries[0], scopes=["user:1"], k=5)
        took = []
        for query in queries:
            began_at = time.perf_counter()
            hits = index.search("bench", query, scopes=["user:1"], k=5)
            took.append((time.perf_counter() - began_at) * 1000)
            assert len(hits) == 5
            assert {hit.id % SCOPES for hit in hits} == {1}
        p50, p99 = statistics.median(took), sorted(took)[int(len(took) * 0.99) - 1]
        print(
            f"\n{name} on {connection.vendor}: {COUNT} vectors of {DIMENSION}, {COUNT // SCOPES} in the scope: "
            f"p50 {p50:.1f} ms, p99 {p99:.1f} ms (stored in {stored:.0f} s, prepared in {prepared:.0f} s)"
        )


def embeddings(random: np.random.Generator, topics: np.ndarray, count: int) -> list[Embedding]:
    chosen = topics[random.integers(0, len(topics), count)]
    values = chosen + random.standard_normal((count, DIMENSION)).astype(np.float32)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    return [Embedding(embedder=KIND.embedder, values=row) for row in values]
