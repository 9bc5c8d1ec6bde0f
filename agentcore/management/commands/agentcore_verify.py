"""Check the event chain and the invariants of all sessions, or of one."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentcore.approvals import invariants
from agentcore.management.progress import Bar
from agentcore.models import AgentSession


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
        bar, found = Bar(self.stderr, sessions.count()), 0
        for session in sessions.iterator(chunk_size=200):
            for problem in invariants.problems(session):
                found += 1
                self.stdout.write(f"{session.session_id}: {problem}")
            bar.advance()
        return found
