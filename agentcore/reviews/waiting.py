"""What waits for a reviewer, a page at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Case, Count, Exists, F, IntegerField, JSONField, Max, Subquery, TextField, When
from django.db.models.functions import Cast, Coalesce, Left, Length

from agentcore.approvals import decisions, permissions
from agentcore.exceptions import NotFound
from agentcore.models import ToolApproval
from agentcore.models.approvals import ApprovalQuerySet, votes_for
from agentcore.reviews import filters
from agentcore.reviews.filters import Choices, Place
from agentcore.states import ApprovalKind

PAGE_SIZE = 50
# Characters of JSON: longer arguments are read on the request's own page, and not loaded for the list.
LISTED_ARGUMENTS = 8_000
LISTED_PREVIEW = 200

# A row of the list needs these; the arguments of other columns may be large.
_COLUMNS = (
    "kind",
    "status",
    "version",
    "tool",
    "permission",
    "is_unroutable",
    "requester_name",
    "requester_key",
    "requester_id",
    "four_eyes",
    "votes_needed",
    "requested_at",
    "expires_at",
    "agent__name",
    "call__sensitive",
)


@dataclass(frozen=True, kw_only=True)
class Page:
    """A part of the queue. `next_edge` is the id from which the following part begins, None at the end.

    `fitting` counts all that fits the filter, on every page.
    """

    approvals: list[Any]
    next_edge: int | None
    choices: Choices
    unroutable: int
    fitting: int


@dataclass(frozen=True, kw_only=True)
class Tally:
    """How many requests wait for a person's decision, and the newest one's id (0 for none)."""

    pending: int
    newest: int


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """The requests before and after one in the queue of what a person may decide; None at its ends."""

    previous: int | None
    next: int | None


def read_page(user: Any, place: Place) -> Page:
    """Return the part of the queue at `place`: what `user` may decide, and their own requests."""
    visible = filters.scope(_pending(), user, place.filter.whose)
    fitting = place.filter.narrow(visible, user)
    wanted = with_votes(with_small_parts(fitting), user)
    if place.edge is not None:
        wanted = wanted.filter(pk__lt=place.edge) if place.newest_first else wanted.filter(pk__gt=place.edge)
    found = list(wanted.order_by("-pk" if place.newest_first else "pk")[: PAGE_SIZE + 1])
    approvals = found[:PAGE_SIZE]
    return Page(
        approvals=approvals,
        next_edge=approvals[-1].pk if len(found) > PAGE_SIZE else None,
        choices=filters.choices(visible, user, place.filter),
        unroutable=_pending().visible_to(user).filter(is_unroutable=True).count(),
        fitting=fitting.count(),
    )


def with_small_parts(approvals: ApprovalQuerySet) -> Any:
    """Load what a row of the list shows.

    Adds `arguments_length` (characters of JSON), `small_arguments` (None when they are longer than the list
    takes) and `small_preview`, and the same of a late result: one huge request makes no list huge.
    """
    return (
        approvals.select_related("agent", "call")
        .only(*_COLUMNS)
        .annotate(
            arguments_length=Length(Cast("arguments", TextField())),
            small_arguments=Case(
                When(arguments_length__lte=LISTED_ARGUMENTS, then=F("arguments")), output_field=JSONField()
            ),
            small_preview=Left("preview", LISTED_PREVIEW + 1),
            late_length=Case(
                When(kind=ApprovalKind.OUTCOME, then=Length(Cast("call__late_result", TextField()))),
                output_field=IntegerField(),
            ),
            small_late_result=Case(
                When(late_length__lte=LISTED_ARGUMENTS, then=F("call__late_result")), output_field=JSONField()
            ),
        )
    )


def with_votes(approvals: Any, user: Any) -> Any:
    """Add `votes_given` for the present version, and `has_voted`: whether one of them is `user`'s."""
    counted = votes_for().values("approval").annotate(given=Count("pk")).values("given")
    return approvals.annotate(
        votes_given=Coalesce(Subquery(counted), 0), has_voted=Exists(votes_for().filter(actor_key=str(user.pk)))
    )


def find_listed(user: Any, ids: list[int]) -> dict[int, Any]:
    """Return those of the requests that exist for `user`, by id, loaded as for the list."""
    present: Any = ToolApproval.objects.filter(session__deleted_at=None, pk__in=ids)
    return {approval.pk: approval for approval in with_small_parts(present.visible_to(user))}


def tally(user: Any) -> Tally:
    """Count what waits for `user`, as the socket's snapshot does."""
    counted = _pending().waiting_for(user).aggregate(pending=Count("pk"), newest=Max("pk"))
    return Tally(pending=counted["pending"], newest=counted["newest"] or 0)


def neighbours(user: Any, approval_id: int, place: Place) -> Neighbours:
    """Return what is before and after a request in the part of the queue that `place` asks for, in its order."""
    whose, pending = place.filter.whose, _pending()
    is_wider = whose in (filters.OWN, filters.ALL)
    queue = filters.scope(pending, user, whose) if is_wider else pending.waiting_for(user)
    ids = place.filter.narrow(queue, user).values_list("pk", flat=True)
    older = ids.filter(pk__lt=approval_id).order_by("-pk").first()
    newer = ids.filter(pk__gt=approval_id).order_by("pk").first()
    return Neighbours(previous=newer, next=older) if place.newest_first else Neighbours(previous=older, next=newer)


def find_visible(user: Any, approval_id: int) -> ToolApproval | None:
    """Return a request in any status, or None when it does not exist for `user`."""
    try:
        approval = decisions.get(approval_id)
    except NotFound:
        return None
    return approval if permissions.can_view(user, approval) else None


def _pending() -> Any:
    return ToolApproval.objects.pending().filter(session__deleted_at=None)
