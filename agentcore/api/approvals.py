"""Approvals: what waits for whom, and the decisions on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import connections, transaction
from django.db.models import QuerySet
from django_filters import rest_framework as filters
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from agentcore.api import parsing
from agentcore.api.base import ApiView, ListView
from agentcore.api.errors import absent
from agentcore.api.operations import described
from agentcore.api.serializers.approvals import (
    ApprovalSerializer,
    Approve,
    DecisionResultsSerializer,
    ManyDecisions,
    Reject,
    Respond,
)
from agentcore.approvals import decisions, permissions, several, shown
from agentcore.exceptions import AgentError, NotFound, PermissionDenied, RateLimited
from agentcore.models import ToolApproval
from agentcore.states import ApprovalKind, ApprovalStatus, Channel, Verdict

ID_PARAMETER = OpenApiParameter("id", OpenApiTypes.INT, OpenApiParameter.PATH)

DECIDE: dict[str, Callable[..., ToolApproval]] = {
    Verdict.APPROVE: decisions.approve,
    Verdict.REJECT: decisions.reject,
    Verdict.RESPOND: decisions.respond,
}


class ApprovalFilter(filters.FilterSet):  # type: ignore[misc]  # django-filter carries no types
    """Approvals by what they are and where they come from."""

    status = filters.ChoiceFilter(choices=ApprovalStatus.choices)
    kind = filters.ChoiceFilter(choices=ApprovalKind.choices)
    agent = filters.CharFilter("agent__name")
    tool = filters.CharFilter("tool")
    session_id = filters.CharFilter("session__session_id")
    execution_id = filters.UUIDFilter("turn__execution_id")


class ApprovalList(ListView):
    """The approvals you may decide on, newest first."""

    serializer_class = ApprovalSerializer
    filterset_class = ApprovalFilter

    def get_queryset(self) -> QuerySet[ToolApproval]:
        yours: QuerySet[ToolApproval] = ToolApproval.objects.for_reviewer(self.request.user)
        return shown.with_parts(yours.filter(session__deleted_at=None))

    @described("approvals_list")
    def get(self, request: Request) -> Response:
        """List the approvals you may decide on, of any status unless one is asked for."""
        return self.list(request)


class ApprovalDetail(ApiView):
    """One approval."""

    @described("approvals_retrieve", parameters=[ID_PARAMETER], responses=ApprovalSerializer)
    def get(self, request: Request, id: str) -> Response:
        """Return an approval you may decide on, or view."""
        approval = _find(_number(id))
        if approval is None or not permissions.can_view(request.user, approval):
            raise absent()
        return Response(ApprovalSerializer(approval).data)


class ApprovalApprove(ApiView):
    """Allow the call."""

    @described("approvals_approve", parameters=[ID_PARAMETER], request=Approve, responses=ApprovalSerializer)
    def post(self, request: Request, id: str) -> Response:
        """Allow the call, with edited arguments in place of those shown if they are given."""
        approval = _decide(request.user, _number(id), Verdict.APPROVE, self.given(Approve))
        return Response(ApprovalSerializer(decisions.get(approval.pk)).data)


class ApprovalReject(ApiView):
    """Refuse the call."""

    @described("approvals_reject", parameters=[ID_PARAMETER], request=Reject, responses=ApprovalSerializer)
    def post(self, request: Request, id: str) -> Response:
        """Refuse the call; the model is told the reason word for word."""
        approval = _decide(request.user, _number(id), Verdict.REJECT, self.given(Reject))
        return Response(ApprovalSerializer(decisions.get(approval.pk)).data)


class ApprovalRespond(ApiView):
    """Answer in place of the tool."""

    @described("approvals_respond", parameters=[ID_PARAMETER], request=Respond, responses=ApprovalSerializer)
    def post(self, request: Request, id: str) -> Response:
        """Give the model a result in place of running the tool."""
        approval = _decide(request.user, _number(id), Verdict.RESPOND, self.given(Respond))
        return Response(ApprovalSerializer(decisions.get(approval.pk)).data)


class ApprovalDecideMany(ApiView):
    """Decide on several approvals."""

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Any:
        """Return the view, kept out of ATOMIC_REQUESTS: each decision has a transaction of its own."""
        view = super().as_view(**initkwargs)
        for alias in connections:
            view = transaction.non_atomic_requests(using=alias)(view)
        return view

    @described("approvals_decide", request=ManyDecisions, responses=DecisionResultsSerializer)
    def post(self, request: Request) -> Response:
        """Decide on each of a list, in its order; what stands against one does not touch the others."""
        given = self.given(ManyDecisions)["decisions"]
        return Response({"results": [_decide_one(request.user, item) for item in given]})


def _decide_one(user: Any, item: dict[str, Any]) -> dict[str, Any]:
    try:
        approval = several.one(item["id"], lambda: _decide(user, item["id"], item["verdict"], item["fields"]))
    except AgentError as error:
        return {"id": item["id"], "error": {"code": error.code, "message": error.message}}
    return {"id": item["id"], "status": approval.status}


def _decide(user: Any, number: int, verdict: str, fields: dict[str, Any]) -> ToolApproval:
    """Decide, and return the approval. Also an attempt by somebody for whom there is none is recorded."""
    try:
        return DECIDE[verdict](number, user, channel=Channel.API, **fields)
    except NotFound as error:
        raise absent() from error
    except (PermissionDenied, RateLimited) as error:
        approval = _find(number)
        if approval is None or not permissions.can_view(user, approval):
            raise absent() from error
        raise


def _find(number: int) -> ToolApproval | None:
    try:
        return decisions.get(number)
    except NotFound:
        return None


def _number(text: str) -> int:
    """Return the id that a path holds; 0, which none has, for what is no id."""
    return parsing.find_number(text) or 0
