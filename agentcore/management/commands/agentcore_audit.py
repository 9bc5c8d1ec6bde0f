"""Write the record of decisions as CSV or JSON."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.models import QuerySet
from django.utils import timezone

from agentcore.approvals import export
from agentcore.models import AgentSession, ApprovalDecision, ToolApproval

FORMATS = {"csv": export.as_csv, "json": export.as_json}


class Command(BaseCommand):
    help = "Write who decided what on which approval, refused attempts and what the system did included."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--format", choices=FORMATS, default="csv")
        parser.add_argument("--since", type=_moment, help="from then on: 2026-01-31 or 2026-01-31T12:00:00+01:00")
        parser.add_argument("--until", type=_moment, help="before then")
        parser.add_argument("--tool", help="of this tool only")
        parser.add_argument("--session", help="of this session only")
        parser.add_argument("--output", type=Path, help="write to this file, in place of standard output")

    def handle(self, *args: Any, **options: Any) -> None:
        text = FORMATS[options["format"]](export.rows(_wanted(options)))
        if options["output"] is None:
            for part in text:
                self.stdout.write(part, ending="")
        else:
            self._write(options["output"], text)

    def _write(self, path: Path, text: Iterable[str]) -> None:
        try:
            # As it is: CSV ends its lines itself.
            with path.open("w", encoding="utf-8", newline="") as file:
                file.writelines(text)
        except OSError as error:
            raise CommandError(f"Cannot write {path}: {error.strerror}.") from error


def _wanted(options: dict[str, Any]) -> QuerySet[ApprovalDecision]:
    since, until, tool, session = (options[name] for name in ("since", "until", "tool", "session"))
    wanted: QuerySet[ApprovalDecision] = ApprovalDecision.objects.all()
    if since and until and since >= until:
        raise CommandError("--since must be before --until.")
    if since:
        wanted = wanted.filter(created_at__gte=since)
    if until:
        wanted = wanted.filter(created_at__lt=until)
    if tool is not None:
        _require(ToolApproval.objects.filter(tool=tool), f"request for a tool {tool!r}")
        wanted = wanted.filter(approval__tool=tool)
    if session is not None:
        _require(AgentSession.objects.filter(session_id=session), f"session {session!r}")
        wanted = wanted.filter(approval__session__session_id=session)
    return wanted


def _require(found: QuerySet[Any], what: str) -> None:
    """Raise unless there is one: a name that is misspelt is no empty record."""
    if not found.exists():
        raise CommandError(f"There is no {what}.")


def _moment(text: str) -> datetime:
    """Return a time given as ISO 8601; a day begins at midnight, and without an offset TIME_ZONE holds."""
    try:
        moment = datetime.combine(date.fromisoformat(text), time.min)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r} is no date or time in ISO 8601.") from error
    return moment if timezone.is_aware(moment) else timezone.make_aware(moment)
