"""The chat: pick an agent, write to it, watch the turn. Plain forms do it all; the script shows it as it happens."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.db.models import Min
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render, resolve_url
from django.urls import path, reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from agentcore import AgentError, TurnState, runtime
from agentcore.agents.definition import AgentDefinition
from agentcore.engine import citing
from agentcore.exceptions import NotFound
from agentcore.models import DECIDE_PERMISSION, AgentContext, AgentSession, ToolApproval, ToolCall, UserQuestion
from agentcore.tools.masking import mask
from agentcore.turns import sessions

# What the picker begins with.
FIRST_AGENT = "support-agent"

MAX_SESSIONS = 50
MAX_TURNS = 30
MAX_TITLE = 60
MAX_SHOWN = 2_000

STATUS_OF_ERROR = {"not_found": 404, "conflict": 409, "too_large": 413, "rate_limited": 429}

# What the page says of a turn and of a call; the script is given the same words.
TURN_WORDS = {
    TurnState.QUEUED: "Waiting for a worker…",
    TurnState.THINKING: "Thinking…",
    TurnState.USING_TOOL: "Working…",
    TurnState.WAITING_FOR_APPROVAL: "Paused: waiting for approval",
    TurnState.WAITING_FOR_INPUT: "Waiting for your answer",
    TurnState.CANCELLING: "Cancelling…",
    TurnState.COMPLETED: "",
    TurnState.FAILED: "Failed",
    TurnState.CANCELLED: "Cancelled",
    TurnState.INTERRUPTED: "Interrupted",
}
CALL_WORDS = {
    "pending": "not begun",
    "waiting": "a person decides",
    "approved": "approved",
    "executing": "running…",
    "completed": "done",
    "failed": "failed",
    "rejected": "declined",
    "expired": "nobody decided in time",
    "cancelled": "not run",
    "unknown": "nobody knows how it ended",
}
VERDICT_WORDS = {"approve": "approved by", "respond": "answered by", "reject": "declined by"}
TEXT_WORDS = {"cut": "broken off", "write": "Write a message…", "answer": "Write your answer…"}
LIVE_WORDS = {
    "live": "Live",
    "connecting": "Connecting…",
    "closed": "Not live",
    "logged_out": "You are logged out.",
    "log_in": "Log in again.",
}


@dataclass(frozen=True, kw_only=True)
class Call:
    """A tool call as the page shows it. `approval_id` is set while a person must decide."""

    call_id: str = ""
    tool: str = ""
    status: str = "pending"
    word: str = ""
    arguments: str = ""
    note: str = ""
    outcome: str = ""
    approval_id: int | None = None


@dataclass(frozen=True, kw_only=True)
class Part:
    """What a turn brought, in order: something the agent said, a call it made, or a question with its answer.

    `is_cut` marks an answer that broke off: it is no message, and nothing was done of it.
    """

    step: int = 0
    said: str = ""
    is_cut: bool = False
    call: Call | None = None
    question: UserQuestion | None = None


@dataclass(frozen=True, kw_only=True)
class Listed:
    """One of the user's sessions in the list beside the conversation."""

    session_id: str
    name: str
    agent: str


@dataclass(frozen=True, kw_only=True)
class Turn:
    execution_id: str = ""
    message: str = ""
    parts: tuple[Part, ...] = ()
    citations: tuple[str, ...] = ()
    state: str = TurnState.QUEUED
    word: str = TURN_WORDS[TurnState.QUEUED]
    is_active: bool = True


@never_cache
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def page(request: HttpRequest) -> HttpResponse:
    """Show the chosen session, or a new one; a POST sends a message to it."""
    if request.method == "POST":
        return _send(request)
    wanted = request.GET.get("session", "")
    session = _find_own(request.user, wanted)
    return _missing(request) if wanted and session is None else _page(request, session)


@never_cache
@login_required
@require_POST
def cancel(request: HttpRequest) -> HttpResponse:
    """Cancel the active turn of one of the user's own sessions."""
    session = _find_own(request.user, request.POST.get("session", ""))
    if session is None:
        return _missing(request)
    try:
        runtime.cancel(session.session_id, by=request.user.get_username())
    except AgentError as error:
        return _page(request, session, error=error)
    return redirect(_address(session))


