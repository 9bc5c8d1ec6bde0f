"""The app that holds pgvector's table."""

from __future__ import annotations

from django.apps import AppConfig


class PgvectorConfig(AppConfig):
    name = "agentcore.vectors.pgvector"
    label = "agentcore_pgvector"
    verbose_name = "Vectors (pgvector)"
    default_auto_field = "django.db.models.BigAutoField"
