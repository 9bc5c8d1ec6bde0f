"""Whether the runtime can work: for load balancers, so open to everybody, and saying no more than that."""

from __future__ import annotations

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

import agentcore
from agentcore.api.base import ApiView
from agentcore.api.operations import described


class HealthSerializer(serializers.Serializer[dict[str, str]]):
    """`degraded` still works, slower or later."""

    status = serializers.CharField(read_only=True, help_text="healthy, degraded or unhealthy")


class Health(ApiView):
    """The health of the runtime."""

    authentication_classes = ()
    permission_classes = ()
    throttle_classes = ()

    @described("health_retrieve", auth=[], responses={200: HealthSerializer, 503: HealthSerializer})
    def get(self, request: Request) -> Response:
        """Return 200 while turns are worked on, 503 when nothing works."""
        status = agentcore.runtime.health()["status"]
        return Response({"status": status}, status=503 if status == "unhealthy" else 200)
