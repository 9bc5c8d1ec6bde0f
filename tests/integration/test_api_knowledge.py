"""The knowledge base over the API: for who has the permissions, and for nobody else."""

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import override_settings

from agentcore import knowledge
from agentcore.knowledge import Content
from agentcore.models import Document
from agentcore.testing import make_user
from tests.integration.api import client_of, queries_of
from tests.unit.test_reading_documents import make_pdf

pytestmark = pytest.mark.django_db

URL = "/api/knowledge/"
ALL = tuple(f"agentcore.{action}_document" for action in ("view", "add", "change", "delete"))


@pytest.fixture
def editor():
    return client_of(make_user("editor", permissions=ALL))


def put(number=1, **fields):
    content = Content(text=f"Text number {number}.", media_type="text/plain")
    return knowledge.ingest(content, source=f"{number}.txt", **fields).document


def upload(client, data=b"# Lamp\n\nA lamp shines.", name="lamp.md", **fields):
    return client.post(URL, {"file": SimpleUploadedFile(name, data), **fields}, format="multipart")


def test_a_text_is_added_replaced_and_deleted(editor):
    body = {"text": "# Lamp\n\nIt shines.", "source": "lamp", "metadata": {"year": 2026}}
    added = editor.post(URL, body)
    assert added.status_code == 201
    document = added.json()
    assert {name: document[name] for name in ("title", "source", "agent", "media_type", "version", "chunks")} == {
        "title": "Lamp",
        "source": "lamp",
        "agent": "",
        "media_type": "text/markdown",
        "version": 1,
        "chunks": 1,
    }
    assert (document["added_by"], document["metadata"]) == ("editor", {"year": 2026})
    assert editor.post(URL, body).status_code == 200
    again = editor.post(URL, {**body, "text": "# Lamp\n\nIt shines.\n\n# Care\n\nDust it."})
    assert (again.status_code, again.json()["id"]) == (200, document["id"])
    assert (again.json()["version"], again.json()["chunks"]) == (2, 2)
    assert editor.get(f"{URL}{document['id']}/").json() == again.json()
    assert editor.delete(f"{URL}{document['id']}/").status_code == 204
    assert editor.get(f"{URL}{document['id']}/").status_code == 404
    assert knowledge.retrieve("any", "lamp shines", 5) == []


@pytest.mark.parametrize(
    ("name", "data", "chunks"),
    [("lamp.md", b"# Lamp\n\nA lamp shines.", 1), ("lamp.pdf", make_pdf("A lamp shines."), 1)],
)
def test_a_file_is_added(editor, name, data, chunks):
    answer = upload(editor, data, name, agent="testing-agent")
    assert answer.status_code == 201
    assert (answer.json()["source"], answer.json()["agent"], answer.json()["chunks"]) == (name, "testing-agent", chunks)
    assert [found.source for found in knowledge.retrieve("testing-agent", "lamp", 5)] == [name]
    assert knowledge.retrieve("other-agent", "lamp", 5) == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "text"),
        ({"text": "x"}, "source"),
        ({"text": "", "source": "a"}, "text"),
        ({"text": " \n", "source": "a"}, "text"),
        ({"text": "x", "source": "a", "agent": "nobody"}, "agent"),
        ({"text": "x", "source": "a", "media_type": "application/pdf"}, "media_type"),
        ({"text": "x", "source": "a", "metadata": [1]}, "metadata"),
        ({"text": "x", "source": "a", "user": 1}, "user"),
        ({"text": "x", "source": "a\x00"}, "source"),
    ],
)
def test_a_bad_body_names_its_field(editor, body, field):
    answer = editor.post(URL, body)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")
    assert [error["field"] for error in answer.json()["details"]["errors"]][:1] == [field]
    assert not Document.objects.exists()


def test_a_bad_file_is_refused(editor):
    assert upload(editor, b"MZ", "a.exe").json()["message"].startswith("a.exe: this type of file cannot be read")
    assert upload(editor, b"%PDF-1.4 broken", "a.pdf").status_code == 400
    assert upload(editor, b"").status_code == 400
    with override_settings(AGENTCORE={"MAX_DOCUMENT_BYTES": 10}):
        assert (upload(editor, b"x" * 11).status_code, upload(editor, b"x" * 11).json()["code"]) == (413, "too_large")
    assert not Document.objects.exists()


def test_who_may_not_change_documents_replaces_none(editor):
    body = {"text": "One.", "source": "lamp.md"}
    adder = client_of(make_user(permissions=("agentcore.view_document", "agentcore.add_document")))
    added = adder.post(URL, body)
    assert added.status_code == 201
    for refused in (adder.post(URL, {**body, "text": "Two."}), upload(adder), adder.post(URL, {**body, "title": "A"})):
        assert (refused.status_code, refused.json()["code"]) == (403, "permission_denied")
        assert refused.json()["details"]["permission"] == "agentcore.change_document"
    assert adder.post(URL, body).status_code == 200
    document = Document.objects.get()
    assert (document.version, document.text, document.pk) == (1, "One.", added.json()["id"])
    assert editor.post(URL, {**body, "text": "Two."}).json()["version"] == 2


def test_what_is_not_allowed_is_absent():
    document = put()
    stranger, reader = client_of(make_user()), client_of(make_user(permissions=ALL[:1]))
    body = {"text": "x", "source": "x"}
    answers = [
        stranger.get(URL),
        stranger.post(URL, body),
        upload(stranger),
        stranger.get(f"{URL}{document.pk}/"),
        stranger.delete(f"{URL}{document.pk}/"),
        stranger.get(f"{URL}999/"),
    ]
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.content for answer in answers}) == 1
    assert reader.get(URL).json()["results"][0]["id"] == document.pk
    assert {reader.post(URL, body).status_code, reader.delete(f"{URL}{document.pk}/").status_code} == {403}
    assert {reader.get(f"{URL}{number}/").status_code for number in ("999", "x", "-1", "1" * 40, "9" * 19)} == {404}
    assert Document.objects.count() == 1


def test_the_list_is_filtered_and_takes_few_queries(editor):
    put(1), put(2, agent="testing-agent")
    assert [item["source"] for item in editor.get(f"{URL}?agent=testing-agent").json()["results"]] == ["2.txt"]
    assert [item["source"] for item in editor.get(f"{URL}?shared=true").json()["results"]] == ["1.txt"]
    few = queries_of(lambda: editor.get(URL), rows=2)
    for number in range(3, 12):
        put(number)
    assert queries_of(lambda: editor.get(URL), rows=11) == few
    assert b"Text number" not in editor.get(URL).content


def test_a_turn_shows_its_citations(editor):
    from agentcore import runtime
    from agentcore.testing import ScriptedProvider, text

    user = make_user()
    put()
    with ScriptedProvider([text("Yes.")]).installed():
        result = runtime.execute("testing-agent", "Which text number?", user=user, enable_rag=True)
    (citation,) = client_of(user).get(f"/api/turns/{result.execution_id}/").json()["citations"]
    assert {name: citation[name] for name in ("title", "source", "heading", "position")} == {
        "title": "1.txt",
        "source": "1.txt",
        "heading": "",
        "position": 1,
    }
    assert 0 < citation["score"] <= 1
