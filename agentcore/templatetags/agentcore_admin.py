"""Tags of the admin's templates."""

from __future__ import annotations

from typing import Any

from django import template

from agentcore.admin import display, waiting

register = template.Library()


@register.simple_tag
def waiting_approvals(user: Any) -> waiting.Waiting | None:
    """Return what waits for this user, or in all for who may only look; None for everybody else."""
    return waiting.for_user(user)


@register.filter
def visibly(text: Any) -> str:
    """Return text with a mark in place of each character that a reader would not see."""
    return display.marked(text)
