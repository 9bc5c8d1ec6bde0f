"""Say which passages a turn was shown: what was retrieved before its first step, and what its searches found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from agentcore.engine.results import Citation, StepSummary
from agentcore.models import AgentContext, ContextEntry, EntryKind
from agentcore.tools.searching import search_knowledge_base

SEARCH = search_knowledge_base.definition.name
NAMES = tuple(item.name for item in fields(Citation))


def citations_of(turn: AgentContext, steps: Sequence[StepSummary]) -> tuple[Citation, ...]:
    """Return the passages in the order they were found, each once; a query only for a turn with `enable_rag`."""
    found: dict[tuple[int, int], Citation] = {}
    for value in (*_retrieved(turn), *_searched(steps)):
        citation = Citation(**{name: value[name] for name in NAMES})
        found.setdefault((citation.document, citation.position), citation)
    return tuple(found.values())


def retrieved_for(turns: Iterable[int]) -> dict[int, list[dict[str, Any]]]:
    """Return by turn what was retrieved for it: one query."""
    entries = ContextEntry.objects.filter(turn_id__in=list(turns), kind=EntryKind.RETRIEVED).order_by("id")
    found: dict[int, list[dict[str, Any]]] = {}
    for turn, value in entries.values_list("turn_id", "value"):
        found.setdefault(turn, []).append(value)
    return found


def _retrieved(turn: AgentContext) -> list[dict[str, Any]]:
    return retrieved_for([turn.pk]).get(turn.pk, []) if turn.enable_rag else []


def _searched(steps: Sequence[StepSummary]) -> Iterator[Mapping[str, Any]]:
    for step in steps:
        for call in step.tool_calls:
            if call.tool == SEARCH and isinstance(call.result, Mapping):
                yield from (item for item in _listed(call.result.get("passages")) if set(NAMES) <= set(item))


def _listed(value: Any) -> list[Mapping[str, Any]]:
    # A tool of the project's own may have this name.
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
