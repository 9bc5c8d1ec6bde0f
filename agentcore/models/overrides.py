"""What staff ask of a tool's approvals beyond what its code asks. It can only be stricter."""

from __future__ import annotations

from typing import Any, Self

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from agentcore.models.agents import Agent
from agentcore.models.base import Manager, QuerySet, Record

EVERY_TOOL = "*"


class ToolOverrideQuerySet(QuerySet["ToolOverride"]):
    def for_agent(self, agent_pk: int) -> Self:
        """Keep those in force for an agent's tools, whichever they are."""
        return self.filter(Q(agent_id=agent_pk) | Q(agent=None), is_active=True)


class ToolOverride(Record):
    """A stricter rule for the approvals of one tool, or of every tool of an agent, or of all agents.

    It holds for what is asked from then on. Of several that match, each is kept: the most votes, the shortest time,
    all permissions.
    """

    agent = models.ForeignKey(
        Agent, null=True, blank=True, on_delete=models.CASCADE, related_name="+", help_text=_("Empty: every agent.")
    )
    tool = models.CharField(max_length=64, default=EVERY_TOOL, help_text=_("The tool's name, or * for every tool."))
    is_active = models.BooleanField(_("in force"), default=True)
    always_ask = models.BooleanField(default=False, help_text=_("Ask a person for each call, whatever the code says."))
    permission = models.CharField(
        max_length=100, blank=True, default="", help_text=_("app.codename, asked for besides the tool's own.")
    )
    votes = models.PositiveIntegerField(
        default=1, validators=[MinValueValidator(1)], help_text=_("At least so many people approve.")
    )
    four_eyes = models.BooleanField(default=False, help_text=_("Nobody decides on their own request."))
    forbid_edit = models.BooleanField(default=False, help_text=_("Arguments cannot be changed on approval."))
    expires_in = models.DurationField(null=True, blank=True, help_text=_("At most so long; empty: as the code says."))
    note = models.TextField(blank=True, default="", help_text=_("Why; shown in the history."))
    changed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, editable=False, on_delete=models.SET_NULL, related_name="+"
    )
    changed_at = models.DateTimeField(auto_now=True)

    objects = Manager.from_queryset(ToolOverrideQuerySet)()

    class Meta(Record.Meta):
        ordering = ("tool", "id")
        verbose_name = _("stricter rule")
        verbose_name_plural = _("stricter rules")

    def __str__(self) -> str:
        return f"{self.agent.name if self.agent else _('every agent')}: {self.tool}"

    def matches(self, tool: str) -> bool:
        return self.tool in (EVERY_TOOL, tool)

    def clean(self) -> None:
        problems: dict[str, Any] = {}
        if self.expires_in is not None and self.expires_in.total_seconds() <= 0:
            problems["expires_in"] = _("It must be above 0.")
        if self.permission and (self.permission.count(".") != 1 or " " in self.permission):
            problems["permission"] = _("It must be app.codename.")
        if problems:
            raise ValidationError(problems)
