"""Choose the tool that does what the user wants, by the words they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentcore.messages import ToolSpec
from agentcore.providers.demo import words
from agentcore.providers.demo.conversation import Wish
from agentcore.providers.demo.schema import Slot, read_slots

MIN_LOOK_UP_SCORE = 2


@dataclass(frozen=True, kw_only=True)
class Toolbox:
    """The tools on offer, and what sets each apart from the others."""

    tools: Sequence[ToolSpec]

    def find(self, name: str) -> ToolSpec | None:
        return next((tool for tool in self.tools if tool.name == name), None)

    @property
    def entities(self) -> set[str]:
        """The things that ids are of: "order" is what several tools are about, so it chooses none of them."""
        slots = [slot for tool in self.tools for slot in read_slots(tool) if slot.kind == "id" and slot.entity]
        return {meaning for slot in slots for meaning in words.meanings(slot.entity)}

    def marks(self, tool: ToolSpec) -> set[str]:
        """Return the meanings in a tool's name that stand for it and for no other tool."""
        others = {meaning for other in self.tools if other is not tool for meaning in name_meanings(other)}
        return set(name_meanings(tool)) - others - self.entities - {words.MAKING, words.READING}


def is_reading(tool: ToolSpec) -> bool:
    """Say whether a tool's name says that it only looks something up."""
    meanings = name_meanings(tool)
    return words.READING in (*meanings[:1], *meanings[-1:])


def name_meanings(tool: ToolSpec) -> list[str]:
    return [words.meaning(word) for word in words.split_name(tool.name)]


def id_slots(tool: ToolSpec) -> list[Slot]:
    return [slot for slot in read_slots(tool) if slot.kind == "id" and slot.required]


def choose(wish: Wish, toolbox: Toolbox) -> ToolSpec | None:
    """Return the tool for what the user wants, None when no tool fits.

    An act that is named wins over looking something up. An answer to our question stays with what the
    question was about, unless it names another act.
    """
    if wish.offer is not None:
        return find_act(wish.offer, toolbox)
    newest, *older = wish.texts
    for text in wish.texts:
        # What our question was about is wanted, also when it began as "How do I get my money back?"
        if tool := find_act(text, toolbox, also_asked=text is not newest):
            return tool
    for text in (*older, newest):
        if tool := _find_look_up(text, toolbox):
            return tool
    return None


def find_act(text: str, toolbox: Toolbox, *, also_asked: bool = False) -> ToolSpec | None:
    """Return the acting tool that a text asks for, the clearest, then the first named.

    A question asks for none, unless `also_asked`.
    """
    found: list[tuple[int, int, ToolSpec]] = []
    parts = [part for part in words.sentences(text) if also_asked or not words.is_question(part)]
    asked = [word for part in parts for word in words.meanings(part)]
    for tool in toolbox.tools:
        hits = _hits(tool, asked, toolbox)
        if hits and not is_reading(tool):
            found.append((-len(hits), min(asked.index(word) for word in hits), tool))
    return min(found, key=lambda item: item[:2])[2] if found else None


def _hits(tool: ToolSpec, asked: Sequence[str], toolbox: Toolbox) -> set[str]:
    name = set(name_meanings(tool))
    marked = toolbox.marks(tool) & set(asked)
    # "Cancel", "order" and "please create an order": all of a name's words name it as well as its own word.
    return name & set(asked) if marked or name <= set(asked) else set()


def _find_look_up(text: str, toolbox: Toolbox) -> ToolSpec | None:
    asked = set(words.meanings(text))
    scored = [(_look_up_score(tool, asked, toolbox), tool) for tool in toolbox.tools if is_reading(tool)]
    best = max(scored, key=lambda item: item[0], default=(0, None))
    return best[1] if best[0] > 0 else None


def _look_up_score(tool: ToolSpec, asked: set[str], toolbox: Toolbox) -> int:
    """Weigh the words shared with a looking-up tool; the verb alone is no reason to call it."""
    about = set(name_meanings(tool)) - {words.READING}
    about |= {meaning for slot in id_slots(tool) for meaning in words.meanings(slot.entity)}
    described = set(words.meanings(tool.description)) - about - {words.READING, words.MAKING}
    shared = 3 * len(about & asked) + len(described & asked)
    score = shared + (words.READING in asked)
    return score if shared and score >= MIN_LOOK_UP_SCORE else 0
