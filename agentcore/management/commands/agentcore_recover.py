"""Take up turns that a dead worker or broker left."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from agentcore import dispatch
from agentcore.conf import settings
from agentcore.engine.runtime import AgentRuntime


class Command(BaseCommand):
    help = "Take over abandoned turns and send again those that nobody claimed, once."

    def handle(self, *args: Any, **options: Any) -> None:
        done = AgentRuntime().recover()
        # With DISPATCH="thread" the turns are worked on in this very process.
        dispatch.work_off(settings.TURN_TIMEOUT)
        self.stdout.write(", ".join(f"{name.replace('_', ' ')}: {count}" for name, count in done.items()))
