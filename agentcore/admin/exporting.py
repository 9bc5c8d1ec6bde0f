"""Give the record of decisions out of the admin: as a file that is sent while it is read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db.models import QuerySet
from django.http import HttpRequest, StreamingHttpResponse

from agentcore import clock
from agentcore.approvals import export

LINES_AT_ONCE = 200
FORMATS: dict[str, tuple[str, Callable[[Iterable[dict[str, Any]]], Iterator[str]]]] = {
    "csv": ("text/csv; charset=utf-8", export.as_csv),
    "json": ("application/json", export.as_json),
}


def download(request: HttpRequest, decisions: QuerySet[Any], kind: str) -> StreamingHttpResponse:
    """Return the entries as a file; however many there are, few are in memory."""
    content_type, written = FORMATS[kind]
    pieces = _pieces(written(export.rows(decisions)))
    # A server that waits for many at once cannot wait for a plain iterator.
    content = _awaited(pieces) if isinstance(request, ASGIRequest) else pieces
    name = f"approval-decisions-{clock.now():%Y-%m-%d}.{kind}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "X-Content-Type-Options": "nosniff"}
    return StreamingHttpResponse(content, content_type=content_type, headers=headers)


def _pieces(lines: Iterator[str]) -> Iterator[str]:
    while piece := "".join(islice(lines, LINES_AT_ONCE)):
        yield piece


async def _awaited(pieces: Iterator[str]) -> AsyncIterator[str]:
    read = sync_to_async(lambda: next(pieces, None))
    while (piece := await read()) is not None:
        yield piece
