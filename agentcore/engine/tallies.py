"""Count what became of turns, calls, model calls and requests: one grouped query for each, true over all processes.

A turn's calls, replies and requests are counted with the turn: its end is the one time that needs an index, and a
row that has its outcome never changes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import Case, Count, DurationField, ExpressionWrapper, F, Q, QuerySet, Sum, Value, When
from django.db.models.fields.json import KT

from agentcore.agents.registry import registry
from agentcore.drivers.registry import BUILT_IN
from agentcore.models import AgentContext, AgentRevision, AgentStep, ToolApproval, ToolCall
from agentcore.states import ApprovalStatus, CallStatus, StepState

TURN, CALL, MODEL, APPROVAL = "turn", "call", "model", "approval"

# What models invent and projects have removed shares one name: names are labels, and labels must be few.
UNKNOWN = "unknown"
OTHER = "other"

# Outcomes of calls besides those that a call's status names.
TIMED_OUT, NOT_RUN = "timed_out", "not_run"
REPLIED, FAILED = "replied", "failed"

# The codes that the error of a turn may have; a driver may invent others.
CODES = frozenset(
    {
        "approval_expired",
        "cancelled",
        "driver_error",
        "driver_unavailable",
        "internal",
        "max_steps",
        "outcome_unknown",
        "process_restarted",
        "refused",
        "too_large",
        "turn_timeout",
        "unavailable",
    }
)


class Key(NamedTuple):
    """What is counted: an outcome of one agent's turns, one tool's calls, one model's calls, one kind of request."""

    subject: str
    label: str
    outcome: str
    detail: str = ""


@dataclass(kw_only=True)
class Tally:
    """How often, for how many seconds in all, and with how many tokens."""

    count: int = 0
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0

    def add(self, other: Tally) -> None:
        self.count += other.count
        self.seconds += other.seconds
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens


class Tallies(dict[Key, Tally]):
    """Tallies by what they count."""

    def add(self, key: Key, tally: Tally) -> None:
        # A tally of its own: adding to it must not change somebody else's.
        self.setdefault(key, Tally()).add(tally)

    def add_all(self, others: Iterable[tuple[Key, Tally]]) -> None:
        for key, tally in others:
            self.add(key, tally)

    def of(self, subject: str, *, known: set[str] | None = None) -> list[tuple[Key, Tally]]:
        """Return what is counted of one subject, in order; labels that are not `known` are one, "unknown"."""
        found = Tallies()
        for key, tally in self.items():
            if key.subject == subject:
                is_known = known is None or key.label in known
                found.add(key if is_known else key._replace(label=UNKNOWN), tally)
        return sorted(found.items(), key=lambda item: item[0])


@dataclass(frozen=True, kw_only=True)
class Span:
    """The turns that ended from `begin` to before `end`; without an end also those that have not ended.

    What happened in a turn before `counted_from` is left out.
    """

    begin: datetime | None = None
    end: datetime | None = None
    counted_from: datetime | None = None

    def ended(self, turn: str = "") -> Q:
        """Keep the turns that ended within the span; `turn` leads to them from another row."""
        found = Q(**{f"{turn}completed_at__isnull": False})
        if self.begin is not None:
            found &= Q(**{f"{turn}completed_at__gte": self.begin})
        return found if self.end is None else found & Q(**{f"{turn}completed_at__lt": self.end})

    def within(self) -> Q:
        """Keep rows of the span's turns. One condition for both sorts: a turn that ends meanwhile is met once."""
        ended = self.ended("turn__")
        return ended if self.end is not None else ended | Q(turn__active_session__isnull=False)

    def since(self, field: str) -> Q:
        """Keep the rows whose time in `field` is there, and not before the count began."""
        happened = Q(**{f"{field}__isnull": False})
        return happened if self.counted_from is None else Q(**{f"{field}__gte": self.counted_from})


def count(span: Span) -> Tallies:
    """Return everything that is counted of a span: four queries, and one for the models' names."""
    found = Tallies()
    for counted in (_turns, _calls, _model_calls, _approvals):
        found.add_all(counted(span))
    return found


