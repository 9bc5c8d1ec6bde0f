"""Documents in the admin: added by a form, read, deleted; never edited."""

import pytest
from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client, override_settings

from agentcore import knowledge
from agentcore.knowledge import Content
from agentcore.models import Chunk, Document, Vector
from agentcore.testing import make_user

pytestmark = pytest.mark.django_db

LIST = "/admin/agentcore/document/"
ADD = f"{LIST}add/"
ALL = tuple(f"agentcore.{action}_document" for action in ("view", "add", "change", "delete"))


def staff(*permissions):
    client = Client()
    client.force_login(make_user(is_staff=True, permissions=permissions))
    return client


@pytest.fixture
def editor():
    return staff(*ALL)


def put(text="# Lamp\n\nIt <b>shines</b>.", **fields):
    return knowledge.ingest(Content(text=text, media_type="text/markdown"), source="lamp.md", **fields).document


def test_an_upload_is_read_split_and_found(editor):
    file = SimpleUploadedFile("lamp.md", b"# Lamp\n\nA lamp shines.")
    answer = editor.post(ADD, {"file": file, "agent": "testing-agent"}, follow=True)
    assert answer.redirect_chain == [(LIST, 302)]
    document = Document.objects.get()
    assert (document.title, document.source, document.agent, document.user_name) == (
        "Lamp",
        "lamp.md",
        "testing-agent",
        answer.wsgi_request.user.get_username(),
    )
    assert [found.text for found in knowledge.retrieve("testing-agent", "lamp", 3)] == ["A lamp shines."]


def test_a_text_is_added_and_the_same_source_replaces_it(editor):
    for text in ("# Lamp\n\nOne.", "# Lamp\n\nTwo."):
        assert editor.post(ADD, {"text": text, "source": "lamp"}).status_code == 302
    assert [chunk.text for chunk in Chunk.objects.all()] == ["Two."]
    assert Document.objects.get().version == 2


def test_the_page_and_the_history_say_what_became_of_a_document(editor):
    said = []
    for text in ("One.", "Two.", "Two."):
        given = {"text": f"# <b>Lamp</b>\n\n{text}", "source": "lamp", "title": "<b>Lamp</b>"}
        [message] = editor.post(ADD, given, follow=True).context["messages"]
        said.append(str(message))
    assert "was added successfully" in said[0]
    assert said[1:] == [
        "&lt;b&gt;Lamp&lt;/b&gt; was there from this source: it has the new text now, and a new version.",
        "&lt;b&gt;Lamp&lt;/b&gt; is there already, just so: nothing was changed.",
    ]
    assert list(LogEntry.objects.order_by("pk").values_list("action_flag", flat=True)) == [ADDITION, CHANGE]
    again = editor.post(ADD, {"text": "# Lamp\n\nThree.", "source": "lamp", "_addanother": "1"})
    assert again["location"] == ADD


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "Give a file or a text, and not both."),
        ({"text": "x"}, "A text needs a source."),
        ({"text": "x", "source": "x", "agent": "nobody"}, "nobody is not one of the available choices"),
        ({"file": ("a.exe", b"MZ")}, "a.exe: this type of file cannot be read"),
        ({"file": ("a.md", b"x" * 200)}, "The file is over 100 bytes."),
        ({"file": ("a.md", b"x"), "text": "x"}, "Give a file or a text, and not both."),
    ],
)
def test_what_is_wrong_is_said_on_the_form(editor, given, said):
    data = {name: SimpleUploadedFile(*value) if name == "file" else value for name, value in given.items()}
    with override_settings(AGENTCORE={"MAX_DOCUMENT_BYTES": 100}):
        answer = editor.post(ADD, data)
    assert answer.status_code == 200
    assert said in answer.content.decode()
    assert not Document.objects.exists()


def test_a_failing_embedder_is_said_on_the_form_and_stores_nothing(editor):
    with override_settings(AGENTCORE={"EMBEDDER": "tests.integration.test_knowledge.Broken"}):
        answer = editor.post(ADD, {"text": "typed by hand", "source": "x"})
    assert answer.status_code == 200
    assert "failed with OSError" in answer.content.decode()
    assert "typed by hand" in answer.content.decode()
    assert not Document.objects.exists()


def test_nothing_but_headings_is_said_on_the_form_with_what_was_typed(editor):
    answer = editor.post(ADD, {"text": "# Typed\n\n## By hand", "source": "lamp", "title": "My lamp"})
    assert answer.status_code == 200
    page = answer.content.decode()
    assert "lamp holds nothing but headings." in page
    assert "# Typed\n\n## By hand</textarea>" in page
    assert 'value="My lamp"' in page
    assert not Document.objects.exists()


def test_who_may_not_change_documents_replaces_none():
    document = put("# Lamp\n\nOne.")
    adder = staff("agentcore.view_document", "agentcore.add_document")
    answer = adder.post(ADD, {"text": "# Lamp\n\nTwo.", "source": "lamp.md"})
    assert answer.status_code == 200
    assert "you may not replace documents" in answer.content.decode()
    assert "# Lamp\n\nTwo.</textarea>" in answer.content.decode()
    assert adder.post(ADD, {"text": "# Lamp\n\nTwo.", "source": "other.md"}).status_code == 302
    document.refresh_from_db()
    assert (document.version, document.text, Document.objects.count()) == (1, "# Lamp\n\nOne.", 2)
    assert [chunk.text for chunk in document.chunks.all()] == ["One."]


def test_a_document_is_shown_with_its_pieces_and_not_edited(editor):
    document = put(metadata={"year": 2026})
    page = editor.get(f"{LIST}{document.pk}/change/").content.decode()
    assert "It &lt;b&gt;shines&lt;/b&gt;." in page
    assert "<b>shines</b>" not in page
    assert 'name="_save"' not in page
    assert editor.post(f"{LIST}{document.pk}/change/", {"title": "other"}).status_code == 403
    assert "lamp.md" in editor.get(LIST).content.decode()
    assert Document.objects.get().title == "lamp.md"


def test_deleting_removes_pieces_and_vectors(editor):
    document = put()
    assert editor.post(f"{LIST}{document.pk}/delete/", {"post": "yes"}).status_code == 302
    assert (Document.objects.count(), Chunk.objects.count(), Vector.objects.count()) == (0, 0, 0)
    document = put()
    chosen = {"action": "delete_selected", "_selected_action": [document.pk], "post": "yes"}
    assert editor.post(LIST, chosen).status_code == 302
    assert (Document.objects.count(), Chunk.objects.count(), Vector.objects.count()) == (0, 0, 0)


def test_each_needs_its_permission():
    document = put()
    reader, stranger = staff(ALL[0]), staff()
    assert reader.get(f"{LIST}{document.pk}/change/").status_code == 200
    assert reader.get(ADD).status_code == 403
    assert reader.post(ADD, {"text": "x", "source": "x"}).status_code == 403
    assert reader.post(f"{LIST}{document.pk}/delete/", {"post": "yes"}).status_code == 403
    assert stranger.get(LIST).status_code == 403
    assert stranger.get(f"{LIST}{document.pk}/change/").status_code == 403
    assert Document.objects.count() == 1
