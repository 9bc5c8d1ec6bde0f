"""Compare a turn's rows with their digests, with each other, and with what the log says of them.

Each problem names the row, the field and the event. It never holds the content: that may be secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from agentcore.approvals import told
from agentcore.approvals.told import Told, Word, digest_of
from agentcore.drivers import registry as drivers
from agentcore.events.kinds import FINAL, EventType
from agentcore.models import AgentContext, AgentStep, ApprovalDecision, ToolApproval, ToolCall, UserQuestion
from agentcore.states import ApprovalKind, ApprovalStatus, CallStatus, StepAction, Verdict
from agentcore.tools.masking import mask

# How a call stands of which the log has no result, by the newest request about it.
_STATUS_BY_REQUEST = {
    ApprovalStatus.APPROVED: CallStatus.APPROVED,
    ApprovalStatus.REJECTED: CallStatus.REJECTED,
    ApprovalStatus.RESPONDED: CallStatus.COMPLETED,
    ApprovalStatus.EXPIRED: CallStatus.EXPIRED,
    ApprovalStatus.CANCELLED: CallStatus.FAILED,
}
_STATUSES_BY_RESULT = {
    EventType.TOOL_EXECUTION_COMPLETED: {CallStatus.COMPLETED},
    EventType.TOOL_EXECUTION_FAILED: {CallStatus.FAILED, CallStatus.CANCELLED},
    EventType.TOOL_EXECUTION_UNKNOWN: {CallStatus.UNKNOWN},
}
_STATUSES_BY_DECISION = {
    EventType.TOOL_APPROVAL_GRANTED: {ApprovalStatus.APPROVED, ApprovalStatus.RESPONDED},
    EventType.TOOL_APPROVAL_DENIED: {ApprovalStatus.REJECTED},
    EventType.TOOL_APPROVAL_EXPIRED: {ApprovalStatus.EXPIRED},
    EventType.TOOL_APPROVAL_CANCELLED: {ApprovalStatus.CANCELLED},
}
_VERDICT_BY_STATUS = {
    ApprovalStatus.APPROVED: Verdict.APPROVE,
    ApprovalStatus.REJECTED: Verdict.REJECT,
    ApprovalStatus.RESPONDED: Verdict.RESPOND,
}


def problems(turn: AgentContext) -> Iterator[str]:
    """Yield a sentence for each row of a turn that is not what its digest, another row or the log says.

    The turn comes with its rows: steps by number, calls by step and position, approvals with their decisions and
    questions in the order they were made.
    """
    log = told.read(turn)
    steps, calls, approvals = list(turn.steps.all()), list(turn.tool_calls.all()), list(turn.approvals.all())
    by_pk = {call.pk: call for call in calls}
    yield from _of_turn(turn, log)
    yield from _of_missing(log, steps, calls, approvals)
    for step in steps:
        for problem in _of_step(step, [call for call in calls if call.step_id == step.pk], log):
            yield f"step {step.number}: {problem}"
    for call in calls:
        for problem in _of_call(call, [item for item in approvals if item.call_id == call.pk], log):
            yield f"call {call.call_id} ({call.tool}): {problem}"
    for question in turn.questions.all():
        for problem in _of_question(question, by_pk.get(question.call_id), log):
            yield f"question {question.pk}: {problem}"
    for approval in approvals:
        for problem in _of_approval(approval, by_pk.get(approval.call_id), log):
            yield f"approval {approval.pk} ({approval.tool}): {problem}"


def _of_turn(turn: AgentContext, log: Told) -> Iterator[str]:
    if log.input is not None and not log.input.says("message", turn.input):
        yield f"its input and {log.input} do not agree."
    body = digest_of({"message": turn.input, "metadata": turn.metadata})
    # A driver adds to the metadata what it returns; the message is compared with the log above.
    if body != turn.body_digest and turn.revision.definition.get("driver") == drivers.BUILT_IN:
        yield "its input and metadata are not what their digest says."
    if not FINAL & log.erased:
        completed = log.end is not None and log.end.type == EventType.TURN_COMPLETED
        yield from _of_field("response", turn.response, log.end if completed else None)
        yield from _of_field("error", turn.error, None if completed else log.end)


def _of_field(name: str, value: Any, word: Word | None) -> Iterator[str]:
    if word is None and value is not None:
        yield f"it has {name} set, and its log does not say so."
    elif word is not None and not word.says(name, value):
        yield f"its {name} and {word} do not agree."


def _of_missing(
    log: Told, steps: Sequence[AgentStep], calls: Sequence[ToolCall], approvals: Sequence[ToolApproval]
) -> Iterator[str]:
    rows: tuple[tuple[str, set[Any], dict[Any, Word]], ...] = (
        ("step", {step.number for step in steps}, log.failed_steps | log.messages),
        ("call", {call.call_id for call in calls}, log.calls),
        ("approval", {approval.pk for approval in approvals}, log.approvals),
    )
    for name, known, words in rows:
        for key in sorted(words.keys() - known, key=str):
            yield f"{words[key]} speaks of {name} {key}, and there is none."


def _of_step(step: AgentStep, calls: Sequence[ToolCall], log: Told) -> Iterator[str]:
    message = step.message if isinstance(step.message, dict) else {}
    word = log.messages.get(step.number)
    if word is None and message.get("content") and EventType.MESSAGE not in log.erased:
        yield "its message has text, and its log does not say so."
    elif word is not None and not word.says("message", {key: message.get(key) for key in ("role", "content")}):
        yield f"its message and {word} do not agree."
    if EventType.STEP_FAILED not in log.erased:
        yield from _of_field("error", step.error, log.failed_steps.get(step.number))
    if not _are_requested(calls, _requests_of(step, message)):
        yield "its calls are not those that its reply asks for."


def _requests_of(step: AgentStep, message: dict[str, Any]) -> list[Any]:
    """Return what became calls; the requests of a reply that was refused did not."""
    asks = step.action in (StepAction.USE_TOOL, StepAction.ASK_USER)
    requests = message.get("tool_calls") if asks else None
    return requests if isinstance(requests, list) else []


def _are_requested(calls: Sequence[ToolCall], requests: Sequence[Any]) -> bool:
    return len(calls) == len(requests) and all(map(_is_requested, calls, requests))


def _is_requested(call: ToolCall, request: Any) -> bool:
    if not isinstance(request, dict):
        return False
    id, name, text = (str(request.get(key)) for key in ("id", "name", "arguments"))
    # Arguments too large to be read are not kept a second time.
    is_text_kept = call.raw_arguments == text or (call.raw_arguments == "{}" and not call.arguments_digest)
    return is_text_kept and (call.provider_call_id, call.tool) == (id[:255], name[:255])


def _of_call(call: ToolCall, requests: Sequence[ToolApproval], log: Told) -> Iterator[str]:
    if not _is_digest(call.arguments_digest, call.arguments):
        yield "its arguments are not what their digest says."
    yield from _of_attempt(call, log)
    yield from _of_result(call, requests[-1] if requests else None, log)
    gates = [request for request in requests if request.kind == ApprovalKind.CALL]
    # A tool that changed since may have changed the arguments, and a person is asked again.
    if gates and gates[-1].fingerprint == call.fingerprint:
        yield from _of_gate(call, gates[-1])


def _is_digest(digest: str, arguments: Any) -> bool:
    """Say whether a digest is that of arguments; those that could not be read are None and have none."""
    return digest_of(arguments) == digest if digest else arguments is None


def _of_attempt(call: ToolCall, log: Told) -> Iterator[str]:
    word = log.begun.get(call.call_id)
    if word is not None:
        arguments = _masked(call.arguments, call)
        yield from _of_fields(word, tool=call.tool, arguments=arguments, attempt=call.attempts)
    elif call.attempts and log.is_whole:
        yield f"it was attempted {call.attempts} times, and its log does not say so."


def _of_result(call: ToolCall, newest: ToolApproval | None, log: Told) -> Iterator[str]:
    word = log.results.get(call.call_id)
    if word is not None and not word.leaves_doubt:
        yield from _of_told_result(call, word)
    elif newest is not None and newest.status == ApprovalStatus.RESPONDED:
        yield from _of_response(call, newest)
    elif word is not None:
        yield from _of_doubt(call, word)
    elif log.is_whole:
        yield from _of_untold_result(call, newest, log)


def _of_told_result(call: ToolCall, word: Word) -> Iterator[str]:
    if call.status not in _STATUSES_BY_RESULT[EventType(word.type)]:
        yield f"it is {call.status}, and {word} says otherwise."
    completed = word.type == EventType.TOOL_EXECUTION_COMPLETED
    yield from _of_fields(word, tool=call.tool)
    yield from _of_field("result", _masked(call.result, call), word if completed else None)
    yield from _of_field("error", call.error, None if completed else word)


def _of_response(call: ToolCall, request: ToolApproval) -> Iterator[str]:
    """Compare a call with what a person gave in place of its result: the log says only that somebody did."""
    if call.status != CallStatus.COMPLETED:
        yield f"it is {call.status}, and approval {request.pk} gave its result."
    if digest_of(call.result) != digest_of(request.response):
        yield f"its result is not the response of approval {request.pk}."
    yield from _of_field("error", call.error, None)


def _of_doubt(call: ToolCall, word: Word) -> Iterator[str]:
    """Compare a call in doubt; once its turn ended it has another error, of which the log does not speak."""
    if call.status not in (CallStatus.UNKNOWN, CallStatus.CANCELLED):
        yield f"it is {call.status}, and {word} says otherwise."
    yield from _of_field("result", call.result, None)
    if call.is_open:
        yield from _of_field("error", call.error, word)


def _of_untold_result(call: ToolCall, newest: ToolApproval | None, log: Told) -> Iterator[str]:
    allowed = (
        {CallStatus.PENDING, _STATUS_BY_REQUEST.get(ApprovalStatus(newest.status))} if newest else {CallStatus.PENDING}
    )
    if call.status not in ({CallStatus.EXECUTING} if log.is_under_way(call.call_id) else allowed):
        yield f"it is {call.status}, and neither its log nor a request says so."
    yield from _of_field("result", call.result, None)
    if call.is_open:
        yield from _of_field("error", call.error, None)
    elif newest is not None and newest.status in (ApprovalStatus.REJECTED, ApprovalStatus.CANCELLED):
        yield from _of_reason(call, log.decided.get(newest.pk))


def _of_reason(call: ToolCall, word: Word | None) -> Iterator[str]:
    message = call.error.get("message") if isinstance(call.error, dict) else None
    if word is not None and not word.says("reason", message):
        yield f"its error and the reason of {word} do not agree."


def _of_question(question: UserQuestion, call: ToolCall | None, log: Told) -> Iterator[str]:
    """Compare a question with its call, and both with what the log says was asked and answered."""
    if call is None:
        yield "its call is none of this turn."
        return
    asked = log.questions.get(call.call_id)
    if asked is None and EventType.INPUT_REQUESTED not in log.erased:
        yield "its log does not speak of it."
    elif asked is not None:
        yield from _of_fields(asked, question=question.question)
    if EventType.INPUT_RECEIVED not in log.erased:
        yield from _of_field("answer", question.answer, log.answers.get(call.call_id))
    if question.answer is not None and digest_of(call.result) != digest_of(question.answer):
        yield "its answer is not the result of its call."


def _of_gate(call: ToolCall, gate: ToolApproval) -> Iterator[str]:
    """Compare a call's arguments with the newest request to allow it, and what was proposed with what was shown."""
    approved, one_vote = gate.status == ApprovalStatus.APPROVED, gate.votes_needed == 1
    wanted = digest_of(gate.approved_arguments) if approved else gate.arguments_digest
    # Where several votes decide, the request takes each edit at once, and the call takes what was approved.
    if (approved or one_vote) and call.arguments_digest != wanted:
        yield f"its arguments are not those of approval {gate.pk}."
    proposed = None if wanted == gate.arguments_digest else gate.arguments
    if approved and one_vote and digest_of(call.proposed_arguments) != digest_of(proposed):
        yield f"its proposed arguments are not those of approval {gate.pk}."


