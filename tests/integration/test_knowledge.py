"""The knowledge base: documents in and out, and what is found for whom."""

import io
import logging
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import override_settings

from agentcore import checks, knowledge, vectors
from agentcore.exceptions import EmbedderFailed, InvalidInput, PermissionDenied
from agentcore.knowledge import Content, documents, passages
from agentcore.models import Chunk, Document, Vector
from agentcore.testing import make_user
from agentcore.vectors import Embedder

REFUNDS = "# Refunds\n\nA refund is paid within five working days.\n\n# Lamps\n\nA lamp uses six watts."


class OfDimension(Embedder):
    """An embedder whose dimension a test chooses."""

    def __init__(self):
        self.id = f"test:{self.dimension}"

    def compute(self, texts):
        return [[float(len(text) % 7 + 1), *[1.0] * (self.dimension - 1)] for text in texts]


class Eight(OfDimension):
    dimension = 8


class Four(OfDimension):
    dimension = 4


class Broken(Embedder):
    id = "broken"

    def compute(self, texts):
        raise OSError("the network is down")


def put(text=REFUNDS, *, source="manual.md", **fields):
    return knowledge.ingest(Content(text=text, media_type="text/markdown"), source=source, **fields)


def titles(agent, query="refund", k=5):
    return [passage.title for passage in knowledge.retrieve(agent, query, k)]


@pytest.mark.django_db
def test_a_document_is_found_by_what_it_says():
    user = make_user("editor")
    document = put(title="Manual", metadata={"year": 2026}, by=user).document
    (first, *_) = knowledge.retrieve("any-agent", "how many days until a refund is paid", 5)
    assert (first.document, first.title, first.source) == (document.pk, "Manual", "manual.md")
    assert (first.heading, first.position) == ("Refunds", 1)
    assert first.text == "A refund is paid within five working days."
    assert 0 < first.score <= 1
    assert (document.user_name, document.metadata, document.version) == ("editor", {"year": 2026}, 1)


@pytest.mark.django_db
def test_mem_06_ingested_again_a_document_is_not_doubled():
    assert put().outcome == "added"
    before = list(Chunk.objects.values_list("pk", flat=True))
    assert put().outcome == "unchanged"
    assert list(Chunk.objects.values_list("pk", flat=True)) == before
    again = put("# Refunds\n\nA refund is paid within ten days.")
    assert (again.outcome, again.document.version) == ("replaced", 2)
    assert [chunk.text for chunk in Chunk.objects.all()] == ["A refund is paid within ten days."]
    assert Document.objects.count() == 1
    assert set(Vector.objects.values_list("item", flat=True)) == set(Chunk.objects.values_list("pk", flat=True))


@pytest.mark.django_db(transaction=True)
def test_mem_06_ten_at_once_make_one_document():
    def job(number):
        try:
            return put("# A\n\nThe same text from ten jobs.").outcome
        finally:
            connection.close()

    with ThreadPoolExecutor(10) as pool:
        outcomes = sorted(pool.map(job, range(10)))
    assert outcomes == ["added", *["unchanged"] * 9]
    assert (Document.objects.count(), Chunk.objects.count(), Vector.objects.count()) == (1, 1, 1)


@pytest.mark.django_db
def test_another_place_is_another_document():
    put(), put(source="MANUAL.md"), put(agent="support-agent")
    assert Document.objects.count() == 3


@pytest.mark.django_db
@pytest.mark.parametrize("index", ["exact", f"{__name__}.Careless"])
def test_mem_01_an_agents_documents_are_found_by_no_other(index):
    with override_settings(AGENTCORE={"VECTOR_INDEX": index}):
        put("The PIN of the safe is 4711.", source="secret.md", title="secret", agent="bank-agent")
        put("The PIN pad is on the left.", source="shared.md", title="shared")
        assert titles("bank-agent", "PIN") == ["secret", "shared"] or titles("bank-agent", "PIN") == [
            "shared",
            "secret",
        ]
        assert titles("other-agent", "PIN") == ["shared"]
        assert titles("", "PIN") == ["shared"]
        assert titles("bank-agent ", "PIN") == ["shared"]
        assert titles("BANK-AGENT", "PIN") == ["shared"]


class Careless(vectors.VectorIndex):
    """An index that forgets to look at scopes: the rows are filtered once more."""

    is_in_database = True
    ids: list[int] = []

    def put(self, collection, items):
        self.ids.extend(item.id for item in items)

    def remove(self, collection, ids): ...

    def search(self, collection, embedding, *, scopes, k):
        return [vectors.Hit(id=number, score=0.5) for number in self.ids]

    def missing(self, collection, ids, kind):
        return []

    def kinds(self, collection):
        return []


@pytest.mark.django_db
def test_mem_03_many_documents_of_another_agent_hide_nothing():
    body = "\n\n".join(f"# Part {number}\n\nThe refund of case {number} is paid." for number in range(200))
    put(body, agent="busy-agent", title="busy")
    put("# R\n\nMy refund.", agent="small-agent", title="small")
    assert titles("small-agent", "refund") == ["small"]


