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


def forget_notes(approvals: Iterable[ToolApproval]) -> int:
    """Take what people wrote, and what linked rows are called, out of the entries about requests; return of how many.

    The entries stay, with the verdict and the digest.
    """
    if not _has_history():
        return 0
    return sum(_forget_note(entry, approval.pk) for approval in approvals for entry in _entries(approval))


def _entries(approval: ToolApproval) -> Iterator[Any]:
    """Yield the entries that `copy` wrote for a request, also for rows it is not linked to any more."""
    actors = {vote.actor_id for vote in approval.decisions.all() if vote.actor_id is not None}
    entries = apps.get_model("admin", "LogEntry").objects.using(database.alias())
    about = entries.filter(user_id__in=actors, change_message__contains=f", approval {approval.pk},")
    yield from (entry for entry in about if entry.change_message.startswith(tuple(_WORDS.values())))


def _forget_note(entry: Any, approval_pk: int) -> bool:
    """Cut an entry's message after the digest, and give a row that is not the request its key for a name."""
    start = entry.change_message.index(f", approval {approval_pk},")
    end = entry.change_message.find(".", start)
    before = (entry.change_message, entry.object_repr)
    if end >= 0:
        entry.change_message = entry.change_message[: end + 1]
    if entry.content_type_id != _content_type(ToolApproval).pk:
        entry.object_repr = str(entry.object_id)[:MAX_REPR]
    entry.save(update_fields=["change_message", "object_repr"])
    return before != (entry.change_message, entry.object_repr)


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
