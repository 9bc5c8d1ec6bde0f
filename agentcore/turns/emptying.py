"""Take the content out of turns' rows: what was said goes; that it happened, when, and its digests stay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from django.db.models import F, Model, Q, QuerySet

from agentcore.models import (
    AgentContext,
    AgentStep,
    ApprovalDecision,
    ApprovalLink,
    ContextEntry,
    SessionEvent,
    ToolApproval,
    ToolCall,
    UserQuestion,
)

# So many keys a statement names at most.
AT_ONCE = 500
# They keep the shapes that readers rely on.
NO_INPUT = {"role": "user", "content": ""}
NO_REPLY = {"role": "assistant", "content": ""}

# What each field holds once it is emptied.
BLANKS: dict[type[Model], dict[str, Any]] = {
    AgentContext: {
        "input": NO_INPUT,
        "response": None,
        "question": None,
        "metadata": {},
        "idempotency_key": "",
        "body_digest": "",
    },
    ToolCall: {
        "raw_arguments": "",
        "arguments": None,
        "proposed_arguments": None,
        "result": None,
        "late_result": None,
    },
    ToolApproval: {"arguments": {}, "approved_arguments": None, "response": None, "preview": "", "reason": ""},
    UserQuestion: {"question": "", "answer": None, "body_digest": ""},
}
WITH_ERRORS: tuple[type[Model], ...] = (AgentContext, AgentStep, ToolCall)


def empty(turns: Sequence[int], *, now: datetime) -> dict[str, int]:
    """Take the content out of turns that ended and of all their rows; return how many rows of each kind they have.

    Notes of decisions stay. The caller holds the session's lock.
    """
    counts = {str(model._meta.verbose_name_plural): _empty(model, turns) for model in BLANKS}
    replied = AgentStep.objects.filter(turn__in=turns, message__isnull=False)
    counts["steps"] = replied.update(message=NO_REPLY)
    counts["events"] = _events(turns).filter(data__isnull=False).update(data=None)
    counts["context entries"] = ContextEntry.objects.filter(turn__in=turns).delete()[0]
    counts["links"] = ApprovalLink.objects.filter(approval__turn__in=turns).delete()[0]
    for model in WITH_ERRORS:
        _shorten_errors(model, turns)
    # Who still holds one, to tell what is kept of it, holds it no more.
    AgentContext.objects.filter(pk__in=turns).update(
        erased_at=now, deleted_at=now, updated_at=now, remember_at=None, lease_token=F("lease_token") + 1
    )
    return counts


def empty_notes(turns: Sequence[int]) -> int:
    """Take away what people wrote with their decisions; return on how many."""
    noted = ApprovalDecision.objects.filter(approval__turn__in=turns).exclude(note="")
    # By key: MariaDB updates no table that it reads in the same statement.
    return int(ApprovalDecision.objects.filter(pk__in=list(noted.values_list("pk", flat=True))).update(note=""))


def left(turn: AgentContext) -> Iterator[str]:
    """Yield a sentence for each row of an emptied turn that holds content all the same."""
    for row, names in _held([turn.pk]):
        if names:
            yield f"it was emptied, and {_name(row)} still has {', '.join(names)}."
    for sequence in _events([turn.pk]).filter(data__isnull=False).values_list("sequence", flat=True):
        yield f"it was emptied, and event {sequence} still has data."
    if ContextEntry.objects.filter(turn=turn).exists():
        yield "it was emptied, and context entries are left."
    if ApprovalLink.objects.filter(approval__turn=turn).exists():
        yield "it was emptied, and links of its approvals are left."


def _held(turns: Sequence[int]) -> Iterator[tuple[Model, list[str]]]:
    """Yield each row with the names of its fields that are not empty."""
    for model, blanks in BLANKS.items():
        for row in _rows(model, turns):
            yield row, [name for name, blank in blanks.items() if getattr(row, name) != blank]
    for step in _rows(AgentStep, turns):
        yield step, [] if step.message in (None, NO_REPLY) else ["message"]
    for model in WITH_ERRORS:
        for row in _rows(model, turns):
            yield row, [] if row.error == _short(row.error) else ["error"]


def _empty(model: type[Model], turns: Sequence[int]) -> int:
    return int(_rows(model, turns).update(**BLANKS[model]))


def _rows(model: Any, turns: Sequence[int]) -> QuerySet[Any]:
    found: QuerySet[Any] = model.objects.filter(Q(pk__in=turns) if model is AgentContext else Q(turn__in=turns))
    return found.order_by("pk")


def _events(turns: Sequence[int]) -> QuerySet[SessionEvent]:
    names = list(AgentContext.objects.filter(pk__in=turns).values_list("execution_id", flat=True))
    events: QuerySet[SessionEvent] = SessionEvent.objects.filter(turn__in=names)
    return events


def _shorten_errors(model: type[Model], turns: Sequence[int]) -> None:
    """Leave of each error its code: what it says may quote what a user or a tool wrote."""
    by_code: dict[str | None, list[int]] = {}
    for pk, error in _rows(model, turns).filter(error__isnull=False).values_list("pk", "error"):
        by_code.setdefault((_short(error) or {}).get("code"), []).append(pk)
    for code, pks in by_code.items():
        short = None if code is None else _short({"code": code})
        for start in range(0, len(pks), AT_ONCE):
            model._default_manager.filter(pk__in=pks[start : start + AT_ONCE]).update(error=short)


def _short(error: Any) -> dict[str, Any] | None:
    code = error.get("code") if isinstance(error, dict) else None
    return {"code": code, "message": "", "details": {}} if isinstance(code, str) else None


def _name(row: Any) -> str:
    return "its own row" if isinstance(row, AgentContext) else f"{row._meta.verbose_name} {row.pk}"
