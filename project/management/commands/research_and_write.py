"""Two agents, one after the other: what the first one finds is handed to the second as its initial context."""

from __future__ import annotations

from typing import Any

from django.core.management import CommandError
from django.core.management.base import BaseCommand, CommandParser
from django.db import connection

from agentcore import ExecutionResult, TurnState, runtime
from agentcore.models import AgentSession
from project.agents.writing import FINDINGS


class Command(BaseCommand):
    help = "Have research-agent find out about a topic, and writing-agent write about what it found."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("topic", nargs="+", help='what to write about, as in "LED desk lamps"')

    def handle(self, *, topic: list[str], **options: Any) -> None:
        if AgentSession._meta.db_table not in connection.introspection.table_names():
            raise CommandError("There is no demonstration's database yet: start `make demo` once before.")
        subject = " ".join(topic)
        research = completed(runtime.execute("research-agent", f"Research this topic: {subject}"))
        self.stdout.write(f"research-agent found:\n{research.response}\n\n")
        article = completed(
            runtime.execute(
                "writing-agent",
                f"Write an article on this topic: {subject}",
                initial_context={FINDINGS: research.response},
            )
        )
        self.stdout.write(f"writing-agent wrote:\n{article.response}\n")


def completed(result: ExecutionResult) -> ExecutionResult:
    """Return a result that has an answer; raise CommandError for one that has none."""
    if result.state != TurnState.COMPLETED:
        raise CommandError(f"{result.agent} did not complete: the turn is {result.state} ({result.error}).")
    return result
