"""The app: its checks, its tasks, and the discovery of agents."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class AgentcoreConfig(AppConfig):
    name = "agentcore"
    label = "agentcore"
    verbose_name = "Agents"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import what must be known in every process; no query is made here."""
        import_module("agentcore.logs").attach()
        import_module("agentcore.checks")
        # A web process must know the task too: dispatch sends it by name, and eager mode runs it here.
        import_module("agentcore.tasks")
        import_module("agentcore.turns.hot").follow()
        for room in ("state", "memory", "knowledge"):
            import_module(f"agentcore.{room}.erasing")
        autodiscover_modules("agents")
