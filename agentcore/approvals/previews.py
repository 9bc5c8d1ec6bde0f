"""Have a tool write what a person is shown beside the arguments. Its failure is shown, and blocks nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from django.db.models import Model

from agentcore import canonical, database
from agentcore.agents.registry import registry
from agentcore.models import ApprovalLink, ToolApproval
from agentcore.tools import execution
from agentcore.tools.context import ToolContext
from agentcore.tools.definition import ToolDefinition
from agentcore.tools.schema import InvalidArguments

logger = logging.getLogger("agentcore.approvals")

# A preview or a rule is asked by the runtime, not by the model: it must be quick.
QUESTION_SECONDS = 5.0
MAX_PREVIEW = 20_000
MAX_LINKS = 10


@dataclass(frozen=True, kw_only=True)
class Link:
    """A row that a call is about: its model as Django labels it, its primary key as text, and its name."""

    model: str
    object_key: str
    label: str


@dataclass(frozen=True, kw_only=True)
class Preview:
    """What a person is shown beside the arguments."""

    text: str
    links: tuple[Link, ...]


def write(definition: ToolDefinition, agent_class: type, arguments: dict[str, Any], ctx: ToolContext) -> str:
    """Return the tool's preview of a call, "" when it writes none."""
    preview = execution.build_preview(definition, agent_class, arguments, ctx)
    if preview is None:
        return ""
    outcome = ask(preview)
    if outcome.kind == "completed":
        return canonical.clean_text(str(outcome.value))[:MAX_PREVIEW]
    logger.error(
        "A preview failed; the request is shown without it",
        exc_info=outcome.error,
        extra={"execution_id": ctx.execution_id, "tool": definition.name},
    )
    return f"(The preview could not be made: it {problem(outcome)}.)"


def find_links(
    definition: ToolDefinition, agent_class: type, arguments: dict[str, Any], ctx: ToolContext
) -> tuple[Link, ...]:
    """Return the rows that the tool says a call is about, at most MAX_LINKS; none when it fails to say."""
    try:
        named = execution.build_links(definition, agent_class, arguments, ctx)
    except InvalidArguments:
        # The tool changed since its call began.
        return ()
    if named is None:
        return ()
    outcome = ask(named, convert=_links)
    if outcome.kind == "completed":
        found: tuple[Link, ...] = outcome.value
        return found
    logger.error(
        "A tool could not name what its call is about; the request has no links",
        exc_info=outcome.error,
        extra={"execution_id": ctx.execution_id, "tool": definition.name},
    )
    return ()


def store_links(approval: ToolApproval, links: Iterable[Link]) -> None:
    """Store what a request is about, in the caller's transaction."""
    ApprovalLink.objects.bulk_create([ApprovalLink(approval=approval, **asdict(link)) for link in links])


def of_edit(approval: ToolApproval, arguments: dict[str, Any]) -> Preview | None:
    """Return what is shown beside edited arguments; None when the tool is not there any more."""
    agent = registry.find(approval.agent.name)
    definition = agent.tools.get(approval.tool) if agent else None
    if agent is None or definition is None:
        return None
    told = definition, agent.agent_class, arguments, _context(approval)
    return Preview(text=write(*told), links=find_links(*told))


def ask(function: Any, *, convert: Callable[[Any], Any] | None = None) -> execution.Outcome:
    """Run a rule or a preview, with no connection of ours held and for a short time only."""
    in_caller = database.is_in_test_case()
    with database.given_back():
        return execution.run_tool(function, timeout=QUESTION_SECONDS, convert=convert, in_caller=in_caller)


def problem(outcome: execution.Outcome) -> str:
    """Return in a few words what went wrong."""
    if outcome.kind == "timed_out":
        return f"took longer than {QUESTION_SECONDS:g} seconds"
    if outcome.error is not None:
        return f"raised {type(outcome.error).__name__}"
    return f"returned a {type(outcome.value).__name__}, not True or False"


def _links(named: Any) -> tuple[Link, ...]:
    instances = [named] if isinstance(named, Model) else list(islice(named or (), MAX_LINKS))
    return tuple(dict.fromkeys(_link(instance) for instance in instances))


def _link(instance: Any) -> Link:
    if not isinstance(instance, Model) or instance.pk is None:
        raise TypeError(f"links must be stored model instances, not {type(instance).__name__}")
    return Link(
        model=instance._meta.label_lower,
        object_key=str(instance.pk)[:255],
        label=canonical.clean_text(str(instance))[:255],
    )


def _context(approval: ToolApproval) -> ToolContext:
    turn = approval.turn
    return ToolContext(
        execution_id=str(turn.execution_id),
        session_id=approval.session.session_id,
        agent=approval.agent.name,
        call_id=approval.call.call_id,
        find_user=lambda: turn.user,
        metadata=turn.metadata,
    )