def _of_approval(approval: ToolApproval, call: ToolCall | None, log: Told) -> Iterator[str]:
    if call is None:
        yield "its call is none of this turn."
        return
    if not _is_digest(approval.arguments_digest, approval.arguments):
        yield "its arguments are not what their digest says."
    if approval.status == ApprovalStatus.APPROVED and not _is_voted(approval):
        yield "the votes that count are not for what was approved."
    if approval.pk in log.asked:
        yield from _of_asked(approval, call, log)
    elif log.is_whole:
        yield "its log does not speak of it."
    if approval.pk in log.decided:
        yield from _of_decision(approval, call, log.decided[approval.pk])
    elif approval.status != ApprovalStatus.PENDING and log.is_whole:
        yield f"it is {approval.status}, and its log does not say so."


def _is_voted(approval: ToolApproval) -> bool:
    digest = digest_of(approval.approved_arguments)
    digests = [vote.arguments_digest for vote in _votes(approval) if vote.verdict == Verdict.APPROVE]
    return len(digests) >= approval.votes_needed and set(digests) <= {digest}


def _votes(approval: ToolApproval) -> list[ApprovalDecision]:
    return [
        vote
        for vote in approval.decisions.all()
        if vote.counted_key is not None and vote.approval_version == approval.version
    ]


