"""What the pages show of a request: one row of the list, or all of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils.timesince import timesince, timeuntil
from django.utils.translation import gettext as _

from agentcore import canonical, clock
from agentcore.agents.registry import registry
from agentcore.approvals import permissions, record
from agentcore.models import DECIDE_PERMISSION, ApprovalDecision, ToolApproval
from agentcore.reviews import aftermath, background, conversation, differences, reading, waiting, ways
from agentcore.reviews.aftermath import Aftermath, Known
from agentcore.reviews.background import Background
from agentcore.reviews.conversation import Entry
from agentcore.reviews.differences import Change
from agentcore.reviews.reading import Shown
from agentcore.reviews.ways import Ways
from agentcore.states import ApprovalKind, ApprovalStatus, Verdict
from agentcore.tools import masking
from agentcore.tools.definition import ToolDefinition

# Longer JSON is not offered for editing as a whole.
MAX_EDITED_JSON = 200_000
MAX_DECISIONS = 100


@dataclass(frozen=True, kw_only=True)
class Moment:
    """A time, and how far from now it is in words."""

    at: datetime | None
    text: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the list. It offers the decision itself only when it shows all there is to decide on."""

    id: int
    version: int
    kind: str
    tool: str
    agent: str
    requester: str
    arguments: list[Shown]
    preview: str
    requested: Moment
    expires: Moment | None
    obstacle: str
    shows_all: bool
    summary: str = ""
    is_unroutable: bool = False
    hides: bool = False
    late_result: Shown | None = None
    votes_needed: int = 1
    votes: int = 0
    left_out: int = 0

    @property
    def vote(self) -> int:
        """Return which vote the next approval is."""
        return self.votes + 1


@dataclass(frozen=True, kw_only=True)
class Detail:
    """A request in full. `obstacle` says why this person cannot decide it, "" when they can."""

    approval: ToolApproval
    arguments: list[Shown]
    conversation: list[Entry]
    decisions: list[ApprovalDecision]
    changing: set[int]
    votes: int
    requested: Moment
    expires: Moment | None
    changed: list[Change]
    response: str
    background: Background
    aftermath: Aftermath | None
    known: Known | None
    ways: Ways
    result: str
    hides: bool
    tool_description: str
    warning: str
    obstacle: str
    editable: str

    @property
    def is_proposal(self) -> bool:
        """Say whether the arguments shown are what the agent proposed, and others were approved."""
        approved = self.approval.approved_arguments
        return approved is not None and canonical.digest(approved) != self.approval.arguments_digest

    @property
    def vote(self) -> int:
        """Return which vote the next approval is."""
        return self.votes + 1


# The list's script fills this one in for a request that arrives while the page is open.
BLANK_ROW = Row(
    id=0,
    version=1,
    kind=ApprovalKind.CALL,
    tool="",
    agent="",
    requester="",
    arguments=[],
    preview="",
    requested=Moment(at=None, text=""),
    expires=None,
    obstacle="",
    shows_all=True,
)


def row(approval: Any, user: Any) -> Row:
    """Return a request, loaded by `waiting.with_small_parts`, as the list shows it to `user`, who may see it."""
    short = _short(approval)
    return Row(
        id=approval.pk,
        version=approval.version,
        kind=approval.kind,
        tool=approval.tool,
        agent=approval.agent.name,
        requester=approval.requester_name,
        arguments=short,
        preview=reading.in_line(approval.small_preview, waiting.LISTED_PREVIEW),
        requested=_since(approval.requested_at),
        expires=_until(approval.expires_at),
        obstacle=_obstacle_in_list(approval, user),
        votes_needed=approval.votes_needed,
        votes=approval.votes_given,
        left_out=reading.left_out(approval.small_arguments) if short else 0,
        shows_all=shows_all(approval),
        summary=_summary(approval),
        is_unroutable=approval.is_unroutable,
        hides=_row_hides(approval),
        late_result=_late_result(approval),
    )


def shows_all(approval: Any) -> bool:
    """Say whether the list shows all of a request that was loaded for it: only then it is decided from there."""
    if approval.kind == ApprovalKind.OUTCOME:
        # What is known of it, and what each verdict means, is on its own page.
        return False
    if (
        approval.small_arguments is None
        or reading.in_line(approval.small_preview, waiting.LISTED_PREVIEW) != approval.small_preview
    ):
        return False
    return reading.says_all(approval.small_arguments, _short(approval))


def _short(approval: Any) -> list[Shown]:
    if approval.small_arguments is None:
        return []
    return reading.in_short(approval.small_arguments, approval.call.sensitive)


def _summary(approval: Any) -> str:
    if approval.small_arguments is not None:
        return ""
    return _("Arguments of %(length)s characters: open the request to read them.") % {
        "length": approval.arguments_length
    }


def _late_result(approval: Any) -> Shown | None:
    if not approval.late_length:
        return None
    if approval.small_late_result is None:
        text = _("%(length)s characters") % {"length": approval.late_length}
        return Shown(name="", text=text, length=approval.late_length, is_cut=True)
    return reading.short("", masking.mask(approval.small_late_result, approval.call.sensitive))


def _row_hides(approval: Any) -> bool:
    shown = masking.mask(approval.small_arguments, approval.call.sensitive)
    late = masking.mask(approval.small_late_result, approval.call.sensitive)
    return reading.hides([shown, late, approval.small_preview, approval.tool])


def _obstacle_in_list(approval: Any, user: Any) -> str:
    if not _is_permitted(approval, user):
        return _not_permitted()
    if approval.has_voted:
        return _("You have voted; it waits for others.")
    return _rule_against(approval, user)


