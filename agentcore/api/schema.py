"""The OpenAPI description of this API, and of nothing else of the project."""

from __future__ import annotations

from typing import Any

from drf_spectacular.generators import EndpointEnumerator, SchemaGenerator
from drf_spectacular.renderers import (
    OpenApiJsonRenderer,
    OpenApiJsonRenderer2,
    OpenApiYamlRenderer,
    OpenApiYamlRenderer2,
)
from drf_spectacular.views import SpectacularAPIView

import agentcore
from agentcore.api.base import ApiView
from agentcore.api.operations import described


class OwnEndpoints(EndpointEnumerator):
    """Lists the endpoints of agentcore, wherever the project mounted them."""

    def should_include_endpoint(self, path: str, callback: Any) -> bool:
        """Say whether an endpoint is agentcore's."""
        return super().should_include_endpoint(path, callback) and issubclass(callback.cls, ApiView)


class OwnSchema(SchemaGenerator):
    """Describes agentcore's endpoints under its own name and version."""

    endpoint_inspector_cls = OwnEndpoints

    def get_schema(self, request: Any = None, public: bool = False) -> Any:
        """Return the OpenAPI document."""
        document = super().get_schema(request=request, public=public)  # type: ignore[no-untyped-call]  # its own lack
        document["info"] = {"title": "agentcore", "version": agentcore.__version__}
        return document


class Schema(ApiView, SpectacularAPIView):
    """OpenAPI 3, as JSON or (`?format=yaml`) YAML."""

    renderer_classes: Any = (OpenApiJsonRenderer2, OpenApiJsonRenderer, OpenApiYamlRenderer2, OpenApiYamlRenderer)
    generator_class = OwnSchema

    @described("schema_retrieve", exclude=True)
    def get(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the description of this API."""
        return super().get(request, *args, **kwargs)  # type: ignore[no-untyped-call]  # its own lack
