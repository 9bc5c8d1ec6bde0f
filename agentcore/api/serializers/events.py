"""Events, as answers show them."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers


class EventSerializer(serializers.Serializer[Any]):
    """One entry of a session's log. `data` is null once it was erased."""

    sequence = serializers.IntegerField(read_only=True)
    type = serializers.CharField(read_only=True)
    execution_id = serializers.UUIDField(read_only=True, allow_null=True)
    data = serializers.DictField(read_only=True, allow_null=True)  # type: ignore[assignment]  # a field, no property
    data_digest = serializers.CharField(read_only=True)
    created_at = serializers.DateTimeField(read_only=True)
    hash = serializers.CharField(read_only=True)


class LogSerializer(serializers.Serializer[Any]):
    """A stretch of a session's log, and the number of its last event."""

    results = EventSerializer(many=True, read_only=True)
    last_sequence = serializers.IntegerField(read_only=True)
