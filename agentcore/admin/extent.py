"""How much of a request a page shows. What a list's page does not show wholly cannot be approved from there."""

from __future__ import annotations

from typing import Any

from django.db.models import Case, F, JSONField, QuerySet, TextField, When
from django.db.models.functions import Cast, Length
from django.utils.translation import gettext_lazy as _

from agentcore.admin import display
from agentcore.admin.ways import APPROVE, Text, Way
from agentcore.models import ToolApproval
from agentcore.states import ApprovalKind

# On a page with few requests each is shown at more length; on a request's own page, whole.
FEW = 20
SHOWN_FEW, SHOWN_MANY, SHOWN_ALONE = 5_000, 500, 2**31 - 1


def of_each(number: int, *, is_alone: bool = False) -> int:
    """Return how many characters of a request's arguments, and of its preview, a page with so many requests shows."""
    if is_alone:
        return SHOWN_ALONE
    return SHOWN_FEW if number <= FEW else SHOWN_MANY


def with_small_arguments(queryset: QuerySet[ToolApproval], *, limit: int) -> QuerySet[ToolApproval]:
    """Add `arguments_length` (characters of JSON), and `small_arguments`, None when they are longer than `limit`.

    With `arguments` itself deferred, one huge request does not make a list huge.
    """
    return queryset.annotate(
        arguments_length=Length(Cast("arguments", TextField())),
        small_arguments=Case(When(arguments_length__lte=limit, then=F("arguments")), output_field=JSONField()),
    )


def with_small_parts(queryset: QuerySet[ToolApproval], *, limit: int) -> QuerySet[ToolApproval]:
    """Add the same of the preview: `preview_length` and `small_preview`."""
    return with_small_arguments(queryset, limit=limit).annotate(
        preview_length=Length("preview"),
        small_preview=Case(When(preview_length__lte=limit, then=F("preview")), output_field=TextField()),
    )


def why_not_here(way: Way, approval: Any) -> Text:
    """Return why a request that `with_small_parts` read cannot be decided so on a list's page, "" when it can."""
    if approval.kind == ApprovalKind.OUTCOME:
        return _("Nobody knows how this call ended: decide it on its own page.")
    if way is APPROVE and (approval.small_arguments is None or approval.small_preview is None):
        return _("This one is too long to approve here: open it.")
    return ""


def shown_arguments(approval: Any) -> str:
    """Return small arguments as a block, and of large ones how long they are and where to read them."""
    if approval.small_arguments is None:
        length = display.characters(approval.arguments_length)
        return _("Arguments of %(length)s, shown on the request's own page.") % {"length": length}
    return display.pretty(approval.small_arguments, approval.call.sensitive)


def shown_preview(approval: Any) -> str:
    """Return the same of the preview, "" when there is none."""
    if approval.small_preview is None:
        length = display.characters(approval.preview_length)
        return _("A preview of %(length)s, shown on the request's own page.") % {"length": length}
    return display.block(approval.small_preview) if approval.small_preview else ""
