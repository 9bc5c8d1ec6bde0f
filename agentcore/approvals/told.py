"""What a turn's log says of its rows: of each the last word that still stands, as digests and event numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from agentcore import canonical
from agentcore.events.kinds import FINAL, EventType
from agentcore.models import AgentContext, SessionEvent
from agentcore.states import ApprovalKind, Verdict

REFERENCE = {"ref", "bytes", "sha256"}

_CALL = ("tool", "result", "error")
_APPROVAL = ("call_id", "tool", "kind", "arguments")
_DECISION = (*_APPROVAL, "by", "reason", "verdict")


@dataclass(frozen=True, kw_only=True)
class Word:
    """What one event says of a row. It holds digests only: little memory, and nothing that could be shown."""

    event: int
    type: str
    digests: dict[str, frozenset[str]]
    leaves_doubt: bool = False

    def __str__(self) -> str:
        return f"event {self.event} ({self.type})"

    def says(self, name: str, value: Any) -> bool:
        """Say whether the event gives the field this value, or says nothing of the field."""
        return name not in self.digests or digest_of(value) in self.digests[name]

    def without(self, name: str) -> Word:
        return replace(self, digests={key: item for key, item in self.digests.items() if key != name})


@dataclass(kw_only=True)
class Told:
    """The words of a turn's log by what they speak of.

    `calls` and `approvals` hold the first event that names each; `erased` the types of events without content.
    """

    input: Word | None = None
    end: Word | None = None
    messages: dict[int, Word] = field(default_factory=dict)
    failed_steps: dict[int, Word] = field(default_factory=dict)
    questions: dict[str, Word] = field(default_factory=dict)
    answers: dict[str, Word] = field(default_factory=dict)
    begun: dict[str, Word] = field(default_factory=dict)
    results: dict[str, Word] = field(default_factory=dict)
    asked: dict[int, Word] = field(default_factory=dict)
    edited: dict[int, Word] = field(default_factory=dict)
    decided: dict[int, Word] = field(default_factory=dict)
    calls: dict[str, Word] = field(default_factory=dict)
    approvals: dict[int, Word] = field(default_factory=dict)
    erased: set[str] = field(default_factory=set)

    @property
    def is_whole(self) -> bool:
        """Say whether what is told of calls and approvals is all that was ever told of them."""
        return not any(type.startswith("tool.") for type in self.erased)

    def is_under_way(self, call_id: str) -> bool:
        """Say whether the last word of a call is that it began, and nobody let it run again since."""
        word = self.begun.get(call_id)
        return word is not None and "arguments" in word.digests and call_id not in self.results


def read(turn: AgentContext) -> Told:
    """Return what a turn's log says; an event whose content was erased says nothing."""
    told = Told()
    for number, type, data in _events(turn):
        key_name, fields, take = _READERS[EventType(type)]
        key = data.get(key_name) if isinstance(data, dict) else None
        if isinstance(data, dict) and (not key_name or isinstance(key, str | int)):
            take(told, key, _word(number, type, data, fields), data)
        elif not isinstance(data, dict) or type != EventType.MESSAGE:  # a driver's message belongs to no step
            _forget(told, type)
    return told


def digest_of(value: Any) -> str:
    """Return the digest of a row's value, "" for what JSON cannot hold and only somebody's hand can have stored."""
    try:
        return canonical.digest(value)
    except (TypeError, ValueError, RecursionError):
        return ""


def _events(turn: AgentContext) -> Iterator[tuple[int, str, Any]]:
    events = SessionEvent.objects.filter(turn_id=turn.execution_id, type__in=list(_READERS)).order_by("sequence")
    found: Iterator[tuple[int, str, Any]] = events.values_list("sequence", "type", "data").iterator(100)
    return found


def _word(number: int, type: str, data: dict[str, Any], fields: tuple[str, ...]) -> Word:
    return Word(
        event=number,
        type=type,
        digests={name: _digests(data[name]) for name in fields if name in data},
        leaves_doubt=type == EventType.TOOL_EXECUTION_UNKNOWN and _leaves_doubt(data.get("error")),
    )


def _digests(value: Any) -> frozenset[str]:
    """Return the digest of a told value; of one too large for an event, that of what was left out."""
    if isinstance(value, dict) and value.keys() == REFERENCE:
        return frozenset({digest_of(value), str(value["sha256"])})
    return frozenset({digest_of(value)})


def _leaves_doubt(error: Any) -> bool:
    """Say whether a person was to be asked how the call ended; a reference in place of the error does not tell."""
    details = error.get("details") if isinstance(error, dict) else None
    return not isinstance(details, dict) or details.get("asked") is True


