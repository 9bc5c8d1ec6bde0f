"""Put files into the knowledge base: a file, or all that can be read in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentcore import knowledge
from agentcore.agents.registry import registry
from agentcore.conf import settings
from agentcore.exceptions import AgentError, ConfigurationError
from agentcore.knowledge import reading
from agentcore.management.progress import Bar
from agentcore.models import SHARED


class Command(BaseCommand):
    help = (
        "Add files to the knowledge base, folders with all that is in them. A file that was there is replaced when it "
        "changed. What is skipped is said, with the reason; exit with 1 when a file could not be read."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        suffixes = ", ".join(reading.TYPE_OF_SUFFIX)
        parser.add_argument("path", nargs="+", type=Path, help=f"a folder, or a file of the types {suffixes}")
        whose = parser.add_mutually_exclusive_group()
        whose.add_argument("--agent", help="for this agent alone")
        whose.add_argument("--shared", action="store_true", help="for all agents (default)")

    def handle(self, *, path: list[Path], agent: str | None = None, **options: Any) -> None:
        if agent is not None and registry.find(agent) is None:
            known = ", ".join(sorted(item.name for item in registry.all()))
            raise CommandError(f"There is no agent {agent!r}. Allowed: {known}.")
        if missing := [str(item) for item in path if not item.exists()]:
            raise CommandError(f"There is no file or folder {', '.join(missing)}.")
        files = [found for item in path for found in _files(item)]
        counts = {"added": 0, "replaced": 0, "unchanged": 0, "skipped": 0, "failed": 0}
        bar = Bar(self.stderr, len(files))
        for file, source in files:
            counts[self._take(file, source, agent or SHARED, is_asked_for=file in path)] += 1
            bar.advance()
        told = ", ".join(f"{number} {outcome}" for outcome, number in counts.items())
        if counts["failed"]:
            raise CommandError(f"{told}.")
        self.stdout.write(self.style.SUCCESS(f"{told}."))

    def _take(self, file: Path, source: str, agent: str, *, is_asked_for: bool) -> str:
        """Ingest one file and return what became of it; a file of another type in a folder is only skipped."""
        if not is_asked_for and reading.media_type_of(file.name) is None:
            self.stdout.write(f"{source}: skipped, this type of file cannot be read")
            return "skipped"
        try:
            content = knowledge.read(_bytes(file), name=source)
            return knowledge.ingest(content, source=source, agent=agent).outcome
        except ConfigurationError as mistake:
            raise CommandError(str(mistake)) from mistake
        except AgentError as problem:
            self.stderr.write(f"{source}: failed, {problem.message}")
        except OSError as problem:
            self.stderr.write(f"{source}: failed, {problem.strerror or type(problem).__name__}")
        return "failed"


def _files(path: Path) -> Iterator[tuple[Path, str]]:
    """Yield each file with its source: its path from the folder that was named, that folder's name first."""
    if not path.is_dir():
        yield path, path.name
        return
    for file in sorted(path.rglob("*")):
        inside = file.relative_to(path)
        if file.is_file() and not any(part.startswith(".") for part in inside.parts):
            yield file, (Path(path.resolve().name) / inside).as_posix()


def _bytes(file: Path) -> bytes:
    """Return what is in a file, one byte more than allowed at most: the reader refuses it then."""
    with file.open("rb") as opened:
        return opened.read(settings.MAX_DOCUMENT_BYTES + 1)
