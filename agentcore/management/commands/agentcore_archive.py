"""Archive the sessions that nobody has touched for long."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from agentcore.conf import settings
from agentcore.engine.runtime import AgentRuntime
from agentcore.keeping import archiving
from agentcore.management import options as given


class Command(BaseCommand):
    help = "Archive the sessions that were untouched for ARCHIVE_AFTER_DAYS and have no active turn."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--days", type=given.days, help="untouched for so long, in place of ARCHIVE_AFTER_DAYS")
        parser.add_argument("--dry-run", action="store_true", help="say which, and change nothing")

    def handle(self, *args: Any, days: float | None, dry_run: bool, **options: Any) -> None:
        days = settings.ARCHIVE_AFTER_DAYS if days is None else days
        if not dry_run:
            self.stdout.write(f"{AgentRuntime().archive_idle(days)} sessions archived.")
            return
        found = 0
        for session in archiving.idle(days):
            self.stdout.write(session.session_id)
            found += 1
        self.stdout.write(f"{found} sessions would be archived.")
