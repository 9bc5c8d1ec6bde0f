"""Decide tool approvals. The only module that changes ToolApproval.status.

Every face (admin, page, API, command, Python) decides through `approve`, `reject` and `respond`: the
same permission, the same lock, the same record. A decision only queues the turn; a worker goes on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentcore import canonical, database
from agentcore.approvals import history, permissions, previews, record, telling, throttling, verdicts
from agentcore.approvals.verdicts import Given
from agentcore.events import log
from agentcore.events.kinds import EventType
from agentcore.events.log import Journal
from agentcore.exceptions import AgentError, Conflict, NotFound, PermissionDenied
from agentcore.models import AgentContext, ToolApproval
from agentcore.states import ApprovalKind, ApprovalStatus, CallStatus, Channel, TurnState, Verdict
from agentcore.tools import schema
from agentcore.turns import calls, lifecycle, steps

STATUS_OF = {
    Verdict.APPROVE: ApprovalStatus.APPROVED,
    Verdict.REJECT: ApprovalStatus.REJECTED,
    Verdict.RESPOND: ApprovalStatus.RESPONDED,
}


def approve(
    approval_id: int,
    by: Any,
    *,
    arguments: Any = None,
    note: str = "",
    version: int | None = None,
    channel: Channel = Channel.PYTHON,
) -> ToolApproval:
    """Allow the call with the arguments shown, or with edited `arguments` in their place.

    `version` is the one the person saw; if the request changed since, the decision is refused.
    Returns the approval as it is stored. Raises NotFound, PermissionDenied, InvalidInput or Conflict.
    """
    given = Given(
        verdict=Verdict.APPROVE,
        by=verdicts.checked_person(by),
        channel=channel,
        version=verdicts.checked_version(version),
        note=verdicts.checked_note(note),
        arguments=verdicts.as_shown if arguments is None else verdicts.edited(arguments),
        is_edit=arguments is not None,
    )
    return _decide(approval_id, _with_preview(approval_id, given) if given.is_edit else given)


def reject(
    approval_id: int, by: Any, *, reason: str = "", version: int | None = None, channel: Channel = Channel.PYTHON
) -> ToolApproval:
    """Refuse the call; the model is given the reason word for word. One rejection is enough."""
    given = Given(
        verdict=Verdict.REJECT,
        by=verdicts.checked_person(by),
        channel=channel,
        version=verdicts.checked_version(version),
        note=verdicts.checked_note(reason, field="reason"),
        arguments=verdicts.as_shown,
    )
    return _decide(approval_id, given)


def respond(
    approval_id: int,
    by: Any,
    result: Any,
    *,
    note: str = "",
    version: int | None = None,
    channel: Channel = Channel.PYTHON,
) -> ToolApproval:
    """Give the model `result` in place of running the tool."""
    given = Given(
        verdict=Verdict.RESPOND,
        by=verdicts.checked_person(by),
        channel=channel,
        version=verdicts.checked_version(version),
        note=verdicts.checked_note(note),
        result=verdicts.checked_result(result),
        arguments=verdicts.as_shown,
    )
    return _decide(approval_id, given)


def get(approval_id: Any) -> ToolApproval:
    """Return an approval with what is needed to show and decide it; raise NotFound."""
    wanted = ToolApproval.objects.select_related("call", "turn__revision", "session", "agent")
    found: ToolApproval | None = wanted.filter(pk=_as_pk(approval_id), session__deleted_at=None).first()
    if found is None:
        raise NotFound(f"There is no approval {approval_id}.", approval_id=str(approval_id))
    return found


def expire(journal: Journal, approval: ToolApproval) -> None:
    """End a pending request that nobody decided in time, as its policy says: tell the model, or fail the turn."""
    error = {
        "code": "approval_expired",
        "message": _not_run(approval, "Nobody decided in time; the call was not run."),
        "details": {"approval_id": approval.pk},
    }
    _move(journal, approval, ApprovalStatus.EXPIRED)
    record.by_system(journal, approval, Verdict.EXPIRE, note="Nobody decided in time.")
    calls.settle(journal, approval.call, CallStatus.EXPIRED, error=error)
    telling.append(journal, approval, EventType.TOOL_APPROVAL_EXPIRED, reason="Nobody decided in time.")
    if approval.on_expiry == "fail":
        _fail_turn(journal, approval.turn, error)
    else:
        _wake_if_last(journal, approval.turn, reason=ApprovalStatus.EXPIRED)


def cancel_pending(journal: Journal, turn: AgentContext, *, reason: str) -> None:
    """Cancel every pending request of a turn that ends."""
    pending = ToolApproval.objects.pending().filter(turn=turn).select_related("call", "turn")
    for approval in pending.order_by("id"):
        _move(journal, approval, ApprovalStatus.CANCELLED)
        record.by_system(journal, approval, Verdict.CANCEL, note=reason)
        telling.append(journal, approval, EventType.TOOL_APPROVAL_CANCELLED, reason=reason)


def _with_preview(approval_id: Any, given: Given) -> Given:
    """Have the tool write its preview of an edit, before the transaction: it may take its time."""
    approval = get(approval_id)
    if approval.status != ApprovalStatus.PENDING or _permission_refusal(approval, given):
        return given
    try:
        return replace(given, preview=previews.of_edit(approval, given.arguments(approval)))
    except AgentError:
        # What is wrong with the edit is told when it is decided, under the lock.
        return given


@database.retried
def _decide(approval_id: Any, given: Given) -> ToolApproval:
    with log.writing(_session_of(approval_id)) as journal:
        approval = get(approval_id)
        refusal = _permission_refusal(approval, given)
        if refusal is None and not _is_repeated(approval, given):
            refusal = _state_refusal(journal, approval, given) or _take(journal, approval, given)
        if refusal is not None:
            refusal = _recorded(journal, approval, given, refusal)
    # Raised after the commit: what it recorded must stay.
    if refusal is not None:
        raise refusal
    return get(approval_id)


def _session_of(approval_id: Any) -> int:
    found = ToolApproval.objects.filter(pk=_as_pk(approval_id)).values_list("session_id", flat=True).first()
    if found is None:
        raise NotFound(f"There is no approval {approval_id}.", approval_id=str(approval_id))
    session_pk: int = found
    return session_pk


def _as_pk(approval_id: Any) -> int:
    try:
        number = int(approval_id) if isinstance(approval_id, str) else approval_id
    except ValueError as error:
        raise NotFound(f"There is no approval {approval_id!r}.") from error
    if not isinstance(number, int) or isinstance(number, bool):
        raise NotFound(f"There is no approval {approval_id!r}.")
    return number if 0 < number < 2**63 else 0


def _is_repeated(approval: ToolApproval, given: Given) -> bool:
    """Say whether this is the same verdict by the same person again: answered with what is stored."""
    if approval.status not in (ApprovalStatus.PENDING, STATUS_OF[given.verdict]):
        return False
    mine = [vote for vote in record.counted(approval) if vote.actor_key == str(given.by.pk)]
    if not mine or mine[0].verdict != given.verdict:
        return False
    if given.verdict == Verdict.RESPOND:
        return verdicts.is_same(given.result, approval.response)
    if given.is_edit:
        return _edited_digest(approval, given) == mine[0].arguments_digest
    # Who edited and then approves what an older page shows means something else.
    return given.version in (None, approval.version)


def _edited_digest(approval: ToolApproval, given: Given) -> str:
    """Return the digest of an edit, "" when it is not a valid one."""
    try:
        return canonical.digest(given.arguments(approval))
    except AgentError:
        return ""


def _permission_refusal(approval: ToolApproval, given: Given) -> AgentError | None:
    """Return why this person may not decide this request at all, or None."""
    if not permissions.is_permitted(given.by, approval):
        return PermissionDenied("You do not have the permission to decide this request.")
    if permissions.is_own(given.by, approval):
        return PermissionDenied(
            "Nobody decides on their own request: this one is yours, or its requester is not known any more."
        )
    return None


def _state_refusal(journal: Journal, approval: ToolApproval, given: Given) -> AgentError | None:
    """Return why the request cannot be decided so now, or None."""
    if approval.status != ApprovalStatus.PENDING:
        return _already(approval)
    if ToolApproval.objects.expired_by_now().filter(pk=approval.pk).exists():
        expire(journal, approval)
        return Conflict("This request expired before you decided.", status=ApprovalStatus.EXPIRED)
    if given.version is not None and given.version != approval.version:
        return Conflict("The request changed, please look again.", version=approval.version, seen=given.version)
    is_new_edit = given.is_edit and _edited_digest(approval, given) != approval.arguments_digest
    if record.has_voted(approval, given.by) and not is_new_edit:
        return Conflict("You have voted on this request already.", version=approval.version)
    return None


def _already(approval: ToolApproval) -> Conflict:
    votes = record.counted(approval)
    names = ", ".join(f"{vote.actor_name} ({vote.verdict})" for vote in votes)
    return Conflict(
        f"This request is already {approval.status}{f', decided by {names}' if names else ''}.",
        status=approval.status,
        decided_by=[{"by": vote.actor_name, "verdict": vote.verdict} for vote in votes],
    )


def _recorded(journal: Journal, approval: ToolApproval, given: Given, refusal: AgentError) -> AgentError:
    """Record a refused attempt, and return what the person is told. Of too many at a time none is recorded."""
    too_many = throttling.find_refusal(given.by, refusal, now=journal.now)
    if too_many is not None:
        return too_many
    record.refused(
        journal, approval, given.verdict, by=given.by, channel=given.channel, refusal=refusal.code, note=refusal.message
    )
    return refusal


def _take(journal: Journal, approval: ToolApproval, given: Given) -> AgentError | None:
    """Take a decision that nothing stands against; return why it could not be taken after all."""
    if given.verdict == Verdict.APPROVE and (changed := _take_tool_change(journal, approval)):
        return changed
    try:
        arguments = given.arguments(approval)
    except AgentError as error:
        return error
    digest = canonical.digest(arguments)
    proposed = approval.arguments_digest
    is_changed = digest != proposed
    if is_changed and given.verdict != Verdict.APPROVE:
        # Whoever says no, or answers, does so of what was asked for, whatever became of the row since.
        digest, is_changed = proposed, False
    if is_changed and not given.is_edit:
        return Conflict("The stored arguments are not those that were asked for. Look into it, or reject them.")
    if is_changed:
        _change(journal, approval, given, arguments, digest)
    vote = record.vote(
        journal,
        approval,
        given.verdict,
        by=given.by,
        channel=given.channel,
        note=given.note,
        digest=digest,
        proposed=proposed,
    )
    history.copy(approval, vote, is_changed=is_changed)
    if given.verdict != Verdict.APPROVE or len(record.counted(approval)) >= approval.votes_needed:
        _settle(journal, approval, given, arguments)
    else:
        _count(journal, approval, given)
    return None


def _count(journal: Journal, approval: ToolApproval, given: Given) -> None:
    """Tell of a vote that does not decide yet."""
    approval.updated_at = journal.now
    approval.save(update_fields=["updated_at"])
    telling.append(journal, approval, EventType.TOOL_APPROVAL_CHANGED, given=given)


def _take_tool_change(journal: Journal, approval: ToolApproval) -> Conflict | None:
    """Refuse an approval of what the tool meant when it was asked for, and ask again for what it means now."""
    definition = verdicts.find_definition(approval)
    if definition is None:
        gone = f"The tool {approval.tool!r} is not deployed any more; this call was not run."
        return _drop(journal, approval, {"code": "not_found", "message": gone, "details": {}})
    if definition.fingerprint == approval.fingerprint:
        return None
    try:
        arguments = schema.validate_arguments(definition, approval.arguments)
    except schema.InvalidArguments as error:
        told = f"The tool changed before this call was allowed; it was not run. {error.message}"
        return _drop(journal, approval, {"code": "invalid_input", "message": told, "details": error.details})
    approval.version += 1
    approval.fingerprint, approval.updated_at = definition.fingerprint, journal.now
    approval.arguments, approval.arguments_digest = arguments, canonical.digest(arguments)
    approval.save(update_fields=["version", "fingerprint", "arguments", "arguments_digest", "updated_at"])
    calls.change_gated(approval.call, fingerprint=definition.fingerprint, arguments=arguments)
    telling.append(journal, approval, EventType.TOOL_APPROVAL_CHANGED, reason="The tool changed.")
    return Conflict("The tool changed since this was asked for; please look again.", version=approval.version)


def _drop(journal: Journal, approval: ToolApproval, error: dict[str, Any]) -> Conflict:
    """Cancel a request that can no longer be approved, and tell the model why.

    One that asks how a call ended stays: the call may have happened, whatever became of its tool.
    """
    if approval.kind == ApprovalKind.OUTCOME:
        told = error["message"].replace("was not run", "cannot be run again")
        return Conflict(f"{told} Respond or reject.", tool=approval.tool)
    _move(journal, approval, ApprovalStatus.CANCELLED)
    record.by_system(journal, approval, Verdict.CANCEL, note=error["message"])
    telling.append(journal, approval, EventType.TOOL_APPROVAL_CANCELLED, reason=error["message"])
    status = CallStatus.UNKNOWN if approval.call.may_have_happened else CallStatus.FAILED
    calls.settle(journal, approval.call, status, error={**error, "message": _not_run(approval, error["message"])})
    _wake_if_last(journal, approval.turn, reason=ApprovalStatus.CANCELLED)
    return Conflict(error["message"], status=ApprovalStatus.CANCELLED)


def _not_run(approval: ToolApproval, text: str) -> str:
    return calls.not_again(text) if approval.call.may_have_happened else text


def _change(journal: Journal, approval: ToolApproval, given: Given, arguments: Any, digest: str) -> None:
    """Take an edit: earlier votes were for something else and are void.

    Where one vote decides, the request keeps what was asked for beside what is approved.
    """
    approval.version += 1
    approval.updated_at = journal.now
    if given.preview is not None:
        approval.preview = given.preview.text
        approval.links.all().delete()
        previews.store_links(approval, given.preview.links)
    if approval.votes_needed > 1:
        approval.arguments, approval.arguments_digest = arguments, digest
    approval.save(update_fields=["version", "updated_at", "preview", "arguments", "arguments_digest"])
    telling.append(journal, approval, EventType.TOOL_APPROVAL_CHANGED, given=given, arguments=arguments)


def _settle(journal: Journal, approval: ToolApproval, given: Given, arguments: Any) -> None:
    status = STATUS_OF[given.verdict]
    approved = arguments if given.verdict == Verdict.APPROVE else None
    _move(journal, approval, status, approved_arguments=approved, response=given.result, is_unroutable=False)
    denied = given.verdict == Verdict.REJECT
    kind = EventType.TOOL_APPROVAL_DENIED if denied else EventType.TOOL_APPROVAL_GRANTED
    telling.append(journal, approval, kind, given=given, arguments=arguments)
    if denied and approval.kind == ApprovalKind.OUTCOME:
        _fail_turn(journal, approval.turn, _outcome_unknown(approval, given))
        return
    _settle_call(journal, approval, given, arguments)
    _wake_if_last(journal, approval.turn, reason=status)


def _settle_call(journal: Journal, approval: ToolApproval, given: Given, arguments: Any) -> None:
    if given.verdict == Verdict.APPROVE and approval.kind == ApprovalKind.OUTCOME:
        calls.repeat(approval.call)
    elif given.verdict == Verdict.APPROVE:
        calls.approve(journal, approval.call, arguments)
    elif given.verdict == Verdict.RESPOND:
        calls.settle(journal, approval.call, CallStatus.COMPLETED, result=given.result)
    else:
        error = {"code": "rejected", "message": given.note, "details": {"approval_id": approval.pk}}
        calls.settle(journal, approval.call, CallStatus.REJECTED, error=error)


def _move(journal: Journal, approval: ToolApproval, status: ApprovalStatus, **fields: Any) -> None:
    moved = ToolApproval.objects.filter(pk=approval.pk, status=ApprovalStatus.PENDING).update(
        status=status, decided_at=journal.now, updated_at=journal.now, **fields
    )
    if not moved:
        raise Conflict(f"Approval {approval.pk} is not pending any more.")
    approval.status = status


def _wake_if_last(journal: Journal, turn: AgentContext, *, reason: str) -> None:
    """Queue the turn when nothing of it waits any more. The session's lock makes the last one see that it is last."""
    if not ToolApproval.objects.pending().filter(turn=turn).exists():
        lifecycle.wake(journal, turn, reason=reason)


def _outcome_unknown(approval: ToolApproval, given: Given) -> dict[str, Any]:
    return {
        "code": "outcome_unknown",
        "message": given.note or f"Nobody knows how {approval.tool} ended, and it is not tried again.",
        "details": {"approval_id": approval.pk, "call_id": approval.call.call_id},
    }


def _fail_turn(journal: Journal, turn: AgentContext, error: dict[str, Any]) -> None:
    cancel_pending(journal, turn, reason=error["message"])
    steps.close_open(journal, turn, error)
    lifecycle.end(journal, turn, TurnState.FAILED, reason=error["code"], error=error)
