"""What the index `exact` keeps in memory: bounded, and never older than the database."""

import numpy as np
import pytest
from django.db import transaction
from django.test.utils import CaptureQueriesContext

from agentcore.models import Vector
from agentcore.vectors import Embedding, Item, exact
from agentcore.vectors.exact import ExactIndex

pytestmark = pytest.mark.django_db


def made(*values):
    array = np.array(values, dtype=np.float32)
    return Embedding(embedder="test", values=array / np.linalg.norm(array))


def put(index, *numbers, scope="a"):
    index.put("things", [Item(id=number, scope=scope, embedding=made(1, number)) for number in numbers])


def found(index, *scopes, k=9):
    return sorted(hit.id for hit in index.search("things", made(1, 1), scopes=scopes or ("a",), k=k))


def queries(index):
    from django.db import connection

    with CaptureQueriesContext(connection) as seen:
        found(index)
    return len(seen)


def test_a_scope_is_read_once_until_it_changes():
    index = ExactIndex()
    put(index, 1, 2)
    assert (queries(index), queries(index)) == (2, 1)
    put(index, 3)
    assert (queries(index), queries(index)) == (2, 1)
    assert found(index) == [1, 2, 3]


def test_pages_make_one_whole(monkeypatch):
    monkeypatch.setattr(exact, "PAGE", 3)
    index = ExactIndex()
    put(index, *range(1, 9))
    for _ in range(2):
        assert found(index) == list(range(1, 9))
        assert [hit.id for hit in index.search("things", made(1, 1), scopes=["a"], k=2)] == [1, 2]


def test_a_scope_that_is_too_large_is_read_each_time(monkeypatch):
    monkeypatch.setattr(exact, "PAGE", 3)
    monkeypatch.setattr(exact, "KEPT_BYTES", 100)
    index = ExactIndex()
    put(index, *range(1, 9))
    assert found(index) == list(range(1, 9))
    assert queries(index) == queries(index) == 1 + 3
    assert index._shelf._bytes == 0


def test_what_was_not_searched_for_longest_makes_room(monkeypatch):
    monkeypatch.setattr(exact, "KEPT_BYTES", 40)
    index = ExactIndex()
    for scope in "abc":
        put(index, ord(scope), ord(scope) + 10, scope=scope)
        assert found(index, scope) == [ord(scope), ord(scope) + 10]
    assert len(index._shelf._kept) == 2
    assert index._shelf._bytes == 32


def test_what_was_rolled_back_is_not_kept():
    index = ExactIndex()
    put(index, 1)
    with transaction.atomic():
        put(index, 2)
        assert found(index) == [1, 2]
        transaction.set_rollback(True)
    assert found(index) == [1]
    Vector.objects.all().delete()
    assert found(index) == []
