"""End the turn of a model that keeps asking for what cannot be run: tools that do not exist, calls cut in the middle.

It is told each time, and told is enough for most. One that goes on costs a whole reply for nothing each time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentcore.exceptions import TurnFailure
from agentcore.models import ToolCall
from agentcore.turns.work import Work

UNKNOWN_TOOL = "unknown_tool"
CUT = "cut"

# So many replies in a row, none of whose calls could be run for these reasons, are the end.
MAX_REPLIES = 3

_WORDS = {
    UNKNOWN_TOOL: "asked for tools that do not exist",
    CUT: "made calls that were cut off before their end",
}


def find_end(work: Work, asked: Iterable[ToolCall]) -> TurnFailure | None:
    """Return why the turn must end with these calls, not yet stored; None while there is hope."""
    reason = _reason(call.error for call in asked)
    if reason is None or not _were_fruitless(work):
        return None
    return TurnFailure(
        f"The model {_WORDS[reason]} in {MAX_REPLIES} replies in a row.", reason=reason, replies=MAX_REPLIES
    )


def _were_fruitless(work: Work) -> bool:
    """Say whether the replies right before this one were as bad; the rows tell it also after a restart."""
    number = work.step.number
    before = range(number - MAX_REPLIES + 1, number)
    errors: dict[int, list[Any]] = {earlier: [] for earlier in before}
    rows = ToolCall.objects.filter(turn=work.turn, step__number__in=before)
    for earlier, error in rows.values_list("step__number", "error"):
        errors[earlier].append(error)
    return all(_reason(found) for found in errors.values())


def _reason(errors: Iterable[Any]) -> str | None:
    """Return why no call of a reply could be run, if it was for these reasons alone; the first call's reason."""
    reasons = [((error or {}).get("details") or {}).get("reason") for error in errors]
    return reasons[0] if reasons and all(reason in _WORDS for reason in reasons) else None
