"""The four ways to decide in the admin: their words, what their page asks for, and the verb that does it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from agentcore.admin import display
from agentcore.approvals import decisions
from agentcore.exceptions import InvalidInput
from agentcore.models import ToolApproval
from agentcore.states import ApprovalKind, Channel
from agentcore.tools import json_text, masking

Text = str | Promise


@dataclass(frozen=True, kw_only=True)
class Way:
    """One of the ways to decide.

    `action` is that of the list, "" for what is decided one at a time. `field` is the name of the form's note, `entry`
    that of the larger text some ways ask for. `outcome` says what it means for a call nobody knows the end of, and
    `outcome_button` is the button's word then.
    """

    action: str = ""
    page: str
    field: str
    button: Text
    title: Text
    intro: Text
    label: Text
    done: Text
    refused: Text
    outcome: Text
    outcome_button: Text
    entry: str = ""
    entry_label: Text = ""
    entry_help: Text = ""
    decide: Callable[[int, Any, Mapping[str, str], Any], ToolApproval]

    def button_for(self, approval: ToolApproval) -> Text:
        return self.outcome_button if approval.kind == ApprovalKind.OUTCOME else self.button

    def meaning_for(self, approval: ToolApproval) -> Text:
        """Return what the way does to a call nobody knows the end of, "" for a call that has not begun."""
        return self.outcome if approval.kind == ApprovalKind.OUTCOME else ""


def read_text(data: Mapping[str, str], name: str) -> str:
    """Return what was typed. Browsers send CRLF; what a model is told word for word has plain line feeds."""
    return data.get(name, "").replace("\r\n", "\n")


def _approve(approval_id: int, by: Any, data: Mapping[str, str], version: Any) -> ToolApproval:
    note = read_text(data, "note")
    return decisions.approve(approval_id, by, note=note, version=version, channel=Channel.ADMIN)


def _edit(approval_id: int, by: Any, data: Mapping[str, str], version: Any) -> ToolApproval:
    return decisions.approve(
        approval_id,
        by,
        arguments=_arguments(read_text(data, "arguments")),
        note=read_text(data, "note"),
        version=version,
        channel=Channel.ADMIN,
    )


def _reject(approval_id: int, by: Any, data: Mapping[str, str], version: Any) -> ToolApproval:
    reason = read_text(data, "reason")
    return decisions.reject(approval_id, by, reason=reason, version=version, channel=Channel.ADMIN)


def _respond(approval_id: int, by: Any, data: Mapping[str, str], version: Any) -> ToolApproval:
    result, note = _with_its_secrets(approval_id, _result(data)), read_text(data, "note")
    return decisions.respond(approval_id, by, result, note=note, version=version, channel=Channel.ADMIN)


def _arguments(text: str) -> Any:
    """Return edited arguments; raise InvalidInput for what is no object: nothing is approved by a slip."""
    try:
        given = json_text.read(text)
    except ValueError as error:
        problem = _("The arguments are not valid JSON: %(problem)s.") % {"problem": error}
        raise InvalidInput(problem, field="arguments") from error
    if not isinstance(given, dict):
        raise InvalidInput(str(_("The arguments must be a JSON object.")), field="arguments")
    return given


def _result(data: Mapping[str, str]) -> Any:
    """Return a result: what reads as JSON is JSON, anything else is text.

    What only looks like JSON is refused until the person says that it is text: a slip is not stored as one.
    """
    text = read_text(data, "result")
    if not text.strip():
        raise InvalidInput(str(_("Give the result that the agent is told.")), field="result")
    if AS_TEXT in data:
        return text
    try:
        return json.loads(text, parse_constant=_refuse, object_pairs_hook=_once_each)
    except (ValueError, RecursionError) as error:
        if text.lstrip().startswith(display.JSON_BEGINS):
            raise InvalidInput(_not_json(error), field="result", may_be_text=True) from error
        return text


def _not_json(error: Exception) -> str:
    problem = error if isinstance(error, ValueError) else _("it is nested too deeply")
    return _("This looks like JSON and is none: %(problem)s. Mend it, or send it as text.") % {"problem": problem}


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(str(_("a key is there twice")))
    return found


def _with_its_secrets(approval_id: int, result: Any) -> Any:
    """Return a result in which a mask stands for the secret that a late result has there."""
    asked = ToolApproval.objects.filter(pk=approval_id, kind=ApprovalKind.OUTCOME).select_related("call")
    approval = asked.only("call__late_result", "call__sensitive").first()
    if approval is None or approval.call.late_result is None:
        return result
    return masking.unmask(result, approval.call.late_result, approval.call.sensitive)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


# The box that says: what looks like JSON is text.
AS_TEXT = "as_text"
DOUBT = _("This call began, and nobody knows how it ended.")
NOTE = _("Note (kept with the decision)")

APPROVE = Way(
    action="approve_selected",
    page="approve",
    field="note",
    button=_("Approve"),
    title=_("Approve requests"),
    intro=_("These calls will run, with exactly these arguments:"),
    label=NOTE,
    done=_("%(decided)d approved, %(refused)d refused"),
    refused=_("Not approved"),
    outcome=_("Approving runs it again."),
    outcome_button=_("Run it again"),
    decide=_approve,
)
EDIT = Way(
    page="edit",
    field="note",
    button=_("Change and approve"),
    title=_("Change the arguments and approve"),
    intro=_("This call will run with what you write below in place of these arguments:"),
    label=NOTE,
    done=_("%(decided)d approved, %(refused)d refused"),
    refused=_("Not approved"),
    outcome="",
    outcome_button="",
    entry="arguments",
    entry_label=_("Arguments as JSON"),
    entry_help=_(
        "A value left as ******** keeps the secret it stands for. The agent is told that a person changed them."
    ),
    decide=_edit,
)
REJECT = Way(
    action="reject_selected",
    page="reject",
    field="reason",
    button=_("Reject"),
    title=_("Reject requests"),
    intro=_("These calls will not run:"),
    label=_("Reason (the model is told it word for word)"),
    done=_("%(decided)d rejected, %(refused)d refused"),
    refused=_("Not rejected"),
    outcome=_("Rejecting ends the turn."),
    outcome_button=_("End the turn"),
    decide=_reject,
)
RESPOND = Way(
    page="respond",
    field="note",
    button=_("Answer in its place"),
    title=_("Answer in the tool's place"),
    intro=_("This call will not run; the agent is told your result:"),
    label=NOTE,
    done=_("%(decided)d answered, %(refused)d refused"),
    refused=_("Not answered"),
    outcome=_("What you write is taken as its result; it does not run again."),
    outcome_button=_("This is the result"),
    entry="result",
    entry_label=_("Result, as JSON or plain text"),
    entry_help=_("The agent takes it for what the tool returned."),
    decide=_respond,
)
WAYS = (APPROVE, EDIT, RESPOND, REJECT)
ACTIONS = (APPROVE, REJECT)
