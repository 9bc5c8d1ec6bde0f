"""Copy what people decide to the history that Django's admin shows: of the request, and of the rows it is about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.apps import apps
from django.db import router

from agentcore import database
from agentcore.approvals.previews import Link
from agentcore.models import ApprovalDecision, ApprovalLink, ToolApproval
from agentcore.states import ApprovalKind, Verdict

DIGEST_LENGTH = 12
MAX_REPR = 200
CHANGE = 2  # django.contrib.admin.models.CHANGE: that module cannot be imported where the admin is not installed

_WORDS = {
    (ApprovalKind.CALL, Verdict.APPROVE): "Approved",
    (ApprovalKind.CALL, Verdict.REJECT): "Rejected",
    (ApprovalKind.CALL, Verdict.RESPOND): "Answered in the tool's place",
    (ApprovalKind.OUTCOME, Verdict.APPROVE): "Allowed to run again",
    (ApprovalKind.OUTCOME, Verdict.REJECT): "Left without a known end",
    (ApprovalKind.OUTCOME, Verdict.RESPOND): "Told how it ended",
}


def copy(
    approval: ToolApproval, vote: ApprovalDecision, links: Iterable[ApprovalLink | Link], *, is_changed: bool
) -> None:
    """Write a LogEntry for the request and for each row it is linked to; nothing where there is no admin."""
    if not _has_history():
        return
    message = _message(approval, vote, is_changed=is_changed)
    model: Any = apps.get_model("admin", "LogEntry")
    model.objects.using(database.alias()).bulk_create(
        model(
            user_id=vote.actor_id,
            content_type_id=_content_type(of).pk,
            object_id=key,
            object_repr=label[:MAX_REPR],
            action_flag=CHANGE,
            action_time=vote.created_at,
            change_message=message,
        )
        for of, key, label in _objects(approval, links)
    )


def _has_history() -> bool:
    """Say whether the admin is there, and its rows are where ours are."""
    return apps.is_installed("django.contrib.admin") and router.allow_migrate_model(
        database.alias(), apps.get_model("admin", "LogEntry")
    )


def _objects(approval: ToolApproval, links: Iterable[ApprovalLink | Link]) -> Iterator[tuple[Any, str, str]]:
    yield ToolApproval, str(approval.pk), str(approval)
    for link in links:
        try:
            yield apps.get_model(link.model), link.object_key, link.label
        except (LookupError, ValueError):
            # The project has no such model any more.
            continue


def _content_type(model: Any) -> Any:
    manager = apps.get_model("contenttypes", "ContentType").objects.db_manager(database.alias())
    # As the admin looks it up: a proxy has a history of its own.
    return manager.get_for_model(model, for_concrete_model=False)


def _message(approval: ToolApproval, vote: ApprovalDecision, *, is_changed: bool) -> str:
    words = _WORDS[ApprovalKind(approval.kind), Verdict(vote.verdict)]
    changed = " with changed arguments" if is_changed else ""
    own = ", their own request" if vote.is_own else ""
    facts = f"{approval.tool}, approval {approval.pk}{own}, arguments {vote.arguments_digest[:DIGEST_LENGTH]}"
    return f"{words}{changed}: {facts}." + (f" {vote.note}" if vote.note else "")