def known_tools() -> set[str]:
    """Return the names of the tools that agents of this process have."""
    return {name for definition in registry.all() for name in definition.tools}


def known_agents() -> set[str]:
    """Return the names of the agents of this process."""
    return {definition.name for definition in registry.all()}


def _turns(span: Span) -> Iterable[tuple[Key, Tally]]:
    grouped = _grouped(
        AgentContext.objects.filter(span.ended()),
        label=F("agent__name"),
        outcome=F("state"),
        code=KT("error__code"),
        seconds=Sum("worked_seconds"),
    )
    for row in grouped:
        detail = row["code"] if row["code"] in CODES else OTHER if row["code"] else ""
        yield Key(TURN, row["label"], row["outcome"], detail), _tally(row)


def _calls(span: Span) -> Iterable[tuple[Key, Tally]]:
    failed = Q(status=CallStatus.FAILED)
    outcome = Case(
        When(failed & Q(attempts=0), then=Value(NOT_RUN)),
        When(failed & Q(error__code="timeout"), then=Value(TIMED_OUT)),
        default=F("status"),
    )
    # Named by what is deployed, in the database: of ten thousand invented names one row comes back.
    label = Case(*(When(tool=name, then=Value(name)) for name in sorted(known_tools())), default=Value(UNKNOWN))
    grouped = _grouped(
        ToolCall.objects.filter(span.within(), span.since("completed_at")),
        label=label,
        outcome=outcome,
        seconds=Sum("duration"),
    )
    for row in grouped:
        yield Key(CALL, row["label"], row["outcome"]), _tally(row)


def _model_calls(span: Span) -> Iterable[tuple[Key, Tally]]:
    """Count replies, and steps that failed without one. Attempts that a later one made good leave no row."""
    replied = Q(message__isnull=False)
    grouped = _grouped(
        AgentStep.objects.filter(span.within(), span.since("started_at")).filter(replied | Q(state=StepState.FAILED)),
        revision=F("turn__revision_id"),
        outcome=Case(When(replied, then=Value(REPLIED)), default=Value(FAILED)),
        input_tokens=Sum("input_tokens"),
        output_tokens=Sum("output_tokens"),
    )
    models = _models({row["revision"] for row in grouped})
    for row in grouped:
        if model := models.get(row["revision"]):
            yield Key(MODEL, model, row["outcome"]), _tally(row)


def _approvals(span: Span) -> Iterable[tuple[Key, Tally]]:
    waited = ExpressionWrapper(F("decided_at") - F("requested_at"), output_field=DurationField())
    decided = ToolApproval.objects.filter(span.within(), span.since("decided_at"))
    grouped = _grouped(
        decided.exclude(status=ApprovalStatus.PENDING), label=F("kind"), outcome=F("status"), waited=Sum(waited)
    )
    for row in grouped:
        row["seconds"] = row["waited"].total_seconds() if row["waited"] else 0.0
        yield Key(APPROVAL, row["label"], row["outcome"]), _tally(row)


def _grouped(rows: QuerySet[Any], **columns: Any) -> list[dict[str, Any]]:
    """Return one dict for each group: what `columns` group by and sum up, and the number of `rows`."""
    # No annotation may bear a field's name.
    groups = {f"group_{name}": column for name, column in columns.items() if not isinstance(column, Sum)}
    sums = {f"sum_{name}": column for name, column in columns.items() if isinstance(column, Sum)}
    counted = rows.order_by().annotate(**groups).values(*groups).annotate(sum_rows=Count("pk"), **sums)
    return [{name.partition("_")[2]: value for name, value in row.items()} for row in counted]


def _models(revisions: set[int]) -> dict[int, str]:
    """Return the model that each revision pins; one that another driver runs has none that is known here."""
    pinned = AgentRevision.objects.filter(pk__in=revisions).values_list("pk", "definition")
    return {pk: found["model"] for pk, found in pinned if found["driver"] == BUILT_IN}


def _tally(row: dict[str, Any]) -> Tally:
    return Tally(
        count=row["rows"],
        seconds=row.get("seconds") or 0.0,
        input_tokens=row.get("input_tokens") or 0,
        output_tokens=row.get("output_tokens") or 0,
    )
