"""Embed again what another embedder embedded; to be run after EMBEDDER or VECTOR_INDEX was changed."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentcore import knowledge  # noqa: F401 - makes its collection known
from agentcore.exceptions import ConfigurationError, Unavailable
from agentcore.management.progress import Bar
from agentcore.vectors import reembedding, sources
from agentcore.vectors.base import Kind
from agentcore.vectors.sources import Source


class Command(BaseCommand):
    help = (
        "Embed with the present EMBEDDER what has no vector of it in the present VECTOR_INDEX. "
        "It can be stopped and started again; nothing is dropped but vectors whose texts are gone."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        known = ", ".join(source.collection for source in sources.registered())
        parser.add_argument("collection", nargs="*", help=f"embed these alone (default: all of {known})")

    def handle(self, *args: Any, collection: list[str], **options: Any) -> None:
        chosen = self._chosen(collection)
        try:
            kind = reembedding.current_kind()
            for source in chosen:
                self._renew(source, kind)
        except (Unavailable, ConfigurationError) as problem:
            raise CommandError(f"{problem} What was embedded before stays; run the command again.") from problem

    def _chosen(self, names: list[str]) -> list[Source]:
        known = {source.collection: source for source in sources.registered()}
        if unknown := [name for name in names if name not in known]:
            raise CommandError(f"There is no collection {', '.join(unknown)}. Allowed: {', '.join(known)}.")
        return [known[name] for name in names] if names else list(known.values())

    def _renew(self, source: Source, kind: Kind) -> None:
        total = source.count()
        renewed = reembedding.renew(source, kind, tell=Bar(self.stderr, total).advance)
        removed = reembedding.sweep(source)
        text = f"{source.collection}: {total} texts, {renewed} embedded by {kind.embedder} ({kind.dimension} numbers)."
        if removed:
            text += f" {removed} vectors of what is gone were dropped."
        self.stdout.write(self.style.SUCCESS(text))
