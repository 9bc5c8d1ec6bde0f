"""Put files into the knowledge base: a file, or all that can be read in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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

SUFFIXES = ", ".join(reading.TYPE_OF_SUFFIX)


@dataclass(frozen=True, kw_only=True)
class Found:
    """A file that was named, or something in a folder that was. `skipped` or `failed` says why it is not read."""

    path: Path
    source: str
    skipped: str = ""
    failed: str = ""

    @property
    def is_read(self) -> bool:
        """Say whether it becomes a document, if all goes well."""
        return not self.skipped and not self.failed


class Command(BaseCommand):
    help = (
        "Add files to the knowledge base, folders with all that is in them. A file that was there is replaced when it "
        "changed. What is skipped is said, with the reason; exit with 1 when a file could not be read, two files would "
        "be the same document, or there was nothing to read."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("path", nargs="+", type=Path, help=f"a folder, or a file of the types {SUFFIXES}")
        whose = parser.add_mutually_exclusive_group()
        whose.add_argument("--agent", help="for this agent alone")
        whose.add_argument("--shared", action="store_true", help="for all agents (default)")

    def handle(self, *, path: list[Path], agent: str | None = None, **options: Any) -> None:
        if agent is not None and registry.find(agent) is None:
            known = ", ".join(sorted(item.name for item in registry.all()))
            raise CommandError(f"There is no agent {agent!r}. Allowed: {known}.")
        if missing := [str(item) for item in path if not item.exists()]:
            raise CommandError(f"There is no file or folder {', '.join(missing)}.")
        if odd := [str(item) for item in path if not item.is_dir() and not item.is_file()]:
            raise CommandError(f"Neither a file nor a folder: {', '.join(odd)}.")
        found = [entry for item in path for entry in _found(item)]
        _require_own_sources(found)
        counts = {"added": 0, "replaced": 0, "unchanged": 0, "skipped": 0, "failed": 0}
        bar = Bar(self.stderr, len(found))
        for entry in found:
            counts[self._take(entry, agent or SHARED)] += 1
            bar.advance()
        told = ", ".join(f"{number} {outcome}" for outcome, number in counts.items())
        if counts["failed"]:
            raise CommandError(f"{told}.")
        if counts["skipped"] == len(found):
            raise CommandError(f"Nothing to read in {', '.join(map(str, path))}; read are {SUFFIXES}. {told}.")
        self.stdout.write(self.style.SUCCESS(f"{told}."))

    def _take(self, entry: Found, agent: str) -> str:
        """Ingest what was found and return what became of it."""
        if entry.skipped:
            self.stdout.write(f"{entry.source}: skipped, {entry.skipped}")
            return "skipped"
        if entry.failed:
            self.stderr.write(f"{entry.source}: failed, {entry.failed}")
            return "failed"
        try:
            content = knowledge.read(_bytes(entry.path), name=entry.source)
            return knowledge.ingest(content, source=entry.source, agent=agent).outcome
        except ConfigurationError as mistake:
            raise CommandError(str(mistake)) from mistake
        except AgentError as problem:
            self.stderr.write(f"{entry.source}: failed, {problem.message}")
        except OSError as problem:
            self.stderr.write(f"{entry.source}: failed, {_told(problem)}")
        return "failed"


def _require_own_sources(found: Sequence[Found]) -> None:
    """Refuse two files of one source: the second would replace the first."""
    taken: dict[str, Found] = {}
    for entry in filter(lambda entry: entry.is_read, found):
        other = taken.setdefault(entry.source, entry)
        if not other.path.samefile(entry.path):
            folder = os.path.commonpath((other.path.resolve(), entry.path.resolve()))
            raise CommandError(
                f"{other.path} and {entry.path} would both be the document {entry.source!r}, and one would replace "
                f"the other; nothing was stored. Name the folder that holds both, {folder}, or rename one of them."
            )


def _found(path: Path) -> Iterator[Found]:
    """Yield each file with its source: its path from the folder that was named, that folder's name first."""
    if not path.is_dir():
        yield Found(path=path, source=path.name)
        return
    unread: list[OSError] = []
    for file in sorted(_inside(path, unread)):
        try:
            yield Found(path=file, source=_source(file, path), skipped=_why_not(file, path))
        except OSError as problem:
            unread.append(problem)
    for error in unread:
        file = Path(error.filename)
        yield Found(path=file, source=_source(file, path), failed=_told(error))


def _inside(folder: Path, unread: list[OSError]) -> Iterator[Path]:
    """Yield what is in a folder and those within, but nothing hidden; note which cannot be read. Follow no link."""
    for parent, folders, files in os.walk(folder, onerror=unread.append):
        links = [name for name in folders if Path(parent, name).is_symlink()]
        yield from (Path(parent, name) for name in (*links, *files) if not name.startswith("."))
        folders[:] = [name for name in folders if not name.startswith(".")]


def _source(file: Path, folder: Path) -> str:
    return (Path(folder.resolve().name) / file.relative_to(folder)).as_posix()


def _why_not(file: Path, folder: Path) -> str:
    """Return why something in a folder is not read, "" for what is."""
    if file.is_symlink():
        if not os.path.exists(file):
            return "a link that leads to nothing"
        target = Path(os.path.realpath(file))
        if not target.is_relative_to(folder.resolve()):
            return "a link that leads out of the folder"
        if target.is_dir():
            return "a link to a folder"
    if not file.is_file():
        return "neither a file nor a folder"
    return "" if reading.media_type_of(file.name) else "this type of file cannot be read"


def _told(problem: OSError) -> str:
    return problem.strerror or type(problem).__name__


def _bytes(file: Path) -> bytes:
    """Return what is in a file, one byte more than allowed at most: the reader refuses it then."""
    with file.open("rb") as opened:
        return opened.read(settings.MAX_DOCUMENT_BYTES + 1)
