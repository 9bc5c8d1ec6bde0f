"""Revisions: store an agent's definition when it is first used, and again when it has changed."""

from __future__ import annotations

from django.db.models import F

from agentcore import canonical, clock, database
from agentcore.agents.definition import AgentDefinition
from agentcore.models import Agent, AgentRevision


def current(definition: AgentDefinition) -> AgentRevision:
    """Return the revision of `definition` as it is deployed now, made if it was never seen.

    A definition that was current before becomes current again under its old number.
    """
    pinned = definition.resolved()
    digest = canonical.digest(pinned)
    found = _find_current(definition.name)
    if found is not None and found.hash == digest:
        return found
    return _make_current(definition.name, digest, pinned)


def _find_current(name: str) -> AgentRevision | None:
    revisions = AgentRevision.objects.select_related("agent")
    try:
        found: AgentRevision = revisions.get(agent__name=name, agent__current_revision=F("pk"))
    except AgentRevision.DoesNotExist:
        return None
    return found


@database.retried
def _make_current(name: str, digest: str, pinned: dict[str, object]) -> AgentRevision:
    now = clock.now()
    # Before the transaction: one that reads first loses to "locked" on SQLite.
    agent, _ = Agent.objects.get_or_create(name=name, defaults={"created_at": now, "updated_at": now})
    with database.atomic():
        # Two processes may meet a new definition at once: the write makes the second one wait.
        Agent.objects.filter(pk=agent.pk).update(updated_at=now)
        revision: AgentRevision | None = agent.revisions.filter(hash=digest).first()
        if revision is None:
            last = agent.revisions.order_by("-number").values_list("number", flat=True).first() or 0
            revision = AgentRevision.objects.create(
                agent=agent, number=last + 1, hash=digest, definition=pinned, created_at=now
            )
        Agent.objects.filter(pk=agent.pk).update(current_revision=revision)
    revision.agent = agent
    return revision
