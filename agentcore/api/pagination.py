"""Lists in pages: {"next", "previous", "results"}, `?cursor=`, `?page_size=`."""

from __future__ import annotations

from typing import Any

from rest_framework.exceptions import NotFound
from rest_framework.pagination import Cursor, CursorPagination, LimitOffsetPagination
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore.api import parsing
from agentcore.exceptions import InvalidInput

PAGE_SIZE = 50
MAX_PAGE_SIZE = 200


class NewestFirst(CursorPagination):
    """Pages of rows by falling id: what comes or goes between two pages makes none repeat or skip another row."""

    ordering = "-id"
    page_size = PAGE_SIZE
    page_size_query_param = "page_size"
    max_page_size = MAX_PAGE_SIZE

    def get_page_size(self, request: Request) -> int:
        """Return the size asked for, at most MAX_PAGE_SIZE; raise InvalidInput for what is no number above 0."""
        return asked_page_size(request)

    def decode_cursor(self, request: Request) -> Cursor | None:
        """Return the place to go on at; raise InvalidInput for a cursor that no page gave out."""
        try:
            cursor = super().decode_cursor(request)
        except NotFound as error:
            raise _bad_cursor() from error
        if cursor is not None and cursor.position is not None and parsing.find_number(str(cursor.position)) is None:
            raise _bad_cursor()
        return cursor


class ByName(LimitOffsetPagination):
    """Pages of a list that code defines and no request changes; the cursor is a place in it."""

    default_limit = PAGE_SIZE
    limit_query_param = "page_size"
    offset_query_param = "cursor"

    def get_limit(self, request: Request) -> int:
        """Return the size asked for; raise InvalidInput."""
        return asked_page_size(request)

    def get_offset(self, request: Request) -> int:
        """Return the place to go on at; raise InvalidInput."""
        found = parsing.find_number(request.query_params.get("cursor", "0"))
        if found is None:
            raise _bad_cursor()
        return found

    def get_paginated_response(self, data: Any) -> Response:
        """Return a page in the shape all lists have."""
        return Response({"next": self.get_next_link(), "previous": self.get_previous_link(), "results": data})

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the OpenAPI schema of a page."""
        return NewestFirst().get_paginated_response_schema(schema)


def asked_page_size(request: Request) -> int:
    """Return `?page_size=`; raise InvalidInput for what is no number above 0."""
    asked = request.query_params.get("page_size", str(PAGE_SIZE))
    return min(parsing.whole_number(asked, name="page_size", least=1, most=parsing.MAX_ID), MAX_PAGE_SIZE)


def _bad_cursor() -> InvalidInput:
    return InvalidInput("cursor is none that a page of this list gave out; begin without one.", field="cursor")
