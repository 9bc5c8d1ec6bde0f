"""Remember, after a turn was completed, what was said in it. Nothing here can fail the turn: it is over."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from agentcore import clock, database, logs, memory
from agentcore.conf import settings
from agentcore.exceptions import InvalidInput, LeaseLost, NotFound
from agentcore.memory import Item, Kept, MemoryKind, Owner, Source, keeping, registry, store
from agentcore.memory.extraction import ExtractionFailed, Extractor, Said
from agentcore.messages import Message, ModelRequest, ToolSpec
from agentcore.providers import registry as providers
from agentcore.providers.resilient import Resilient
from agentcore.turns import remembered
from agentcore.turns.work import Work

logger = logging.getLogger("agentcore.memory")

# How long a model may take to say what is worth remembering; nobody waits for it.
EXTRACTION_SECONDS = 60.0
# In characters: what an extractor is given of either side.
MAX_SAID = 8_000
TOOL = "remember"
# So many turns whose workers died one tick remembers: an extractor may ask a model for each.
AT_ONCE = 20
# What a thing that cannot be kept raises, as a backend knows it or as its code meets it.
WRONG = (InvalidInput, AttributeError, TypeError, ValueError)


def remember(work: Work) -> None:
    """Keep the words of the user and the answer of a completed turn, each once, and what an extractor finds in them.

    When the database fails, the turn stays to be remembered, as it does when this process dies.
    """
    if not work.ended or work.turn.remember_at is None:
        return
    try:
        _remember(work, Owner.of_session(work.turn.session))
    except (LeaseLost, NotFound):
        logger.warning("A turn was lost or erased meanwhile; nothing is remembered of it", extra=_facts(work))
    except Exception:
        logger.exception("A turn could not be remembered, or that could not be told; tried again", extra=_facts(work))


def remember_left() -> int:
    """Remember the completed turns whose workers died before they did; return how many were taken up."""
    try:
        found = remembered.find_left(limit=AT_ONCE)
        return sum(_remember_left(execution_id) for execution_id in found)
    except Exception:
        logger.exception("What was not remembered in time could not be read; tried again at the next tick")
        return 0


def _remember_left(execution_id: UUID) -> bool:
    with logs.about(execution_id):
        work = remembered.take(execution_id)
        if work is not None:
            remember(work)
    return work is not None


def forget_over() -> int:
    """Delete what was remembered until now only; return how many there were, as far as it went."""
    try:
        return keeping.forget_over()
    except Exception:
        logger.exception("Expired memories could not be deleted; tried again at the next tick")
        return 0


def _remember(work: Work, owner: Owner) -> None:
    if owner.is_nobody:
        # The user was deleted since.
        remembered.close(work)
        return
    extractor = registry.extractor()
    said = _conversation(work) if owner.user_id is not None else []
    began = clock.monotonic()
    noted, told = _extracted(work, extractor)
    kept: list[Kept] = []
    # The words first and by themselves: they are kept whatever an extractor finds.
    for items in filter(None, (said, noted)):
        try:
            kept += _keep(work, owner, items)
        except Exception as error:
            if database.may_pass(error):
                raise
            logger.exception("A turn could not be remembered, or not wholly", extra=_facts(work))
            told["error"] = type(error).__name__
    if kept or told:
        _tell(work, kept, duration=clock.monotonic() - began, **told)
    else:
        remembered.close(work)


def _keep(work: Work, owner: Owner, items: list[Item]) -> list[Kept]:
    """Keep items, all at once; where one of them is wrong, each by itself, without those that cannot be kept."""
    backend, source = memory.current(), _source(work)
    try:
        return backend.remember(owner, items, source=source)
    except WRONG:
        kept: list[Kept] = []
        for item in items:
            try:
                kept += backend.remember(owner, [item], source=source)
            except WRONG:
                logger.exception("One thing of a turn cannot be remembered; it is left out", extra=_facts(work))
        return kept


def _tell(work: Work, kept: list[Kept], **told: Any) -> None:
    """Tell what was kept; take it back where turn or memories were erased meanwhile: who did it has looked already."""
    stored = [{"id": item.id, "kind": str(item.kind), "new": item.is_new} for item in kept]
    try:
        remembered.tell_kept(work, stored=stored, **told)
    except (LeaseLost, NotFound):
        if remembered.has_another(work):
            raise
        new = [item.id for item in kept if item.is_new]
        memory.current().forget(store.drop_first_told(work.turn.execution_id, new))
        raise


def _conversation(work: Work) -> list[Item]:
    said = {"user": work.turn.input["content"], "assistant": work.turn.response or ""}
    return [
        Item(kind=MemoryKind.CONVERSATION, text=text, data={"role": role})
        for role, text in said.items()
        if text.strip()
    ]


def _source(work: Work) -> Source:
    turn = work.turn
    return Source(execution_id=turn.execution_id, session_id=turn.session.session_id, agent_pk=turn.agent_id)


def _extracted(work: Work, extractor: Extractor | None) -> tuple[list[Item], dict[str, Any]]:
    """Return what an extractor finds, and what is to be told of its failure; raise LeaseLost for an erased turn."""
    if extractor is None:
        return [], {}
    said = Said(user=work.turn.input["content"][:MAX_SAID], assistant=(work.turn.response or "")[:MAX_SAID])
    found: list[Item] = []
    told = {}
    try:
        with database.given_back():
            found = list(extractor.extract(said, ask=_asking(work)))
    except Exception as error:
        logger.exception("Nothing could be extracted from a turn", extra=_facts(work))
        told["extraction_error"] = type(error).__name__
    # It may have taken long, and what was erased meanwhile is not to come back.
    remembered.require_held(work)
    return found, told


def _asking(work: Work) -> Any:
    """Return the call of the agent's model, or of that in the settings, that an extractor may make."""

    def ask(instructions: str, text: str, schema: Mapping[str, Any]) -> Any:
        model = settings.MEMORY["model"] or work.pinned["model"]
        name, model_name = providers.split_model(model)
        asked = Resilient(providers.get_provider(name), model=model, allowance=providers.get_allowance(name))
        reply = asked.complete(
            ModelRequest(
                model=model_name,
                messages=(Message(role="system", content=instructions), Message(role="user", content=text)),
                tools=(ToolSpec(name=TOOL, description="Note what is worth remembering.", parameters=dict(schema)),),
                timeout=EXTRACTION_SECONDS,
            )
        )
        return _answer(reply.tool_calls[0].arguments if reply.tool_calls else reply.content)

    return ask


def _answer(text: str | None) -> Any:
    try:
        return json.loads(text or "")
    except ValueError as error:
        raise ExtractionFailed("The model did not answer with JSON.") from error


def _facts(work: Work) -> dict[str, str]:
    return {"execution_id": str(work.turn.execution_id)}
