"""`agentcore_ingest`: files and folders into the knowledge base, and what it says of those that do not go in."""

import io

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from agentcore import knowledge
from agentcore.models import Chunk, Document

pytestmark = pytest.mark.django_db


@pytest.fixture
def folder(tmp_path):
    docs = tmp_path / "docs"
    (docs / "how-to").mkdir(parents=True)
    (docs / ".hidden").mkdir()
    (docs / "index.md").write_text("# Index\n\nWelcome to the lamps.")
    (docs / "how-to" / "care.txt").write_text("Dust the lamp.")
    (docs / "logo.png").write_bytes(b"\x89PNG")
    (docs / ".hidden" / "secret.md").write_text("secret")
    return docs


def ingest(*args):
    out, err = io.StringIO(), io.StringIO()
    call_command("agentcore_ingest", *map(str, args), stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def test_mem_06_a_folder_is_ingested_once_however_often(folder):
    out, err = ingest(folder)
    assert "docs/logo.png: skipped, this type of file cannot be read" in out
    assert "2 added, 0 replaced, 0 unchanged, 1 skipped, 0 failed." in out
    assert err == ""
    assert sorted(Document.objects.values_list("source", flat=True)) == ["docs/how-to/care.txt", "docs/index.md"]
    chunks = Chunk.objects.count()
    assert "0 added, 0 replaced, 2 unchanged" in ingest(folder)[0]
    (folder / "index.md").write_text("# Index\n\nNew words.")
    assert "0 added, 1 replaced, 1 unchanged" in ingest(folder, "--shared")[0]
    assert Chunk.objects.count() == chunks
    assert "secret" not in str(list(Chunk.objects.values_list("text")))


def test_the_documents_of_an_agent_are_its_own(folder):
    ingest(folder / "index.md", "--agent", "testing-agent")
    assert [found.source for found in knowledge.retrieve("testing-agent", "lamps", 3)] == ["index.md"]
    assert knowledge.retrieve("other-agent", "lamps", 3) == []


def test_a_bad_file_is_named_and_the_others_go_in(folder):
    (folder / "bad.md").write_bytes(b"\xff\xff")
    (folder / "empty.txt").write_bytes(b"")
    out, err = io.StringIO(), io.StringIO()
    with pytest.raises(CommandError, match=r"2 added, 0 replaced, 0 unchanged, 1 skipped, 2 failed."):
        call_command("agentcore_ingest", str(folder), stdout=out, stderr=err)
    assert "docs/bad.md: failed, docs/bad.md is no text in UTF-8 (at byte 0)." in err.getvalue()
    assert "docs/empty.txt: failed, docs/empty.txt holds no text." in err.getvalue()
    assert Document.objects.count() == 2


def test_a_file_that_is_asked_for_by_name_must_be_readable(folder):
    with pytest.raises(CommandError, match="1 failed"):
        ingest(folder / "logo.png")
    with override_settings(AGENTCORE={"MAX_DOCUMENT_BYTES": 5}), pytest.raises(CommandError, match="1 failed"):
        ingest(folder / "index.md")


def test_what_is_not_there_is_said(folder):
    with pytest.raises(CommandError, match=r"There is no file or folder .*nowhere"):
        ingest(folder, folder / "nowhere")
    with pytest.raises(CommandError, match=r"There is no agent 'nobody'. Allowed: .*testing-agent"):
        ingest(folder, "--agent", "nobody")
    with pytest.raises(CommandError, match="not allowed with"):
        ingest(folder, "--agent", "testing-agent", "--shared")
    assert not Document.objects.exists()


def test_an_embedder_that_cannot_be_made_ends_the_command(folder):
    with (
        override_settings(AGENTCORE={"EMBEDDER": "magic"}),
        pytest.raises(CommandError, match="must be one of 'hashing'"),
    ):
        ingest(folder)
