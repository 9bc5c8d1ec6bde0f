"""Decide tool approvals. The only module that changes ToolApproval.status.

Every face (admin, page, API, command, Python) decides through `approve`, `reject` and `respond`: the
same permission, the same lock, the same record. A decision only queues the turn; a worker goes on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentcore import canonical, database
from agentcore.approvals import history, permissions, previews, record, standing, telling, throttling, verdicts
from agentcore.approvals.standing import Standing
from agentcore.approvals.verdicts import Given
from agentcore.events import log
from agentcore.events.kinds import EventType
from agentcore.events.log import Journal
from agentcore.exceptions import AgentError, Conflict, PermissionDenied
from agentcore.models import AgentContext, ToolApproval, statements
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
    Returns the approval as it is stored; what belongs to it is read when it is asked for. Raises NotFound,
    PermissionDenied, InvalidInput or Conflict.
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
    found: ToolApproval | None = wanted.filter(pk=standing.as_pk(approval_id), session__deleted_at=None).first()
    if found is None:
        raise standing.absent(approval_id)
    return found


def expire(journal: Journal, asked: Standing) -> None:
    """End a pending request that nobody decided in time, as its policy says: tell the model, or fail the turn."""
    approval = asked.approval
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
        _wake_if_last(journal, asked, reason=ApprovalStatus.EXPIRED)


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
    with log.writing(standing.session_of(approval_id)) as journal:
        asked = standing.get(journal, approval_id)
        approval = asked.approval
        refusal = _permission_refusal(approval, given)
        if refusal is None and not _is_repeated(asked, given):
            refusal = _state_refusal(journal, asked, given) or _take(journal, asked, given)
        if refusal is not None:
            refusal = _recorded(journal, approval, given, refusal)
    # Raised after the commit: what it recorded must stay.
    if refusal is not None:
        raise refusal
    # The turn goes on from here, and its rows are not what they were.
    approval._state.fields_cache.clear()
    return approval


def _is_repeated(asked: Standing, given: Given) -> bool:
    """Say whether this is the same verdict by the same person again: answered with what is stored."""
    approval = asked.approval
    if approval.status not in (ApprovalStatus.PENDING, STATUS_OF[given.verdict]):
        return False
    mine = record.of(given.by, asked.votes)
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


def _state_refusal(journal: Journal, asked: Standing, given: Given) -> AgentError | None:
    """Return why the request cannot be decided so now, or None."""
    approval = asked.approval
    if approval.status != ApprovalStatus.PENDING:
        return _already(asked)
    if asked.is_over:
        expire(journal, asked)
        return Conflict("This request expired before you decided.", status=ApprovalStatus.EXPIRED)
    if given.version is not None and given.version != approval.version:
        return Conflict("The request changed, please look again.", version=approval.version, seen=given.version)
    is_new_edit = given.is_edit and _edited_digest(approval, given) != approval.arguments_digest
    if record.of(given.by, asked.votes) and not is_new_edit:
        return Conflict("You have voted on this request already.", version=approval.version)
    return None


def _already(asked: Standing) -> Conflict:
    approval, votes = asked.approval, asked.votes
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


def _take(journal: Journal, asked: Standing, given: Given) -> AgentError | None:
    """Take a decision that nothing stands against; return why it could not be taken after all."""
    approval = asked.approval
    if given.verdict == Verdict.APPROVE and (changed := _take_tool_change(journal, asked)):
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
    links = given.preview.links if is_changed and given.preview else asked.links()
    history.copy(approval, vote, links, is_changed=is_changed)
    # Earlier votes were for what an edit has replaced.
    votes = 1 if is_changed else len(asked.votes) + 1
    if given.verdict != Verdict.APPROVE or votes >= approval.votes_needed:
        _settle(journal, asked, given, arguments)
    else:
        _count(journal, approval, given)
    return None


def _count(journal: Journal, approval: ToolApproval, given: Given) -> None:
    """Tell of a vote that does not decide yet."""
    approval.updated_at = journal.now
    approval.save(update_fields=["updated_at"])
    telling.append(journal, approval, EventType.TOOL_APPROVAL_CHANGED, given=given)


def _take_tool_change(journal: Journal, asked: Standing) -> Conflict | None:
    """Refuse an approval of what the tool meant when it was asked for, and ask again for what it means now."""
    approval = asked.approval
    definition = verdicts.find_definition(approval)
    if definition is None:
        gone = f"The tool {approval.tool!r} is not deployed any more; this call was not run."
        return _drop(journal, asked, {"code": "not_found", "message": gone, "details": {}})
    if definition.fingerprint == approval.fingerprint:
        return None
    try:
        arguments = schema.validate_arguments(definition, approval.arguments)
    except schema.InvalidArguments as error:
        told = f"The tool changed before this call was allowed; it was not run. {error.message}"
        return _drop(journal, asked, {"code": "invalid_input", "message": told, "details": error.details})
    approval.version += 1
    approval.fingerprint, approval.updated_at = definition.fingerprint, journal.now
    approval.arguments, approval.arguments_digest = arguments, canonical.digest(arguments)
    approval.save(update_fields=["version", "fingerprint", "arguments", "arguments_digest", "updated_at"])
    calls.change_gated(approval.call, fingerprint=definition.fingerprint, arguments=arguments)
    telling.append(journal, approval, EventType.TOOL_APPROVAL_CHANGED, reason="The tool changed.")
    return Conflict("The tool changed since this was asked for; please look again.", version=approval.version)


def _drop(journal: Journal, asked: Standing, error: dict[str, Any]) -> Conflict:
    """Cancel a request that can no longer be approved, and tell the model why.

    One that asks how a call ended stays: the call may have happened, whatever became of its tool.
    """
    approval = asked.approval
    if approval.kind == ApprovalKind.OUTCOME:
        told = error["message"].replace("was not run", "cannot be run again")
        return Conflict(f"{told} Respond or reject.", tool=approval.tool)
    _move(journal, approval, ApprovalStatus.CANCELLED)
    record.by_system(journal, approval, Verdict.CANCEL, note=error["message"])
    telling.append(journal, approval, EventType.TOOL_APPROVAL_CANCELLED, reason=error["message"])
    status = CallStatus.UNKNOWN if approval.call.may_have_happened else CallStatus.FAILED
    calls.settle(journal, approval.call, status, error={**error, "message": _not_run(approval, error["message"])})
    _wake_if_last(journal, asked, reason=ApprovalStatus.CANCELLED)
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


def _settle(journal: Journal, asked: Standing, given: Given, arguments: Any) -> None:
    approval = asked.approval
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
    _wake_if_last(journal, asked, reason=status)


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
    fields = {"status": status, "decided_at": journal.now, "updated_at": journal.now, **fields}
    pending = {"pk": approval.pk, "status": ApprovalStatus.PENDING}
    if not statements.update(ToolApproval, pending, **fields):
        raise Conflict(f"Approval {approval.pk} is not pending any more.")
    vars(approval).update(fields)


def _wake_if_last(journal: Journal, asked: Standing, *, reason: str) -> None:
    """Queue the turn when nothing of it waits any more. The session's lock makes the last one see that it is last."""
    if asked.is_last:
        lifecycle.wake(journal, asked.approval.turn, reason=reason)


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
