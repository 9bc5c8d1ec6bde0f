"""Django's admin: the record is read, never changed; approvals are decided, and rules made stricter."""

from django.contrib import admin

from agentcore.admin import (
    agents,
    approvals,
    decisions,
    erasures,
    events,
    front_page,
    knowledge,
    memories,
    overrides,
    questions,
    sessions,
    steps,
    turns,
)

__all__ = [
    "agents",
    "approvals",
    "decisions",
    "erasures",
    "events",
    "knowledge",
    "memories",
    "overrides",
    "questions",
    "sessions",
    "steps",
    "turns",
]

front_page.show_on(admin.site)