def _is_permitted(approval: Any, user: Any) -> bool:
    """Say whether `user` has the permissions, as lists ask: without the object, and without a query for each row."""
    return bool(user.has_perms([DECIDE_PERMISSION, *approval.permission.split()]))


def detail(approval: ToolApproval, user: Any) -> Detail:
    """Return a request in full, as `user`, who may see it, reads it."""
    sensitive, definition = approval.call.sensitive, _definition(approval)
    decisions = _decisions(approval)
    return Detail(
        approval=approval,
        arguments=reading.in_full(approval.arguments, sensitive),
        conversation=conversation.before(approval),
        decisions=decisions,
        changing=_changing(approval, decisions),
        votes=len(record.counted(approval)),
        requested=_since(approval.requested_at),
        expires=_until(approval.expires_at) if approval.status == ApprovalStatus.PENDING else None,
        changed=_changed(approval),
        background=background.of(approval, user),
        aftermath=aftermath.of(approval),
        known=aftermath.known(approval),
        ways=ways.of(approval),
        result=_result(approval),
        hides=_hides(approval),
        response=reading.as_json(approval.response, sensitive) if approval.response is not None else "",
        tool_description=definition.description if definition else "",
        warning=_warning(approval, definition),
        obstacle=_obstacle(approval, user),
        editable=_editable(approval),
    )


def _since(moment: datetime) -> Moment:
    now = clock.now()
    if now - moment < timedelta(minutes=1):
        return Moment(at=moment, text=_("just now"))
    return Moment(at=moment, text=_("%(age)s ago") % {"age": timesince(moment, now, depth=1)})


def _until(moment: datetime | None) -> Moment | None:
    if moment is None:
        return None
    # Rounded, not cut: a request that was made just now for seven days does not expire in six.
    left = timeuntil(moment + timedelta(minutes=30), clock.now(), depth=1)
    return Moment(at=moment, text=_("in %(time)s") % {"time": left})


def _changed(approval: ToolApproval) -> list[Change]:
    """Return what people changed of what the model asked for."""
    call = approval.call
    asked = call.arguments if call.proposed_arguments is None else call.proposed_arguments
    now = approval.arguments if approval.approved_arguments is None else approval.approved_arguments
    return differences.between(asked, now, call.sensitive)


def _editable(approval: ToolApproval) -> str:
    text = reading.as_json(approval.arguments, approval.call.sensitive) if approval.allow_edit else ""
    return text if len(text) <= MAX_EDITED_JSON else ""


def _result(approval: ToolApproval) -> str:
    """Return what the form for a result starts from: what the call returned too late, if that may be told whole."""
    late, call = approval.call.late_result, approval.call
    if approval.kind != ApprovalKind.OUTCOME or late is None or masking.mask(late, call.sensitive) != late:
        return ""
    text = reading.as_typed(late)
    return text if len(text) <= MAX_EDITED_JSON else ""


def _hides(approval: ToolApproval) -> bool:
    shown = masking.mask(approval.arguments, approval.call.sensitive)
    late = masking.mask(approval.call.late_result, approval.call.sensitive)
    return reading.hides([shown, late, approval.preview, approval.tool])


def _decisions(approval: ToolApproval) -> list[ApprovalDecision]:
    latest = approval.decisions.order_by("-id")[:MAX_DECISIONS]
    return list(reversed(latest))


def _changing(approval: ToolApproval, decisions: list[ApprovalDecision]) -> set[int]:
    """Return the ids of the approvals that changed the arguments, of the record oldest first."""
    call = approval.call
    last = call.arguments_digest if call.proposed_arguments is None else canonical.digest(call.proposed_arguments)
    found = set()
    for decision in decisions:
        if decision.refusal or decision.verdict != Verdict.APPROVE:
            continue
        # An edit makes a version of its own.
        if decision.approval_version > 1 and decision.arguments_digest != last:
            found.add(decision.pk)
        last = decision.arguments_digest
    return found


def _obstacle(approval: ToolApproval, user: Any) -> str:
    if approval.status != ApprovalStatus.PENDING:
        return _settled(approval)
    if not permissions.is_permitted(user, approval):
        return _not_permitted()
    if record.has_voted(approval, user):
        return _("You have voted on this request. It waits for others.")
    return _rule_against(approval, user)


def _settled(approval: ToolApproval) -> str:
    names = ", ".join(vote.actor_name for vote in record.counted(approval))
    return ways.settled(approval) % {"names": names}


def _not_permitted() -> str:
    return _("You may see this request, but not decide it.")


def _rule_against(approval: ToolApproval, user: Any) -> str:
    if permissions.is_own(user, approval):
        return _own_request(approval)
    if approval.expires_at is not None and approval.expires_at <= clock.now():
        return _("The time to decide this request is over.")
    return ""


def _own_request(approval: ToolApproval) -> str:
    if approval.requester_id is None:
        return _("Who asked for this does not exist any more, so nobody can be known to be somebody else.")
    return _("This is your own request. Somebody else must decide it.")


def _warning(approval: ToolApproval, definition: ToolDefinition | None) -> str:
    """Return what may make an approval useless: the tool is not the one that was asked about."""
    if definition is None:
        return _("This tool is not defined here any more; it may not run.")
    if approval.fingerprint and definition.fingerprint != approval.fingerprint:
        return _("The tool changed since this was asked. It will not run on this approval.")
    return ""


def _definition(approval: ToolApproval) -> ToolDefinition | None:
    agent = registry.find(approval.agent.name)
    return agent.tools.get(approval.tool) if agent else None
