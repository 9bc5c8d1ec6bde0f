"""Do the periodic work once: recover turns, expire approvals, remind. For cron, in place of the beat schedule."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from agentcore import dispatch
from agentcore.conf import settings
from agentcore.engine.runtime import AgentRuntime


class Command(BaseCommand):
    help = "Recover abandoned turns; expire, remind of and report requests that nobody decides; once."

    def handle(self, *args: Any, **options: Any) -> None:
        done = AgentRuntime().tick()
        # With DISPATCH="thread" the turns are worked on in this very process.
        dispatch.work_off(settings.TURN_TIMEOUT)
        self.stdout.write(", ".join(f"{name.replace('_', ' ')}: {count}" for name, count in done.items()))