def _of_asked(approval: ToolApproval, call: ToolCall, log: Told) -> Iterator[str]:
    asked, edited = log.asked[approval.pk], log.edited.get(approval.pk)
    yield from _of_fields(asked, tool=approval.tool, call_id=call.call_id, kind=approval.kind)
    # Where one vote decides, an edit leaves the request as it was asked.
    takes_edits = approval.votes_needed > 1 and edited is not None and edited.event > asked.event
    shown = edited if takes_edits and edited is not None else asked
    yield from _of_fields(shown, arguments=_masked(approval.arguments, call))


def _of_decision(approval: ToolApproval, call: ToolCall, word: Word) -> Iterator[str]:
    status = ApprovalStatus(approval.status)
    verdict = _VERDICT_BY_STATUS.get(status)
    if status not in _STATUSES_BY_DECISION[EventType(word.type)] or not word.says("verdict", verdict):
        yield f"it is {status}, and {word} says otherwise."
        return
    approved = status == ApprovalStatus.APPROVED
    decided_on = approval.approved_arguments if approved else approval.arguments
    if not word.says("arguments", _masked(decided_on, call)):
        yield f"its {'approved_' if approved else ''}arguments and {word} do not agree."
    if verdict is not None and not any(_is_told(vote, word) for vote in _votes(approval)):
        yield f"no vote that counts is that of {word}."


def _is_told(vote: ApprovalDecision, word: Word) -> bool:
    said = {"by": vote.actor_name, "reason": vote.note, "verdict": vote.verdict}
    return all(word.says(name, value) for name, value in said.items())


def _of_fields(word: Word, **fields: Any) -> Iterator[str]:
    for name, value in fields.items():
        if not word.says(name, value):
            yield f"its {name} and {word} do not agree."


def _masked(value: Any, call: ToolCall) -> Any:
    return mask(value, call.sensitive if isinstance(call.sensitive, list) else ())
