"""See, search, correct, delete, take along and erase one's own memories. Another's do not exist."""

from __future__ import annotations

import json
import logging
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_http_methods, require_safe

from agentcore import clock
from agentcore.approvals import visible
from agentcore.exceptions import AgentError, NotFound, Unavailable
from agentcore.memories.forms import CorrectForm, LookForm
from agentcore.memories.guards import LIST, guarded, posted
from agentcore.memory import Owner, keeping
from agentcore.models import Memory

logger = logging.getLogger("agentcore.memory")

PAGE_SIZE = 50
STATUS_OF_ERROR = {"conflict": 409, "too_large": 413, "unavailable": 503}
FIELDS = ("id", "kind", "text", "data", "count", "told_in")
TIMES = ("created_at", "updated_at", "seen_at", "corrected_at", "expires_at")


@guarded
@require_safe
def memories(request: HttpRequest) -> HttpResponse:
    """List one's memories, newest first; `?q=` searches them, `?kind=` and `?before=` choose."""
    form, owner = LookForm(request.GET), Owner.of_user(request.user)
    asked = form.cleaned_data if form.is_valid() else {"q": "", "kind": "", "before": None}
    yours = Memory.objects.of(owner).select_related("session", "agent")
    if asked["kind"]:
        yours = yours.filter(kind=asked["kind"])
    context: dict[str, Any] = {"look": form, "asked": asked, "messages": messages.get_messages(request)}
    if asked["q"]:
        found = _found(owner, asked)
        status = 503 if "problem" in found else 200
        return render(request, "agentcore/memories/list.html", {**context, **found}, status=status)
    rows = list((yours.filter(pk__lt=asked["before"]) if asked["before"] else yours).order_by("-pk")[: PAGE_SIZE + 1])
    more = rows[PAGE_SIZE - 1].pk if len(rows) > PAGE_SIZE else None
    return render(request, "agentcore/memories/list.html", {**context, "rows": rows[:PAGE_SIZE], "more": more})


@guarded
@require_safe
def one(request: HttpRequest, memory_id: int) -> HttpResponse:
    """Show one of one's memories, with the form that corrects it."""
    memory = _find(request, memory_id)
    if memory is None:
        return _missing(request)
    return _one_page(request, memory, _form_of(memory))


@guarded
@posted
def correct(request: HttpRequest, memory_id: int) -> HttpResponse:
    """Change what a memory says."""
    memory = _find(request, memory_id)
    if memory is None:
        return _missing(request)
    form = CorrectForm(request.POST, label_suffix="")
    if not form.is_valid():
        return _one_page(request, memory, form, status=400)
    try:
        keeping.correct(memory, text=form.cleaned_data["text"])
    except NotFound:
        return _missing(request)
    except AgentError as error:
        form.add_error("text", error.message)
        return _one_page(request, memory, form, status=STATUS_OF_ERROR.get(error.code, 400))
    messages.success(request, _("It is corrected."))
    return redirect(LIST)


@guarded
@posted
def delete(request: HttpRequest, memory_id: int) -> HttpResponse:
    """Delete a memory."""
    memory = _find(request, memory_id)
    if memory is None:
        return _missing(request)
    try:
        keeping.delete(memory)
    except Unavailable:
        logger.warning("A memory cannot be deleted just now", exc_info=True)
        problem = _("It cannot be deleted just now. Try again later.")
        return _one_page(request, memory, _form_of(memory), status=503, problem=problem)
    messages.success(request, _("It is deleted."))
    return redirect(LIST)


@guarded
@require_safe
def export(request: HttpRequest) -> HttpResponse:
    """Give all one's memories out as a JSON file."""
    owner = Owner.of_user(request.user)
    told = {
        "user": owner.user_name,
        "exported_at": clock.now().isoformat(),
        "memories": [_told(memory) for memory in keeping.export(owner)],
    }
    text = json.dumps(told, indent=2, ensure_ascii=False)
    response = HttpResponse(text, content_type="application/json; charset=utf-8")
    response.headers["Content-Disposition"] = 'attachment; filename="memories.json"'
    return response


@guarded
@require_http_methods(["GET", "HEAD", "POST"])
def erase(request: HttpRequest) -> HttpResponse:
    """Ask once more, then delete all one's memories."""
    owner = Owner.of_user(request.user)
    if request.method != "POST":
        return _erase_page(request, owner)
    try:
        count = keeping.erase(owner)
    except Unavailable:
        logger.warning("Memories cannot be erased just now", exc_info=True)
        return _erase_page(request, owner, status=503, problem=_("They cannot be erased just now. Try again later."))
    said = ngettext("%(count)d memory is erased.", "%(count)d memories are erased.", count) % {"count": count}
    messages.success(request, said)
    return redirect(LIST)


def _found(owner: Owner, asked: dict[str, Any]) -> dict[str, Any]:
    """Return what a search finds, or that it cannot be made just now."""
    try:
        found = keeping.search(owner, asked["q"], limit=keeping.MAX_FOUND, kind=asked["kind"] or None)
    except AgentError:
        logger.warning("Memories cannot be searched just now", exc_info=True)
        return {"rows": [], "problem": _("Memories cannot be searched just now. Try again later.")}
    return {"rows": [memory for memory, _score in found]}


def _find(request: HttpRequest, memory_id: int) -> Memory | None:
    try:
        return keeping.get(Owner.of_user(request.user), memory_id)
    except NotFound:
        return None


def _form_of(memory: Memory) -> CorrectForm:
    return CorrectForm(initial={"text": memory.text}, label_suffix="")


def _one_page(
    request: HttpRequest, memory: Memory, form: CorrectForm, *, status: int = 200, problem: str = ""
) -> HttpResponse:
    facts = json.dumps(memory.data, indent=2, ensure_ascii=False) if memory.data else ""
    # What hides in a text cannot be seen in a field that edits it.
    hides = visible.has_hidden(str(form["text"].value() or ""))
    context = {"memory": memory, "form": form, "facts": facts, "problem": problem, "hides": hides}
    return render(request, "agentcore/memories/one.html", context, status=status)


def _erase_page(request: HttpRequest, owner: Owner, *, status: int = 200, problem: str = "") -> HttpResponse:
    context = {"count": Memory.objects.of(owner).count(), "problem": problem}
    return render(request, "agentcore/memories/erase.html", context, status=status)


def _missing(request: HttpRequest) -> HttpResponse:
    """Answer for what does not exist, and alike for what is another's."""
    return render(request, "agentcore/memories/missing.html", status=404)


def _told(memory: Memory) -> dict[str, Any]:
    times = {name: moment.isoformat() if (moment := getattr(memory, name)) else None for name in TIMES}
    kept_to = memory.session.session_id if memory.session is not None else None
    agent = memory.agent.name if memory.agent is not None else None
    return {**{name: getattr(memory, name) for name in FIELDS}, "kept_to": kept_to, "agent": agent, **times}
