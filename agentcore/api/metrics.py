"""Metrics for Prometheus, for who may view them."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request

from agentcore.api.base import ApiView
from agentcore.api.operations import described
from agentcore.conf import settings
from agentcore.exceptions import NotFound, Unavailable

try:
    from agentcore.monitoring import prometheus
except ImportError:  # the extra is not installed
    prometheus = None  # type: ignore[assignment]  # asked for below

VIEW_METRICS = "agentcore.view_metrics"


class MayViewMetrics(BasePermission):
    """Lets in who has `view_metrics`."""

    message = f"Metrics are for who has the permission {VIEW_METRICS}."

    def has_permission(self, request: Request, view: Any) -> bool:
        """Say whether the user has it."""
        return bool(request.user.has_perm(VIEW_METRICS))


class AnyAccept(BaseContentNegotiation):
    """Takes any Accept header: scrapers name formats of Prometheus, which the view chooses from. Errors are JSON."""

    def select_parser(self, request: Any, parsers: Any) -> Any:
        """Return the first parser."""
        return parsers[0]

    def select_renderer(self, request: Any, renderers: Any, format_suffix: Any = None) -> Any:
        """Return the first renderer."""
        return renderers[0], renderers[0].media_type


class Metrics(ApiView):
    """The numbers of all processes, as Prometheus reads them."""

    permission_classes = (IsAuthenticated, MayViewMetrics)
    renderer_classes = (JSONRenderer,)
    content_negotiation_class = AnyAccept

    @described("metrics_retrieve", responses={(200, "text/plain"): OpenApiTypes.STR})
    def get(self, request: Request) -> HttpResponse:
        """Return a scrape in Prometheus's text format, or as OpenMetrics to who asks for that."""
        if not settings.METRICS:
            raise NotFound("Metrics are off: AGENTCORE['METRICS'] is False.", setting="METRICS")
        if prometheus is None:
            raise Unavailable("Metrics need the package prometheus-client: pip install 'agentcore[metrics]'.")
        text, content_type = prometheus.exposition(request.headers.get("Accept", ""))
        return HttpResponse(text, content_type=content_type)
