"""What every view of the API shares: who may enter, how bodies are read, how errors look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django_filters.rest_framework import DjangoFilterBackend
from rest_framework.generics import GenericAPIView
from rest_framework.mixins import ListModelMixin
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agentcore.api import errors
from agentcore.api.operations import Operation
from agentcore.api.pagination import NewestFirst
from agentcore.api.parsing import Body, JsonBody


class ApiView(APIView):
    """A view for logged-in users. Authentication, renderers and throttles are the project's DRF defaults."""

    permission_classes: Any = (IsAuthenticated,)
    parser_classes = (JsonBody,)
    versioning_class = None
    # OPTIONS is 405: DRF's description of a view would answer before anybody asked whose object it is.
    metadata_class = None
    # Also where a project has another DEFAULT_SCHEMA_CLASS.
    schema = Operation()

    def get_exception_handler(self) -> Callable[[Exception, dict[str, Any]], Response]:
        """Return the handler that gives errors their one shape, whatever the project's setting is."""
        return errors.handle

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Keep answers out of caches and frames."""
        final = super().finalize_response(request, response, *args, **kwargs)
        final.headers.setdefault("Cache-Control", "no-store")
        final.headers.setdefault("X-Frame-Options", "DENY")
        return final

    def given(self, form: type[Body]) -> dict[str, Any]:
        """Return the body's checked fields; raise ValidationError."""
        filled = form(data=self.request.data)
        filled.is_valid(raise_exception=True)
        fields: dict[str, Any] = filled.validated_data
        return fields


class ListView(ListModelMixin, ApiView, GenericAPIView[Any]):
    """A view of a list: in pages, and filtered by its `filterset_class`."""

    pagination_class: Any = NewestFirst
    filter_backends: Any = (DjangoFilterBackend,)
