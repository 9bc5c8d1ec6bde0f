"""`agentcore_ingest`: files and folders into the knowledge base, and what it says of those that do not go in."""

import io
import os

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from agentcore import knowledge
from agentcore.knowledge import reading
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


@pytest.mark.parametrize("named", [("a/docs", "b/docs"), ("a/docs/x.md", "b/docs/x.md")])
def test_two_files_of_one_source_are_refused_before_any_is_stored(tmp_path, named):
    for name in ("a", "b"):
        docs = tmp_path / name / "docs"
        docs.mkdir(parents=True)
        (docs / "x.md").write_text(f"Words of {name}.")
        (docs / f"{name}.md").write_text(f"More of {name}.")
    with pytest.raises(CommandError) as refused:
        ingest(*(tmp_path / name for name in named))
    told = str(refused.value)
    assert f"{tmp_path}/a/docs/x.md and {tmp_path}/b/docs/x.md would both be the document " in told
    assert "x.md', and one would replace the other; nothing was stored." in told
    assert f"Name the folder that holds both, {tmp_path}, or rename one of them." in told
    assert not Document.objects.exists()


def test_one_file_may_be_named_twice(folder):
    file = folder / "index.md"
    assert "1 added, 0 replaced, 1 unchanged" in ingest(file, file)[0]
    assert "2 added, 0 replaced, 3 unchanged" in ingest(folder, folder, file)[0]


def test_what_a_link_leads_to_outside_the_folder_is_not_read(folder, tmp_path):
    (tmp_path / "password.txt").write_text("secret")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "more.md").write_text("secret")
    (folder / "pw.txt").symlink_to(tmp_path / "password.txt")
    (folder / "more").symlink_to(tmp_path / "elsewhere")
    out, err = ingest(folder)
    assert "docs/pw.txt: skipped, a link that leads out of the folder" in out
    assert "docs/more: skipped, a link that leads out of the folder" in out
    assert "2 added, 0 replaced, 0 unchanged, 3 skipped, 0 failed." in out
    assert "secret" not in str(list(Chunk.objects.values_list("text")))
    assert err == ""


def test_a_link_to_a_file_in_the_folder_is_read_and_one_to_a_folder_is_told(folder):
    (folder / "start.md").symlink_to("index.md")
    (folder / "guides").symlink_to("how-to")
    out, _ = ingest(folder)
    assert "docs/guides: skipped, a link to a folder" in out
    assert "3 added" in out
    assert Document.objects.get(source="docs/start.md").text == Document.objects.get(source="docs/index.md").text


def test_a_folder_may_be_named_by_a_link(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    assert "2 added" in ingest(tmp_path / "link")[0]
    assert Document.objects.filter(source="docs/index.md").exists()


def test_what_is_no_file_in_a_folder_is_told_and_not_opened(folder):
    (folder / "gone.md").symlink_to(folder / "nowhere.md")
    (folder / "ring.md").symlink_to(folder / "ring.md")
    os.mkfifo(folder / "pipe.md")
    out, _ = ingest(folder)
    assert "docs/gone.md: skipped, a link that leads to nothing" in out
    assert "docs/ring.md: skipped, a link that leads to nothing" in out
    assert "docs/pipe.md: skipped, neither a file nor a folder" in out
    assert "2 added, 0 replaced, 0 unchanged, 4 skipped, 0 failed." in out


def test_what_is_neither_a_file_nor_a_folder_is_an_error_that_names_it(folder):
    os.mkfifo(folder / "pipe.md")
    with pytest.raises(CommandError, match=r"Neither a file nor a folder: .*pipe\.md\."):
        ingest(folder / "index.md", folder / "pipe.md")
    assert not Document.objects.exists()


def test_a_folder_that_cannot_be_read_is_told_and_fails(folder, monkeypatch):
    scan = os.scandir

    def refused(path):
        if os.fspath(path).endswith("how-to"):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refused)
    out, err = io.StringIO(), io.StringIO()
    with pytest.raises(CommandError, match=r"1 added, 0 replaced, 0 unchanged, 1 skipped, 1 failed\."):
        call_command("agentcore_ingest", str(folder), stdout=out, stderr=err)
    assert "docs/how-to: failed, Permission denied" in err.getvalue()


def test_a_folder_with_nothing_to_read_is_an_error_that_names_the_types(tmp_path):
    with pytest.raises(CommandError) as told:
        ingest(tmp_path)
    assert f"Nothing to read in {tmp_path}; read are {', '.join(reading.TYPE_OF_SUFFIX)}." in str(told.value)
    (tmp_path / "logo.png").write_bytes(b"x")
    with pytest.raises(CommandError, match=r"Nothing to read in .* 1 skipped, 0 failed\."):
        ingest(tmp_path)
