"""Remove turns that are older than RETENTION_DAYS, and their part of the log."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentcore.conf import settings
from agentcore.engine.runtime import AgentRuntime
from agentcore.keeping import retention
from agentcore.management import options as given


class Command(BaseCommand):
    help = (
        "Remove the turns that ended more than RETENTION_DAYS ago, and sessions deleted as long ago. What is left of a "
        "session's log is still proved by agentcore_verify."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--days", type=given.days, help="ended so long ago, in place of RETENTION_DAYS")
        parser.add_argument(
            "--with-decisions",
            action="store_true",
            help="remove the record of decisions of such turns, too; without it, it stays",
        )
        parser.add_argument("--dry-run", action="store_true", help="say how many, and change nothing")

    def handle(self, *args: Any, days: float | None, with_decisions: bool, dry_run: bool, **options: Any) -> None:
        days = settings.RETENTION_DAYS if days is None else days
        if days is None:
            raise CommandError("RETENTION_DAYS is not set: say --days.")
        if dry_run:
            old = retention.old_turns(days)
            turns, sessions = old.count(), old.order_by().values("session").distinct().count()
            self.stdout.write(f"{turns} turns of {sessions} sessions would be removed.")
            return
        done = AgentRuntime().trim(days)
        said = [f"{done.get(kind, 0)} {kind}" for kind in ("turns", "events", "sessions")]
        if with_decisions:
            said.append(f"{retention.drop_decisions(days)} turns kept for their decisions")
        self.stdout.write(f"Removed: {', '.join(said)}.")
