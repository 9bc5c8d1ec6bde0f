"""Read a file into text: plain text and Markdown as they are, HTML and PDF by libraries (extra `agentcore[documents]`).

Headings come out as Markdown has them, whatever the file was.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from agentcore import canonical
from agentcore.conf import settings
from agentcore.exceptions import InvalidInput, TooLarge, Unavailable
from agentcore.knowledge import headings

PLAIN, MARKDOWN, HTML, PDF = "text/plain", "text/markdown", "text/html", "application/pdf"
MEDIA_TYPES = (PLAIN, MARKDOWN, HTML, PDF)
TYPE_OF_SUFFIX = {
    ".txt": PLAIN,
    ".text": PLAIN,
    ".rst": PLAIN,
    ".md": MARKDOWN,
    ".markdown": MARKDOWN,
    ".html": HTML,
    ".htm": HTML,
    ".pdf": PDF,
}
# What of a web page is no text for a reader.
NOT_TEXT = frozenset(("script", "style", "noscript", "template", "nav", "svg", "iframe", "form", "title"))
HEADINGS = frozenset(f"h{level}" for level in range(1, 7))
# What parts a block from its neighbours.
BLOCKS = {
    **dict.fromkeys(("br", "tr", "li", "dt", "dd"), "\n"),
    **dict.fromkeys(("td", "th"), " "),
    **dict.fromkeys(
        ("p", "blockquote", "table", "ul", "ol", "dl", "div", "section", "article", "main", "header"), "\n\n"
    ),
}
MAX_TITLE = 255
MAX_PAGES = 5_000


@dataclass(frozen=True, kw_only=True)
class Content:
    """What a file says. `title` is its own, "" when it has none."""

    text: str
    media_type: str
    title: str = ""


def media_type_of(name: str) -> str | None:
    """Return the media type that a file's name stands for, None for one that cannot be read."""
    return TYPE_OF_SUFFIX.get(PurePath(name).suffix.lower())


def read(data: bytes, *, name: str, media_type: str | None = None) -> Content:
    """Return the text of a file; `name` is what messages call it, and tells its type unless `media_type` does.

    Raises InvalidInput for a file that cannot be read or holds no text, TooLarge for one over MAX_DOCUMENT_BYTES,
    Unavailable when the library for its type is not installed.
    """
    kind = media_type or media_type_of(name)
    if kind not in MEDIA_TYPES:
        suffixes = ", ".join(TYPE_OF_SUFFIX)
        raise InvalidInput(f"{name}: this type of file cannot be read. Allowed: {suffixes}.", field="media_type")
    if len(data) > (limit := settings.MAX_DOCUMENT_BYTES):
        raise TooLarge(f"{name} is over {limit} bytes.", limit=limit)
    title, text = READERS[kind](data, name)
    text = canonical.clean_text(text).replace("\r\n", "\n").strip()
    if not text:
        raise InvalidInput(f"{name} holds no text.", field="text")
    if len(text.encode()) > limit:
        raise TooLarge(f"The text of {name} is over {limit} bytes.", limit=limit)
    return Content(text=text, media_type=kind, title=shortened(canonical.clean_text(title)))


def shortened(title: str) -> str:
    """Return a title on one line, as long as its column."""
    return " ".join(title.split())[:MAX_TITLE]


def _plain(data: bytes, name: str) -> tuple[str, str]:
    try:
        return "", data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name} is no text in UTF-8 (at byte {error.start}).", field="text") from error


def _markdown(data: bytes, name: str) -> tuple[str, str]:
    _, text = _plain(data, name)
    found = next(filter(None, map(headings.find, text.splitlines())), None)
    return (found.words if found else ""), text


def _html(data: bytes, name: str) -> tuple[str, str]:
    bs4 = _library("bs4", "beautifulsoup4", name)
    # Its own charset, if it names one, else what the bytes look like.
    page = bs4.BeautifulSoup(data, "html.parser")
    title = page.title.get_text() if page.title else ""
    lines = [" ".join(line.split()) for line in "".join(_texts(bs4, page.body or page)).splitlines()]
    return title, re.sub(r"\n{3,}", "\n\n", "\n".join(lines))


def _texts(bs4: Any, root: Any) -> Iterator[str]:
    """Yield the texts of a page in order, and what parts its blocks; without recursion, however deep it is nested."""
    left: list[Any] = [root]
    while left:
        node = left.pop()
        if isinstance(node, bs4.element.PreformattedString) or getattr(node, "name", "") in NOT_TEXT:
            continue
        if isinstance(node, str):
            # Plain ones are our own; the line ends within a page's mean nothing.
            yield node if type(node) is str else re.sub(r"\s+", " ", node)
        elif node.name in HEADINGS:
            words = " ".join(node.get_text(" ").split())
            yield f"\n\n{'#' * int(node.name[1])} {words}\n\n" if words else ""
        elif node.name == "pre":
            yield f"\n\n{node.get_text()}\n\n"
        else:
            between = BLOCKS.get(node.name, "")
            yield between
            left.append(between)
            left.extend(reversed(node.contents))


def _pdf(data: bytes, name: str) -> tuple[str, str]:
    pypdf = _library("pypdf", "pypdf", name)
    try:
        file = pypdf.PdfReader(io.BytesIO(data))
        if file.is_encrypted:
            raise InvalidInput(f"{name} is encrypted.", field="file")
        if len(file.pages) > MAX_PAGES:
            raise TooLarge(f"{name} has over {MAX_PAGES} pages.", limit=MAX_PAGES)
        text = "\n\n".join(page.extract_text() for page in file.pages)
        title = str((file.metadata.title if file.metadata else None) or "")
    except (InvalidInput, TooLarge):
        raise
    except Exception as error:
        # The library fails on broken files in many ways of its own.
        raise InvalidInput(f"{name} cannot be read as PDF ({type(error).__name__}).", field="file") from error
    return title, text


def _library(module: str, package: str, name: str) -> Any:
    try:
        return __import__(module)
    except ImportError as error:
        raise Unavailable(
            f"{name} cannot be read without the package {package}: pip install 'agentcore[documents]'."
        ) from error


READERS: dict[str, Callable[[bytes, str], tuple[str, str]]] = {
    PLAIN: _plain,
    MARKDOWN: _markdown,
    HTML: _html,
    PDF: _pdf,
}
