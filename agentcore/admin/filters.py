"""The filters of the list of approvals. None of them lists sessions or users."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from agentcore import clock
from agentcore.approvals.record import COUNTED
from agentcore.approvals.visible import made_visible
from agentcore.models import ApprovalDecision
from agentcore.states import ApprovalStatus

ALL = "all"


class StatusFilter(admin.SimpleListFilter):
    """Shows what is pending unless something else is asked for."""

    title = _("status")
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [*ApprovalStatus.choices, (ALL, _("All"))]

    def value(self) -> str:
        return super().value() or ApprovalStatus.PENDING

    def choices(self, changelist: Any) -> Iterator[Any]:
        for value, label in self.lookup_choices:
            yield {
                "selected": value == self.value(),
                "query_string": changelist.get_query_string({self.parameter_name: value}),
                "display": label,
            }

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == ALL:
            return queryset
        return queryset.filter(status=self.value()) if self.value() in ApprovalStatus else queryset.none()


class ToolFilter(admin.AllValuesFieldListFilter):
    """Offers the tools that were asked for, their names as a reader can trust them."""

    def choices(self, changelist: Any) -> Iterator[Any]:
        for choice in super().choices(changelist):
            yield {**choice, "display": made_visible(str(choice["display"]))}


class ChoiceFilter(admin.SimpleListFilter):
    """Offers named conditions. A name it does not have finds nothing."""

    def conditions(self) -> dict[str, tuple[Any, Q]]:
        """Return the label and the condition of each name."""
        raise NotImplementedError

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(name, label) for name, (label, condition) in self.conditions().items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() is None:
            return queryset
        found = self.conditions().get(str(self.value()))
        return queryset.filter(found[1]) if found else queryset.none()


class AgeFilter(ChoiceFilter):
    title = _("age")
    parameter_name = "age"

    def conditions(self) -> dict[str, tuple[Any, Q]]:
        now = clock.now()
        hour, day, week = (now - timedelta(**{unit: 1}) for unit in ("hours", "days", "weeks"))
        return {
            "new": (_("Up to an hour"), Q(requested_at__gte=hour)),
            "hour": (_("Over an hour"), Q(requested_at__lt=hour)),
            "day": (_("Over a day"), Q(requested_at__lt=day)),
            "week": (_("Over a week"), Q(requested_at__lt=week)),
        }


class VotesFilter(ChoiceFilter):
    title = _("votes")
    parameter_name = "votes"

    def conditions(self) -> dict[str, tuple[Any, Q]]:
        votes = ApprovalDecision.objects.filter(COUNTED, approval=OuterRef("pk"), approval_version=OuterRef("version"))
        several = Q(votes_needed__gt=1)
        return {
            "several": (_("Several needed"), several),
            "begun": (_("Some given, more needed"), several & Q(Exists(votes), status=ApprovalStatus.PENDING)),
        }


class RoutableFilter(ChoiceFilter):
    title = _("who may decide")
    parameter_name = "routable"

    def conditions(self) -> dict[str, tuple[Any, Q]]:
        return {
            "no": (_("Too few people"), Q(is_unroutable=True)),
            "yes": (_("Enough people"), Q(is_unroutable=False)),
        }