def _send(request: HttpRequest) -> HttpResponse:
    message = request.POST.get("message", "")
    session = _find_own(request.user, request.POST.get("session", ""))
    try:
        # Together: a message that is refused leaves no empty session behind.
        with transaction.atomic():
            session = session or _create_session(request, message)
            _hand_on(request, session, message)
    except AgentError as error:
        return _page(request, _find_own(request.user, request.POST.get("session", "")), error=error, message=message)
    return redirect(_address(session))


def _hand_on(request: HttpRequest, session: AgentSession, message: str) -> None:
    """Send a message, or the answer to the turn that the form names: sent twice, it is one all the same."""
    key = request.POST.get("key") or None
    asked = str(request.POST.get("answers", ""))
    if not asked:
        runtime.enqueue(session.session_id, message, idempotency_key=key, user=request.user)
    elif str(runtime.result(asked).session_id) == session.session_id:
        runtime.answer(asked, message, idempotency_key=key, by=request.user.get_username())
    else:
        raise NotFound("There is no such question.")


def _create_session(request: HttpRequest, message: str) -> AgentSession:
    # The form names the session it would begin: sent twice, it begins one.
    return runtime.create_session(
        request.POST.get("agent", ""),
        session_id=request.POST.get("session") or None,
        user=request.user,
        title=_title(message),
    )


def _title(message: str) -> str:
    text = " ".join(message.split())
    return text if len(text) <= MAX_TITLE else f"{text[: MAX_TITLE - 1]}…"


def _find_own(user: Any, session_id: str) -> AgentSession | None:
    found = sessions.find(session_id)
    return found if found is not None and found.user_id == user.pk else None


def _agents(user: Any) -> list[AgentDefinition]:
    return sorted(runtime.agents(user), key=lambda one: (one.name != FIRST_AGENT, one.name))


def _sessions(user: Any) -> list[Listed]:
    own = AgentSession.objects.present().unarchived().filter(user=user).select_related("agent")[:MAX_SESSIONS]
    rows = list(own)
    inputs = _first_inputs([row for row in rows if not row.title])
    return [Listed(session_id=row.session_id, name=_name(row, inputs), agent=row.agent.name) for row in rows]


def _first_inputs(untitled: list[AgentSession]) -> dict[int, Any]:
    """Return what was written first in these sessions, by the session's key: one query."""
    if not untitled:
        return {}
    turns = AgentContext.objects.present().filter(session__in=[row.pk for row in untitled])
    firsts = turns.order_by().values("session_id").annotate(first=Min("pk")).values_list("first", flat=True)
    return dict(AgentContext.objects.filter(pk__in=list(firsts)).values_list("session_id", "input"))


def _name(session: AgentSession, inputs: dict[int, Any]) -> str:
    """Return what a session is called: its title, else the first words written in it, else its id."""
    content = (inputs.get(session.pk) or {}).get("content", "")
    return session.title or _title(content) or session.session_id


def _address(session: AgentSession) -> str:
    return f"{reverse('chat')}?{urlencode({'session': session.session_id})}"


def _page(
    request: HttpRequest, session: AgentSession | None, *, error: AgentError | None = None, message: str = ""
) -> HttpResponse:
    turns = _turns(session) if session else []
    may_decide = request.user.has_perm(DECIDE_PERMISSION)
    name = _name(session, _first_inputs([] if session.title else [session])) if session else ""
    context = {
        "agents": _agents(request.user),
        "sessions": _sessions(request.user),
        "session": session,
        "name": name,
        "session_id": session.session_id if session else request.POST.get("session") or f"s-{uuid.uuid4().hex}",
        "turns": turns,
        "is_active": any(turn.is_active for turn in turns),
        "asks": next((turn for turn in turns if turn.state == TurnState.WAITING_FOR_INPUT), None),
        "blank_turn": Turn(),
        "blank_call": Call(),
        "key": uuid.uuid4().hex,
        "error": error,
        "message": message,
        "agent": request.POST.get("agent", ""),
        "words": _words(),
        "text_words": TEXT_WORDS,
        "may_decide": may_decide,
        "pending_reviews": runtime.pending_approvals(request.user).count() if may_decide else 0,
    }
    return render(request, "project/chat.html", context, status=STATUS_OF_ERROR.get(error.code, 400) if error else 200)


def _missing(request: HttpRequest) -> HttpResponse:
    return _page(request, None, error=NotFound("There is no such conversation."))


