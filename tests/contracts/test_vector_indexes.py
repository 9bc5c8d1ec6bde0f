"""What every vector index promises, asked of each: the same questions, the same answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.apps import apps
from django.test import override_settings

from agentcore import vectors
from agentcore.vectors import Embedding, Hit, Item, Kind, VectorIndex
from tests.redis_database import own_redis_database

pytestmark = pytest.mark.django_db

INDEXES = ("exact", "pgvector", pytest.param("worked out in the docs", marks=pytest.mark.services("redis")))
PAGE = Path(__file__).parents[2] / "docs/how-to/external-vector-stores.md"
COLLECTION = "things"


@pytest.fixture(params=INDEXES)
def index(request: pytest.FixtureRequest) -> Iterator[VectorIndex]:
    if request.param == "pgvector" and not apps.is_installed("agentcore.vectors.pgvector"):
        pytest.skip("needs a PostgreSQL that has pgvector: set AGENTCORE_TEST_PGVECTOR=1")
    if request.param == "worked out in the docs":
        yield from index_of_the_docs()
        return
    with override_settings(AGENTCORE={"VECTOR_INDEX": request.param}):
        yield vectors.index()


def index_of_the_docs() -> Iterator[VectorIndex]:
    """The class that the docs work out, as it stands there."""
    found = re.search(r"```python\n# shop/vectors.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    names: dict[str, Any] = {}
    exec(found[1], names)
    with own_redis_database() as url, override_settings(AGENTCORE={"REDIS_URL": url}):
        yield names["RedisIndex"]()


def embedding(*values: float, embedder: str = "test:4") -> Embedding:
    array = np.array(values, dtype=np.float32)
    return Embedding(embedder=embedder, values=array / (np.linalg.norm(array) or 1))


def item(id: int, *values: float, scope: str = "user:1", embedder: str = "test:4") -> Item:
    return Item(id=id, scope=scope, embedding=embedding(*values, embedder=embedder))


def ids(hits: list[Hit]) -> list[int]:
    return [hit.id for hit in hits]


EAST, NORTH, NORTH_EAST, WEST = (1, 0, 0, 0), (0, 1, 0, 0), (1, 1, 0, 0), (-1, 0, 0, 0)


@pytest.fixture
def filled(index: VectorIndex) -> VectorIndex:
    index.put(COLLECTION, [item(1, *EAST), item(2, *NORTH), item(3, *NORTH_EAST), item(4, *WEST)])
    return index


def test_the_nearest_come_first_with_their_cosine(filled: VectorIndex) -> None:
    hits = filled.search(COLLECTION, embedding(*EAST), scopes=["user:1"], k=4)
    assert ids(hits) == [1, 3, 2, 4]
    assert [hit.score for hit in hits] == pytest.approx([1, 0.7071068, 0, -1], abs=1e-6)


@pytest.mark.parametrize(("k", "expected"), [(0, []), (1, [1]), (3, [1, 3, 2]), (99, [1, 3, 2, 4])])
def test_at_most_k_are_found(filled: VectorIndex, k: int, expected: list[int]) -> None:
    assert ids(filled.search(COLLECTION, embedding(*EAST), scopes=["user:1"], k=k)) == expected


def test_among_equals_the_lower_id_comes_first(index: VectorIndex) -> None:
    index.put(COLLECTION, [item(number, *EAST) for number in (9, 3, 7, 5)])
    assert ids(index.search(COLLECTION, embedding(*EAST), scopes=["user:1"], k=3)) == [3, 5, 7]


def test_no_scope_finds_nothing(filled: VectorIndex) -> None:
    assert filled.search(COLLECTION, embedding(*EAST), scopes=[], k=5) == []


@pytest.mark.parametrize("other", ["user:2", "USER:1", "user:1 ", "", "user:11"])
def test_mem_01_another_scope_finds_nothing(filled: VectorIndex, other: str) -> None:
    assert filled.search(COLLECTION, embedding(*EAST), scopes=[other], k=5) == []


def test_several_scopes_are_searched_as_one(filled: VectorIndex) -> None:
    filled.put(COLLECTION, [item(5, *NORTH_EAST, scope="shared"), item(6, *EAST, scope="user:2")])
    hits = filled.search(COLLECTION, embedding(*EAST), scopes=["shared", "user:1", "shared"], k=3)
    assert ids(hits) == [1, 3, 5]


def test_mem_03_the_scope_is_chosen_before_the_nearest(index: VectorIndex) -> None:
    index.put(COLLECTION, [item(number, 1, number / 1e6, 0, 0) for number in range(1, 1001)])
    index.put(COLLECTION, [item(5000, *WEST, scope="user:2")])
    assert ids(index.search(COLLECTION, embedding(*EAST), scopes=["user:2"], k=5)) == [5000]


def test_another_collection_is_another_world(filled: VectorIndex) -> None:
    filled.put("others", [item(1, *WEST)])
    assert filled.search("nothing", embedding(*EAST), scopes=["user:1"], k=5) == []
    assert [round(hit.score) for hit in filled.search("others", embedding(*EAST), scopes=["user:1"], k=5)] == [-1]
    filled.remove("others", [1, 2])
    assert len(filled.search(COLLECTION, embedding(*EAST), scopes=["user:1"], k=5)) == 4


def test_putting_again_replaces_vector_and_scope(filled: VectorIndex) -> None:
    filled.put(COLLECTION, [item(1, *WEST, scope="user:2"), item(2, *NORTH), item(2, *WEST)])
    hits = filled.search(COLLECTION, embedding(*WEST), scopes=["user:1"], k=9)
    assert ids(hits) == [2, 4, 3]
    assert ids(filled.search(COLLECTION, embedding(*WEST), scopes=["user:2"], k=9)) == [1]


def test_what_was_removed_is_not_found(filled: VectorIndex) -> None:
    filled.remove(COLLECTION, [1, 3, 77])
    filled.remove(COLLECTION, [])
    assert ids(filled.search(COLLECTION, embedding(*EAST), scopes=["user:1"], k=9)) == [2, 4]


def test_the_items_are_told_in_pages(filled: VectorIndex) -> None:
    assert filled.items(COLLECTION, after=0, size=2) == [1, 2]
    assert filled.items(COLLECTION, after=2, size=9) == [3, 4]
    assert filled.items(COLLECTION, after=4, size=9) == []
    assert filled.items("other", after=0, size=9) == []


def test_mem_04_vectors_of_another_kind_are_kept_and_never_compared(filled: VectorIndex) -> None:
    filled.put(COLLECTION, [item(5, 1, 0), item(6, *EAST, embedder="other")])
    assert ids(filled.search(COLLECTION, embedding(*EAST), scopes=["user:1"], k=9)) == [1, 3, 2, 4]
    assert ids(filled.search(COLLECTION, embedding(1, 0), scopes=["user:1"], k=9)) == [5]
    assert ids(filled.search(COLLECTION, embedding(*EAST, embedder="other"), scopes=["user:1"], k=9)) == [6]
    assert sorted(filled.kinds(COLLECTION)) == [Kind("other", 4), Kind("test:4", 2), Kind("test:4", 4)]
    assert filled.missing(COLLECTION, [9, 6, 5, 1], Kind("test:4", 4)) == [9, 6, 5]


def test_a_vector_of_length_zero_is_found_last_but_harms_nothing(filled: VectorIndex) -> None:
    filled.put(COLLECTION, [item(5, 0, 0, 0, 0)])
    hits = filled.search(COLLECTION, embedding(*EAST), scopes=["user:1"], k=9)
    assert ids(hits)[:2] == [1, 3]
    assert all(np.isfinite(hit.score) for hit in hits)
    assert len(filled.search(COLLECTION, embedding(0, 0, 0, 0), scopes=["user:1"], k=2)) == 2


def test_every_index_gives_what_comparing_each_would_give(index: VectorIndex) -> None:
    random = np.random.default_rng(7)
    values = random.standard_normal((600, 4)).astype(np.float32)
    index.put(COLLECTION, [item(number, *row) for number, row in enumerate(values, start=1)])
    unit = values / np.linalg.norm(values, axis=1, keepdims=True)
    for query in random.standard_normal((20, 4)).astype(np.float32):
        sought = embedding(*query)
        expected = np.argsort(-(unit @ sought.values), kind="stable")[:10] + 1
        assert ids(index.search(COLLECTION, sought, scopes=["user:1"], k=10)) == expected.tolist()


def test_what_another_process_wrote_is_seen_at_once(filled: VectorIndex) -> None:
    another = type(getattr(filled, "within", filled))()
    assert ids(another.search(COLLECTION, embedding(*EAST), scopes=["user:1"], k=1)) == [1]
    filled.put(COLLECTION, [item(1, *WEST)])
    assert ids(another.search(COLLECTION, embedding(*EAST), scopes=["user:1"], k=1)) == [3]
    filled.put(COLLECTION, [item(9, *EAST)])
    filled.remove(COLLECTION, [4])
    assert ids(another.search(COLLECTION, embedding(*EAST), scopes=["user:1"], k=9)) == [9, 3, 2, 1]
    filled.put(COLLECTION, [item(9, *EAST, scope="user:2")])
    assert ids(another.search(COLLECTION, embedding(*EAST), scopes=["user:1"], k=9)) == [3, 2, 1]
