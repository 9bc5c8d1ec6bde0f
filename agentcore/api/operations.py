"""How an endpoint is described in OpenAPI: under names no project has, and with the shape of its errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers

M = TypeVar("M", bound=Callable[..., Any])


class ErrorSerializer(serializers.Serializer[Any]):
    """An error. `code` is stable, `message` is for people, `details` for programs."""

    code = serializers.CharField(read_only=True)
    message = serializers.CharField(read_only=True)
    details = serializers.DictField(read_only=True)


@extend_schema_field(ErrorSerializer(allow_null=True))
class StoredError(serializers.JSONField):
    """An error as a row holds it."""


class Operation(AutoSchema):
    """Describes one endpoint."""

    def get_serializer_name(self, serializer: Any, direction: Any) -> str:
        """Return a component's name; the prefix keeps it apart from the project's own."""
        return f"Agentcore{super().get_serializer_name(serializer, direction)}"

    def get_operation(self, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        """Return the endpoint's description; its default answer is an error."""
        operation: dict[str, Any] | None = super().get_operation(*args, **kwargs)
        if operation is not None:
            error = self.resolve_serializer(ErrorSerializer(), "response")
            content = {"application/json": {"schema": error.ref}}
            operation["responses"]["default"] = {"description": "An error.", "content": content}
        return operation


def described(name: str, **description: Any) -> Callable[[M], M]:
    """Describe a view's method as the operation `name`, which begins with its subject."""

    def decorate(method: M) -> M:
        # Said here, because extend_schema would build on the project's DEFAULT_SCHEMA_CLASS, whatever that is.
        method.kwargs = {"schema": Operation}  # type: ignore[attr-defined]  # where drf-spectacular looks
        subject = name.partition("_")[0]
        decorated: M = extend_schema(operation_id=f"agentcore_{name}", tags=[subject], **description)(method)
        return decorated

    return decorate
