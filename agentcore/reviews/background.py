"""What stands beside a request: the rows it is about, what the agent said with it, what was decided before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.urls import NoReverseMatch, reverse

from agentcore.approvals import background
from agentcore.approvals.background import Earlier, Subject
from agentcore.models import ToolApproval
from agentcore.reviews import reading
from agentcore.states import ApprovalStatus

MAX_SAID = 4_000


@dataclass(frozen=True, kw_only=True)
class About:
    """A row the call is about. `label` is "" for who may not view it, `url` for who cannot open it in the admin."""

    kind: str
    label: str
    url: str
    is_gone: bool


@dataclass(frozen=True, kw_only=True)
class Background:
    """What helps to judge a request, as one person may see it."""

    subjects: list[About]
    said: str
    earlier: list[Earlier]
    approved: int
    rejected: int
    answered: int

    @property
    def was_decided_before(self) -> bool:
        return bool(self.approved or self.rejected or self.answered)


def of(approval: ToolApproval, user: Any) -> Background:
    """Return the background of a request for `user`, who may see it."""
    tally = background.tally(approval)
    return Background(
        subjects=[_about(subject, user) for subject in background.subjects(approval, user)],
        said=reading.brief(background.said_with(approval), MAX_SAID) if background.said_with(approval) else "",
        earlier=background.earlier(approval, user),
        approved=tally[ApprovalStatus.APPROVED],
        rejected=tally[ApprovalStatus.REJECTED],
        answered=tally[ApprovalStatus.RESPONDED],
    )


def _about(subject: Subject, user: Any) -> About:
    url = _admin_page(subject) if subject.label and user.is_staff else ""
    return About(kind=subject.kind, label=subject.label, url=url, is_gone=subject.model is None)


def _admin_page(subject: Subject) -> str:
    """Return the row's page in the admin, "" when the site has none."""
    if subject.model is None or not apps.is_installed("django.contrib.admin"):
        return ""
    if not admin.site.is_registered(subject.model):
        return ""
    options = subject.model._meta
    try:
        return reverse(f"admin:{options.app_label}_{options.model_name}_change", args=[subject.object_key])
    except NoReverseMatch:
        return ""
