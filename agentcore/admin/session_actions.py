"""The actions on sessions: archive, delete and restore, each with a page that says what would happen first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext_lazy as _

from agentcore.admin.base import ReadOnlyAdmin
from agentcore.conf import settings
from agentcore.exceptions import AgentError
from agentcore.models import AgentSession
from agentcore.turns import sessions

MAX_AT_ONCE = 100
MAX_REASONS = 10
CHANGE_PERMISSION = "agentcore.change_agentsession"
DELETE_PERMISSION = "agentcore.delete_agentsession"


@dataclass(frozen=True, kw_only=True)
class _Verb:
    """What an action does to one session, and its words. `said` is kept in the admin's history, in one language."""

    action: str
    title: Any
    intro: Any
    button: Any
    report: Any
    said: str
    do: Callable[[AgentSession], object]


def _restore(session: AgentSession) -> object:
    return sessions.restore(session.session_id)


ARCHIVE = _Verb(
    action="archive_sessions",
    title=_("Archive sessions"),
    intro=_("These sessions take no new turns from then on. They can still be read."),
    button=_("Archive"),
    report=_("%d archived, %d refused."),
    said="Archived.",
    do=sessions.archive,
)
DELETE = _Verb(
    action="delete_sessions",
    title=_("Delete sessions"),
    intro=_("These sessions are gone for their users. They stay here, and can be restored."),
    button=_("Delete"),
    report=_("%d deleted, %d refused."),
    said="Deleted.",
    do=sessions.delete,
)
RESTORE = _Verb(
    action="restore_sessions",
    title=_("Restore sessions"),
    intro=_("These sessions are there again for their users, as they were."),
    button=_("Restore"),
    report=_("%d restored, %d refused."),
    said="Restored.",
    do=_restore,
)
FOR_GOOD = _("These sessions and all their rows are removed for good: SOFT_DELETE is off.")


class SessionActions(ReadOnlyAdmin):
    """The part of the sessions' admin that changes something, by the product's own verbs."""

    actions: Any = (ARCHIVE.action, DELETE.action, RESTORE.action)

    def has_archive_permission(self, request: HttpRequest) -> bool:
        return request.user.is_active and request.user.has_perm(CHANGE_PERMISSION)

    def has_remove_permission(self, request: HttpRequest) -> bool:
        """Say whether the user may delete sessions; who may, may also bring them back."""
        return request.user.is_active and request.user.has_perm(DELETE_PERMISSION)

    @admin.action(permissions=["archive"], description=_("Archive the selected sessions"))
    def archive_sessions(self, request: HttpRequest, queryset: QuerySet[AgentSession]) -> HttpResponse | None:
        return self._act(request, queryset, ARCHIVE)

    @admin.action(permissions=["remove"], description=_("Delete the selected sessions"))
    def delete_sessions(self, request: HttpRequest, queryset: QuerySet[AgentSession]) -> HttpResponse | None:
        return self._act(request, queryset, DELETE)

    @admin.action(permissions=["remove"], description=_("Restore the selected sessions"))
    def restore_sessions(self, request: HttpRequest, queryset: QuerySet[AgentSession]) -> HttpResponse | None:
        return self._act(request, queryset, RESTORE)

    def _act(self, request: HttpRequest, queryset: QuerySet[AgentSession], verb: _Verb) -> HttpResponse | None:
        chosen = list(queryset.order_by("pk")[: MAX_AT_ONCE + 1])
        if request.POST.get("post") != "yes":
            return self._confirmation(request, chosen, verb)
        refused = [reason for session in chosen[:MAX_AT_ONCE] if (reason := self._do(request, session, verb))]
        done = len(chosen[:MAX_AT_ONCE]) - len(refused)
        level = messages.WARNING if refused else messages.SUCCESS
        self.message_user(request, verb.report % (done, len(refused)), level)
        for reason in refused[:MAX_REASONS]:
            self.message_user(request, reason, messages.ERROR)
        return None

    def _do(self, request: HttpRequest, session: AgentSession, verb: _Verb) -> str:
        """Change one session; return why it was refused, or ""."""
        kept = {"object_id": str(session.pk), "object_repr": session.session_id}
        try:
            verb.do(session)
        except AgentError as error:
            return error.message
        # Its id, not its title: what users write stays out of the admin's history.
        LogEntry.objects.create(
            user_id=request.user.pk,  # type: ignore[misc]  # only who is logged in gets here
            content_type=ContentType.objects.get_for_model(AgentSession),
            action_flag=CHANGE,
            change_message=verb.said,
            **kept,
        )
        return ""

    def _confirmation(self, request: HttpRequest, chosen: Sequence[AgentSession], verb: _Verb) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": verb.title,
            "intro": FOR_GOOD if verb is DELETE and not settings.SOFT_DELETE else verb.intro,
            "button": verb.button,
            "action": verb.action,
            "sessions": chosen[:MAX_AT_ONCE],
            "limit": MAX_AT_ONCE if len(chosen) > MAX_AT_ONCE else 0,
            "opts": self.opts,
            "media": self.media,
            "checkbox_name": ACTION_CHECKBOX_NAME,
            "back": request.get_full_path(),
        }
        return TemplateResponse(request, "admin/agentcore/agentsession/keep.html", context)
