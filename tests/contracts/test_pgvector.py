"""What only pgvector's index has: HNSW for large scopes, and exact comparing where that finds too little."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from django.apps import apps
from django.db import connection
from django.test import override_settings

from agentcore import vectors
from agentcore.exceptions import ConfigurationError
from agentcore.vectors import Embedding, Item, Kind, VectorIndex

HAS_IT = apps.is_installed("agentcore.vectors.pgvector")
needs_it = pytest.mark.skipif(not HAS_IT, reason="needs a PostgreSQL that has pgvector: set AGENTCORE_TEST_PGVECTOR=1")
COUNT = 300


@pytest.fixture
def index(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[VectorIndex]:
    from agentcore.vectors.pgvector import index as module

    monkeypatch.setattr(module, "EXACT_UP_TO", 100)
    with override_settings(AGENTCORE={"VECTOR_INDEX": "pgvector"}):
        yield vectors.index()
    with connection.cursor() as cursor:
        for name in hnsw_indexes():
            cursor.execute(f"DROP INDEX {name}")


def hnsw_indexes() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexname FROM pg_indexes WHERE indexname LIKE 'agentcore_hnsw_%%'")
        return [name for (name,) in cursor.fetchall()]


def filled(index: VectorIndex, *, embedder: str) -> np.ndarray:
    values = np.random.default_rng(3).standard_normal((COUNT, 16)).astype(np.float32)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    rows = [Embedding(embedder=embedder, values=row) for row in values]
    index.put("things", [Item(id=number, scope="user:1", embedding=row) for number, row in enumerate(rows, start=1)])
    index.put("things", [Item(id=9000, scope="user:2", embedding=rows[0])])
    return values


@needs_it
@pytest.mark.parametrize("embedder", ["test:16", "it's 100% \\ odd"])
def test_a_large_scope_is_searched_by_hnsw(index: VectorIndex, embedder: str) -> None:
    values = filled(index, embedder=embedder)
    index.prepare(Kind(embedder, 16))
    index.prepare(Kind(embedder, 16))
    assert len(hnsw_indexes()) == 1
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
    found = 0
    for row in values[:20]:
        hits = index.search("things", Embedding(embedder=embedder, values=row), scopes=["user:1"], k=10)
        expected = set((np.argsort(-(values @ row))[:10] + 1).tolist())
        found += len(expected & {hit.id for hit in hits})
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert found >= 190


@needs_it
def test_mem_03_a_small_scope_beside_a_large_one_is_found_whole(index: VectorIndex) -> None:
    values = filled(index, embedder="test:16")
    index.prepare(Kind("test:16", 16))
    sought = Embedding(embedder="test:16", values=-values[0])
    assert [hit.id for hit in index.search("things", sought, scopes=["user:2"], k=5)] == [9000]


@pytest.mark.skipif(HAS_IT, reason="it is installed here")
def test_without_its_app_the_setting_is_refused() -> None:
    pytest.importorskip("pgvector")
    with (
        override_settings(AGENTCORE={"VECTOR_INDEX": "pgvector"}),
        pytest.raises(ConfigurationError, match=r"'agentcore.vectors.pgvector' in INSTALLED_APPS"),
    ):
        vectors.index()
