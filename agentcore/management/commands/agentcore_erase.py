"""Erase a user's data for good, after asking once more."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentcore.engine.runtime import AgentRuntime
from agentcore.exceptions import InvalidInput
from agentcore.keeping import erasure


class Command(BaseCommand):
    help = (
        "Erase the content of a user's sessions and turns, and what other stores hold of them. Active turns are "
        "cancelled. What happened, when, and its digests stay. Exit with 1 when something is left to do."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user", help="the user's name")
        parser.add_argument("--key", action="store_true", help="USER is the key of an account, which may be gone")
        parser.add_argument("--by", default="", help="who does it, for the record")
        parser.add_argument("--wait", type=float, default=30, help="seconds for turns that a worker has (30)")
        parser.add_argument("--yes", action="store_true", help="do not ask")
        parser.add_argument("--dry-run", action="store_true", help="say how much there is, and change nothing")

    def handle(self, *args: Any, user: str, key: bool, dry_run: bool, yes: bool, **options: Any) -> None:
        subject = _known_key(user) if key else _account(user)
        if dry_run:
            self._tell("Would be erased", erasure.found(subject))
            return
        if not yes:
            self._ask(user, erasure.found(subject))
        try:
            report = AgentRuntime().erase(subject, by=options["by"], wait=options["wait"])
        except InvalidInput as mistake:
            raise CommandError(mistake.message) from mistake
        self._tell(f"Erased as {report.pseudonym}", report.counts)
        for execution_id in report.running:
            self.stdout.write(f"A worker still has turn {execution_id}; it is told to stop.")
        for name, reason in report.failed.items():
            self.stdout.write(f"{name}: {reason}")
        if not report.is_complete:
            raise CommandError("Not everything could be erased. Run it again.")

    def _ask(self, user: str, found: dict[str, int]) -> None:
        self._tell("To be erased", found)
        answer = input(f"This cannot be undone. Type {user} to go on: ")
        if answer.strip() != user:
            raise CommandError("Nothing was erased.")

    def _tell(self, what: str, counts: dict[str, int]) -> None:
        numbers = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        self.stdout.write(f"{what}: {numbers or 'nothing'}.")


def _known_key(text: str) -> str:
    try:
        return erasure.key_of(text)
    except InvalidInput as mistake:
        raise CommandError(f"{text!r} is no key of an account: {mistake.message}") from mistake


def _account(name: str) -> Any:
    model: Any = get_user_model()
    try:
        return model._default_manager.get_by_natural_key(name)
    except model.DoesNotExist as error:
        raise CommandError(f"There is no user {name!r}. Of an account that is gone, give the key and --key.") from error
