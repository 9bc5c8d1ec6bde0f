"""Check the event chain and the invariants of all sessions, or of one."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentcore.approvals import invariants
from agentcore.models import AgentSession

BAR_WIDTH = 40


class Command(BaseCommand):
    help = "Check each session's event chain and what must hold of its turns; exit with 1 when something is wrong."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("session_id", nargs="?", help="check this session only")

    def handle(self, *args: Any, session_id: str | None = None, **options: Any) -> None:
        sessions = AgentSession.objects.order_by("pk")
        if session_id is not None:
            sessions = sessions.filter(session_id=session_id)
            if not sessions.exists():
                raise CommandError(f"There is no session {session_id!r}.")
        found = self._check(sessions)
        if found:
            raise CommandError(f"{found} problems in {sessions.count()} sessions.")
        self.stdout.write(self.style.SUCCESS(f"{sessions.count()} sessions checked, nothing is wrong."))

    def _check(self, sessions: Any) -> int:
        total, found = sessions.count(), 0
        for number, session in enumerate(sessions.iterator(chunk_size=200), start=1):
            for problem in invariants.problems(session):
                found += 1
                self.stdout.write(f"{session.session_id}: {problem}")
            self._show_progress(number, total)
        return found

    def _show_progress(self, number: int, total: int) -> None:
        if not sys.stderr.isatty():
            return
        filled = BAR_WIDTH * number // total
        end = "\n" if number == total else ""
        self.stderr.write(f"\r[{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {number}/{total}", ending=end)