def _words() -> str:
    live = {**LIVE_WORDS, "log_in_page": resolve_url(settings.LOGIN_URL)}
    return json.dumps({"turn": TURN_WORDS, "call": CALL_WORDS, "verdict": VERDICT_WORDS, "text": TEXT_WORDS, **live})


def _turns(session: AgentSession) -> list[Turn]:
    """Return the session's last turns, oldest first: at most seven queries, whatever their number."""
    rows = AgentContext.objects.present().filter(session=session).order_by("-pk")
    rows = rows.prefetch_related("steps__tool_calls__approvals__decisions", "steps__tool_calls__question")
    shown = list(rows[:MAX_TURNS])
    looked_up = [row.pk for row in shown if row.enable_rag]
    found = citing.retrieved_for(looked_up) if looked_up else {}
    return [_turn(row, found.get(row.pk, [])) for row in reversed(shown)]


def _turn(row: AgentContext, retrieved: list[dict[str, Any]]) -> Turn:
    return Turn(
        execution_id=str(row.execution_id),
        message=row.input.get("content", ""),
        parts=tuple(_parts(row)),
        citations=tuple(dict.fromkeys(_cited(item) for item in retrieved)),
        state=row.state,
        word=_turn_word(row),
        is_active=row.is_active,
    )


def _cited(item: dict[str, Any]) -> str:
    """Return where a passage stands, as the script writes it too."""
    return " › ".join(part for part in (item["title"], item["heading"]) if part) + f" ({item['source']})"


def _turn_word(row: AgentContext) -> str:
    word = TURN_WORDS[TurnState(row.state)]
    if row.state == TurnState.FAILED and row.error:
        return f"{word}: {row.error.get('message', '')}"
    return word


def _parts(row: AgentContext) -> list[Part]:
    parts: list[Part] = []
    for step in sorted(row.steps.all(), key=lambda step: step.number):
        said = (step.message or {}).get("content")
        if said:
            parts.append(Part(step=step.number, said=said))
        parts += [_of_call(step.number, call) for call in sorted(step.tool_calls.all(), key=_position)]
    cut = _cut_text(row)
    if cut:
        parts.append(Part(said=cut, is_cut=True))
    if row.response and (not parts or parts[-1].said != row.response):
        parts.append(Part(said=row.response))
    return parts


def _of_call(step: int, row: ToolCall) -> Part:
    question = getattr(row, "question", None)
    return Part(step=step, question=question) if question else Part(step=step, call=_call(row))


def _cut_text(row: AgentContext) -> str:
    """Return what came of an answer that broke off and was not tried again."""
    details = (row.error or {}).get("details") or {}
    return str(details.get("text") or "") if details.get("incomplete") else ""


def _position(call: ToolCall) -> int:
    return call.position


def _call(row: ToolCall) -> Call:
    approval = max(row.approvals.all(), key=lambda approval: approval.pk, default=None)
    waits = approval is not None and approval.status == "pending"
    status = "waiting" if waits else row.status
    return Call(
        call_id=row.call_id,
        tool=row.tool,
        status=status,
        word=CALL_WORDS[status] if row.duration is None else f"{CALL_WORDS[status]} in {row.duration:.1f} s",
        arguments=_text(mask(row.arguments, row.sensitive)) if row.arguments else "",
        note=_decided(approval) if approval else "",
        outcome=_outcome(row),
        approval_id=approval.pk if approval and waits else None,
    )


def _decided(approval: ToolApproval) -> str:
    for decision in approval.decisions.all():
        if decision.counted_key and decision.verdict in VERDICT_WORDS and approval.status != "pending":
            text = f"{VERDICT_WORDS[decision.verdict]} {decision.actor_name}"
            return f"{text}: {decision.note}" if decision.note else text
    return ""


def _outcome(row: ToolCall) -> str:
    if row.status == "completed":
        return _text(mask(row.result, row.sensitive))
    # What a person answered is told by the note already.
    return row.error.get("message", "") if row.error and row.status != "rejected" else ""


def _text(value: Any) -> str:
    text = ", ".join(f"{name}: {_json(item)}" for name, item in value.items()) if isinstance(value, dict) else ""
    text = text or (value if isinstance(value, str) else _json(value))
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


urlpatterns = [
    path("", page, name="chat"),
    path("cancel/", cancel, name="chat-cancel"),
]