def _forget(told: Told, type: str) -> None:
    """Drop what an erased event may have changed: whatever was not final before it."""
    told.erased.add(type)
    if type.startswith("tool."):
        told.begun.clear()
        told.asked.clear()
        told.edited.clear()
        told.results = {key: word for key, word in told.results.items() if not word.leaves_doubt}


def _take_input(told: Told, key: Any, word: Word, data: dict[str, Any]) -> None:
    told.input = word


def _take_end(told: Told, key: Any, word: Word, data: dict[str, Any]) -> None:
    told.end = word


def _take_message(told: Told, key: Any, word: Word, data: dict[str, Any]) -> None:
    told.messages[key] = word


def _take_failed_step(told: Told, key: Any, word: Word, data: dict[str, Any]) -> None:
    told.failed_steps[key] = word


def _take_question(told: Told, key: Any, word: Word, data: dict[str, Any]) -> None:
    told.calls.setdefault(key, word)
    told.questions[key] = word


def _take_answer(told: Told, key: Any, word: Word, data: dict[str, Any]) -> None:
    told.calls.setdefault(key, word)
    told.answers[key] = word


def _take_begun(told: Told, key: Any, word: Word, data: dict[str, Any]) -> None:
    told.calls.setdefault(key, word)
    told.begun[key] = word
    told.results.pop(key, None)


def _take_result(told: Told, key: Any, word: Word, data: dict[str, Any]) -> None:
    told.calls.setdefault(key, word)
    told.results[key] = word


def _take_request(told: Told, key: Any, word: Word, data: dict[str, Any]) -> None:
    _name(told, key, word, data)
    told.asked[key] = word


def _take_change(told: Told, key: Any, word: Word, data: dict[str, Any]) -> None:
    """Take what changed a request: the tool did, or a person's edit or vote."""
    _name(told, key, word, data)
    if data.get("verdict") is not None:
        told.edited[key] = word
    elif key in told.asked:
        told.asked[key] = replace(word, digests=told.asked[key].digests | word.digests)


def _take_decision(told: Told, key: Any, word: Word, data: dict[str, Any]) -> None:
    _name(told, key, word, data)
    told.decided[key] = word
    asked, call_id = told.asked.get(key), data.get("call_id")
    if data.get("verdict") == Verdict.APPROVE and asked is not None and asked.says("kind", ApprovalKind.OUTCOME):
        _reopen(told, str(call_id))


def _name(told: Told, key: Any, word: Word, data: dict[str, Any]) -> None:
    told.approvals.setdefault(key, word)
    if isinstance(call_id := data.get("call_id"), str):
        told.calls.setdefault(call_id, word)


def _reopen(told: Told, call_id: str) -> None:
    """Let a call in doubt run again: its end is open, and a tool that changed may change its arguments."""
    told.results.pop(call_id, None)
    if call_id in told.begun:
        told.begun[call_id] = told.begun[call_id].without("arguments")


# For each type: the field that names the row, the fields to compare, and where the word belongs.
_Taker = Callable[[Told, Any, Word, dict[str, Any]], None]
_READERS: dict[EventType, tuple[str, tuple[str, ...], _Taker]] = {
    EventType.TURN_INPUT: ("", ("message",), _take_input),
    **dict.fromkeys(FINAL, ("", ("response", "error"), _take_end)),
    EventType.MESSAGE: ("step", ("message",), _take_message),
    EventType.STEP_FAILED: ("step", ("error",), _take_failed_step),
    EventType.INPUT_REQUESTED: ("call_id", ("question",), _take_question),
    EventType.INPUT_RECEIVED: ("call_id", ("answer",), _take_answer),
    EventType.TOOL_EXECUTION_STARTED: ("call_id", ("tool", "arguments", "attempt"), _take_begun),
    EventType.TOOL_EXECUTION_COMPLETED: ("call_id", _CALL, _take_result),
    EventType.TOOL_EXECUTION_FAILED: ("call_id", _CALL, _take_result),
    EventType.TOOL_EXECUTION_UNKNOWN: ("call_id", _CALL, _take_result),
    EventType.TOOL_APPROVAL_REQUESTED: ("approval_id", _APPROVAL, _take_request),
    EventType.TOOL_APPROVAL_CHANGED: ("approval_id", _APPROVAL, _take_change),
    EventType.TOOL_APPROVAL_GRANTED: ("approval_id", _DECISION, _take_decision),
    EventType.TOOL_APPROVAL_DENIED: ("approval_id", _DECISION, _take_decision),
    EventType.TOOL_APPROVAL_EXPIRED: ("approval_id", _DECISION, _take_decision),
    EventType.TOOL_APPROVAL_CANCELLED: ("approval_id", _DECISION, _take_decision),
}