@pytest.mark.django_db
def test_a_deleted_document_leaves_nothing():
    kept = put(source="kept.md", title="kept").document
    knowledge.delete(put(source="gone.md").document)
    assert set(titles("any")) == {"kept"}
    assert Vector.objects.count() == kept.chunks.count()


@pytest.mark.django_db
def test_when_embedding_fails_nothing_is_stored_and_what_was_there_stays():
    put()
    with (
        override_settings(AGENTCORE={"EMBEDDER": f"{__name__}.Broken"}),
        pytest.raises(EmbedderFailed, match="OSError"),
    ):
        put("Other text.")
    assert Document.objects.get().version == 1
    assert Chunk.objects.count() == 2


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"source": " "}, "source is empty"),
        ({"source": "x" * 1001}, "source must be text of at most 1000"),
        ({"source": "a\0b"}, "source must be text"),
        ({"agent": "x" * 65}, "agent must be text of at most 64"),
        ({"metadata": {"a": float("nan")}}, "metadata must be a JSON object"),
        ({"text": "# only\n\n# headings"}, "nothing but headings"),
    ],
)
def test_what_cannot_be_stored_is_refused(fields, said):
    with pytest.raises(InvalidInput, match=said):
        put(**fields)
    assert not Document.objects.exists()


@pytest.fixture
def fresh_warnings(monkeypatch):
    monkeypatch.setattr(passages, "_told", set())


@pytest.mark.django_db
def test_mem_04_another_embedder_excludes_and_warns_and_re_embedding_repairs(caplog, fresh_warnings):
    with override_settings(AGENTCORE={"EMBEDDER": f"{__name__}.Eight"}):
        for number in range(3):
            put(f"Text number {number}.", source=f"{number}.md")
        assert len(titles("any")) == 3
    with override_settings(AGENTCORE={"EMBEDDER": f"{__name__}.Four"}), caplog.at_level(logging.WARNING):
        assert titles("any") == []
        assert titles("any") == []
        assert [record.message for record in caplog.records] == [
            "Vectors of another embedder are left out; run agentcore_reembed"
        ]
        put("Text number 3.", source="3.md")
        assert len(titles("any")) == 1
        assert sorted(Vector.objects.values_list("dimension", flat=True)) == [4, 8, 8, 8]

        (warning,) = checks.check_vectors(databases=["default"])
        assert (warning.id, "holds vectors of test:8; EMBEDDER is test:4" in warning.msg) == ("agentcore.W013", True)
        assert checks.check_vectors() == []

        out = io.StringIO()
        call_command("agentcore_reembed", stdout=out)
        assert checks.check_vectors(databases=["default"]) == []
        assert "knowledge: 4 texts, 3 embedded by test:4 (4 numbers)." in out.getvalue()
        assert len(titles("any")) == 4
        assert list(Vector.objects.values_list("dimension", flat=True)) == [4] * 4

        out = io.StringIO()
        call_command("agentcore_reembed", "knowledge", stdout=out)
        assert "4 texts, 0 embedded" in out.getvalue()


@pytest.mark.django_db
def test_mem_04_re_embedding_that_breaks_off_goes_on_where_it_was(monkeypatch):
    from agentcore.vectors import reembedding

    monkeypatch.setattr(reembedding, "PAGE", 2)
    with override_settings(AGENTCORE={"EMBEDDER": f"{__name__}.Eight"}):
        for number in range(5):
            put(f"Text number {number}.", source=f"{number}.md")
    with override_settings(AGENTCORE={"EMBEDDER": f"{__name__}.Four"}):
        real, calls = Four.compute, []

        def twice(self, texts):
            calls.append(len(texts))
            if len(calls) > 2:
                raise OSError("gone")
            return real(self, texts)

        monkeypatch.setattr(Four, "compute", twice)
        with pytest.raises(CommandError, match="stays; run the command again"):
            call_command("agentcore_reembed")
        assert sorted(Vector.objects.values_list("dimension", flat=True)) == [4, 4, 8, 8, 8]
        monkeypatch.setattr(Four, "compute", real)
        out = io.StringIO()
        call_command("agentcore_reembed", stdout=out)
        assert "5 texts, 3 embedded" in out.getvalue()


@pytest.mark.django_db
def test_re_embedding_names_what_there_is():
    with pytest.raises(CommandError, match=r"no collection nothing. Allowed: .*knowledge"):
        call_command("agentcore_reembed", "nothing")


@pytest.mark.django_db
def test_a_document_that_came_meanwhile_is_not_replaced_without_leave(monkeypatch):
    embedded = documents._embeddings

    def meanwhile(pieces):
        monkeypatch.setattr(documents, "_embeddings", embedded)
        knowledge.ingest(Content(text="One.", media_type="text/plain"), source="lamp.txt")
        return embedded(pieces)

    monkeypatch.setattr(documents, "_embeddings", meanwhile)
    with pytest.raises(PermissionDenied, match="you may not replace documents"):
        knowledge.ingest(Content(text="Two.", media_type="text/plain"), source="lamp.txt", may_replace=False)
    document = Document.objects.get()
    assert (document.text, document.version, [chunk.text for chunk in document.chunks.all()]) == ("One.", 1, ["One."])
