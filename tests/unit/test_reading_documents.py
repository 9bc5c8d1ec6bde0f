"""Files into text: what each type becomes, and what is said of those that cannot be read."""

import builtins
import io
import time

import pytest
from django.test import override_settings

from agentcore import knowledge
from agentcore.exceptions import InvalidInput, TooLarge, Unavailable
from agentcore.knowledge import reading

PAGE = """<!doctype html><html><head><title>Return &amp; refund</title><style>p {color: red}</style></head>
<body><nav>Home | Shop</nav><h1>Returns <b>policy</b></h1><p>Send it
back.</p><script>steal()</script><h2>How</h2><ul><li>Pack it</li><li>Post it</li></ul>
<table><tr><td>5</td><td>days</td></tr></table></body></html>"""


def make_pdf(*pages: str, title: str = "") -> bytes:
    """Return a PDF with a line of text on each page, written by hand: the reader's library makes none with text."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", ""]
    kids = []
    for line in pages:
        stream = f"BT /F1 12 Tf 72 700 Td ({line}) Tj ET"
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
        resources = "<< /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >>"
        rest = f"/MediaBox [0 0 612 792] /Contents {len(objects)} 0 R /Resources {resources}"
        objects.append(f"<< /Type /Page /Parent 2 0 R {rest} >>")
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    objects.append(f"<< /Title ({title}) >>")
    out, places = io.BytesIO(b"%PDF-1.4\n"), []
    out.seek(0, io.SEEK_END)
    for number, body in enumerate(objects, start=1):
        places.append(out.tell())
        out.write(f"{number} 0 obj\n{body}\nendobj\n".encode())
    start = out.tell()
    out.write(f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode())
    out.writelines(f"{place:010} 00000 n \n".encode() for place in places)
    out.write(f"trailer << /Size {len(objects) + 1} /Root 1 0 R /Info {len(objects)} 0 R >>\n".encode())
    out.write(f"startxref\n{start}\n%%EOF".encode())
    return out.getvalue()


def test_plain_text_is_taken_as_it_is():
    content = knowledge.read("\ufeffEin Fuchs 🦊\r\nläuft.\x00".encode(), name="a.TXT")
    assert (content.text, content.media_type, content.title) == ("Ein Fuchs 🦊\nläuft.\ufffd", "text/plain", "")


def test_markdown_has_its_first_heading_for_a_title():
    content = knowledge.read(b"intro\n\n# The *lamp* #\n\ntext", name="a.md")
    assert (content.title, content.media_type) == ("The *lamp*", "text/markdown")


def test_a_markdown_title_is_found_at_once_behind_a_long_line():
    started = time.perf_counter()
    content = knowledge.read(b"#\n" + b"# a" + b" " * 1_000_000 + b"b", name="a.md")
    assert content.title == "a"
    assert time.perf_counter() - started < 2


def test_html_loses_its_scripts_and_keeps_its_headings():
    pytest.importorskip("bs4")
    content = knowledge.read(PAGE.encode(), name="a.html")
    assert content.title == "Return & refund"
    assert "# Returns policy" in content.text.splitlines()
    assert "## How" in content.text.splitlines()
    assert "Send it" in content.text
    assert "Pack it" in content.text.splitlines()
    assert not any(word in content.text for word in ("steal", "color", "Home", "<"))


def test_html_keeps_the_lines_of_code_and_no_others():
    pytest.importorskip("bs4")
    content = knowledge.read(b"<p>one\ntwo</p><pre>a\nb</pre><!-- no --><p>three</p>", name="a.html")
    assert content.text == "one two\n\na\nb\n\nthree"


@pytest.mark.parametrize("page", [b"<div>" * 5_000 + b"x", b"<p>x</p>" * 5_000])
def test_a_deep_or_wide_page_is_read(page):
    pytest.importorskip("bs4")
    assert set(knowledge.read(page, name="a.html").text.split()) == {"x"}


def test_html_is_decoded_as_it_says():
    pytest.importorskip("bs4")
    content = knowledge.read('<meta charset="iso-8859-1"><p>Grüße</p>'.encode("latin-1"), name="a.htm")
    assert content.text == "Grüße"


def test_pdf_gives_the_text_of_its_pages():
    pytest.importorskip("pypdf")
    content = knowledge.read(make_pdf("Refunds take five days.", "Page two.", title="Terms"), name="a.pdf")
    assert (content.title, content.media_type) == ("Terms", "application/pdf")
    assert content.text.split("\n\n") == ["Refunds take five days.", "Page two."]


@pytest.mark.parametrize(
    ("data", "name", "said"),
    [
        (b"x", "a.exe", r"a.exe: this type of file cannot be read. Allowed: .txt, .text, .rst, .md"),
        (b"x", "README", "cannot be read"),
        (b"\xff\xfe", "a.txt", r"no text in UTF-8 \(at byte 0\)"),
        (b" \n ", "a.md", "a.md holds no text"),
        (b"<p></p>", "a.html", "a.html holds no text"),
        (b"%PDF-1.4 broken", "a.pdf", r"a.pdf cannot be read as PDF"),
        (make_pdf(" "), "a.pdf", "holds no text"),
    ],
)
def test_what_cannot_be_read_is_said(data, name, said):
    with pytest.raises(InvalidInput, match=said):
        knowledge.read(data, name=name)


def test_a_file_over_the_limit_is_refused():
    with override_settings(AGENTCORE={"MAX_DOCUMENT_BYTES": 10}), pytest.raises(TooLarge, match="over 10 bytes"):
        knowledge.read(b"x" * 11, name="a.txt")


@pytest.mark.parametrize(("name", "package"), [("a.html", "beautifulsoup4"), ("a.pdf", "pypdf")])
def test_a_missing_library_is_named(monkeypatch, name, package):
    real = builtins.__import__

    def missing(module, *args, **kwargs):
        if module in ("bs4", "pypdf"):
            raise ImportError(module)
        return real(module, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(Unavailable, match=rf"package {package}: pip install 'agentcore\[documents\]'"):
        reading.read(b"<p>x</p>", name=name)
