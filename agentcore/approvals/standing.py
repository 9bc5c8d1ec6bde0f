"""Read a request under its session's lock, in one statement with what its decision depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.db.models import BooleanField, Exists, ExpressionWrapper, OuterRef, Q, QuerySet

from agentcore import clock, database
from agentcore.approvals import record
from agentcore.events.log import Journal
from agentcore.exceptions import NotFound
from agentcore.models import ApprovalDecision, ApprovalLink, ToolApproval, ToolCall
from agentcore.states import ApprovalStatus

# Of the turn, its session and its agent: what a decision looks at, and what the log needs.
_OF_OTHERS = (
    "turn__execution_id",
    "turn__state",
    "session__session_id",
    "session__last_sequence",
    "session__last_hash",
    "session__deleted_at",
    "agent__name",
)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A request as it stands, which only who holds the lock can change.

    `is_over` says that its time is, by the database's clock; `is_last` that nothing else of its turn waits for a
    decision; `has_links` that it names rows it is about. `votes` are those that count for the present version.
    """

    approval: ToolApproval
    is_over: bool
    is_last: bool
    has_links: bool
    votes: Sequence[ApprovalDecision]

    def links(self) -> Sequence[ApprovalLink]:
        """Return the rows that the request is about."""
        return list(self.approval.links.all()) if self.has_links else ()


def session_of(approval_id: Any) -> int:
    """Return the key of a request's session, whose lock comes first; raise NotFound."""
    try:
        found: int = ToolApproval.objects.values_list("session_id", flat=True).get(pk=as_pk(approval_id))
    except ToolApproval.DoesNotExist:
        raise absent(approval_id) from None
    return found


def get(journal: Journal, approval_id: Any) -> Standing:
    """Return how a request stands; raise NotFound. The caller holds the lock of its session."""
    found = find(journal, as_pk(approval_id))
    if found is None or found.approval.session.deleted_at is not None:
        raise absent(approval_id)
    return found


def find(journal: Journal, pk: int) -> Standing | None:
    """Return how a request stands, of a deleted session too; None where there is none."""
    is_over = ExpressionWrapper(Q(expires_at__lte=clock.db_now()), BooleanField())
    try:
        approval: Any = _wanted(database.alias()).annotate(is_over=is_over).get(pk=pk)
    except ToolApproval.DoesNotExist:
        return None
    journal.session = approval.session
    # What was asked about the row leaves it again: it is true under the lock only.
    asked = {name: bool(vars(approval).pop(name)) for name in ("is_over", "others_wait", "has_links")}
    return Standing(
        approval=approval,
        is_over=asked["is_over"] and approval.status == ApprovalStatus.PENDING,
        is_last=not asked["others_wait"],
        has_links=asked["has_links"],
        votes=_votes(approval),
    )


@cache
def _wanted(alias: str) -> QuerySet[ToolApproval]:
    """Return the query for what a decision needs, made once: it has many parts. What else is asked for is read then."""
    own = [field.name for field in ToolApproval._meta.concrete_fields]
    of_call = [f"call__{field.name}" for field in ToolCall._meta.concrete_fields]
    wanted: QuerySet[ToolApproval] = ToolApproval.objects.using(alias).select_related(
        "call", "turn", "session", "agent"
    )
    return wanted.only(*own, *of_call, *_OF_OTHERS).annotate(
        others_wait=Exists(_others()),
        has_links=Exists(ApprovalLink.objects.order_by().filter(approval=OuterRef("pk"))),
    )


def _others() -> Any:
    """Return the query for the other pending requests of a request's turn."""
    return ToolApproval.objects.pending().order_by().filter(turn=OuterRef("turn")).exclude(pk=OuterRef("pk"))


def _votes(approval: ToolApproval) -> Sequence[ApprovalDecision]:
    # Where one vote decides, one that still waits has none.
    if approval.status == ApprovalStatus.PENDING and approval.votes_needed == 1:
        return ()
    return record.counted(approval)


def as_pk(approval_id: Any) -> int:
    """Return the key that an id stands for, 0 for a number that is nobody's; raise NotFound for what is no id."""
    try:
        number = int(approval_id) if isinstance(approval_id, str) else approval_id
    except ValueError as error:
        raise NotFound(f"There is no approval {approval_id!r}.") from error
    if not isinstance(number, int) or isinstance(number, bool):
        raise NotFound(f"There is no approval {approval_id!r}.")
    return number if 0 < number < 2**63 else 0


def absent(approval_id: Any) -> NotFound:
    """Return the error for a request that does not exist for the caller."""
    return NotFound(f"There is no approval {approval_id}.", approval_id=str(approval_id))
