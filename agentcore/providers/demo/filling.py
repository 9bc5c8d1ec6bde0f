"""Fill a tool's parameters from what the user said and what earlier calls gave. Nothing is invented."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentcore.messages import ToolSpec
from agentcore.providers.demo import detect, words
from agentcore.providers.demo.conversation import Conversation, Record
from agentcore.providers.demo.schema import Slot, read_slots

MONEY_KEYS = ("total", "grand_total", "total_amount", "amount", "price", "sum", "value", "cost")
MAX_TITLE_CHARS = 60
# Values are looked for at the start of a text only: a message may have megabytes.
MAX_SCANNED_CHARS = 2_000


@dataclass(kw_only=True)
class Filled:
    """A tool's arguments as far as they are known, and the required parameters that are not."""

    arguments: dict[str, Any] = field(default_factory=dict)
    missing: list[Slot] = field(default_factory=list)
    # The texts of the values, so that no value is used twice.
    taken: set[str] = field(default_factory=set)

    @property
    def ids(self) -> dict[str, str]:
        """The arguments that say what the call is about, as text."""
        return {name: str(value) for name, value in self.arguments.items() if name in self._id_names}

    _id_names: set[str] = field(default_factory=set)

    def take(self, slot: Slot, value: Any) -> None:
        self.arguments[slot.name] = value
        self.taken.add(str(value))
        if slot.kind == "id":
            self._id_names.add(slot.name)

    def sort(self, names: Sequence[str]) -> None:
        """Put what was found, and what was not, in the order of the tool's own parameters."""
        self.arguments = {name: self.arguments[name] for name in names if name in self.arguments}
        self.missing.sort(key=lambda slot: names.index(slot.name))


def fill(tool: ToolSpec, conversation: Conversation) -> Filled:
    """Return what can be filled of a tool's parameters."""
    filled = Filled()
    for slot in read_slots(tool):
        value = _find(slot, tool, conversation, filled)
        if value is not None:
            filled.take(slot, value)
        elif slot.required:
            filled.missing.append(slot)
    newest = conversation.wish.texts[0]
    _take_bare_numbers(filled, newest[:MAX_SCANNED_CHARS])
    if conversation.wish.answers and len(filled.missing) == 1:
        _take_answer(filled, newest)
    filled.sort(list(tool.parameters.get("properties") or {}))
    return filled


def holds_value(value: Any, text: str) -> bool:
    """Say whether a result or an argument is `text`, or holds it somewhere."""
    if isinstance(value, Mapping):
        return any(holds_value(item, text) for item in value.values())
    if isinstance(value, list | tuple):
        return any(holds_value(item, text) for item in value)
    return str(value) == text


def _find(slot: Slot, tool: ToolSpec, conversation: Conversation, filled: Filled) -> Any:
    for text in conversation.wish.texts:
        value = _find_in_text(slot, text, filled)
        if value is not None:
            return value
    # What is optional is for the user to mention: it is not dug out of the past.
    return _find_in_past(slot, tool, conversation, filled) if slot.required else None


def _find_in_text(slot: Slot, text: str, filled: Filled) -> Any:
    if slot.kind in ("title", "text"):
        return _find_prose(slot, text)
    text = text[:MAX_SCANNED_CHARS]
    if slot.kind == "choice":
        return _find_choice(slot, text)
    if slot.kind == "list":
        return _find_list(slot, text)
    found = _find_value(slot, text, filled)
    return slot.convert(found) if found is not None else None


def _find_value(slot: Slot, text: str, filled: Filled) -> str | None:
    match slot.kind:
        case "id":
            return detect.find_id(text, entity=slot.entity, others=_other_things(slot), taken=filled.taken)
        case "money":
            labelled = detect.find_number_after_label(text, label=slot.label)
            return labelled or detect.find_money(text, taken=filled.taken)
        case "number":
            measured = detect.find_measure(text, name=slot.words)
            return measured or detect.find_number_after_label(text, label=slot.label)
        case "date":
            return detect.find_date(text, iso_only=bool(slot.format))
        case "email":
            return detect.find_email(text)
        case "name":
            return detect.find_after_label(text, label=slot.label) or detect.find_name(text)
        case _:
            quoted = detect.find_quoted(text)
            return detect.find_after_label(text, label=slot.label) or (quoted[0] if quoted else None)


def _find_choice(slot: Slot, text: str) -> Any:
    said = {words.stem(word) for word in words.split_name(text)}
    for choice in slot.choices:
        if {words.stem(word) for word in words.split_name(str(choice))} <= said or len(slot.choices) == 1:
            return choice
    return None


def _find_list(slot: Slot, text: str) -> list[Any] | None:
    return detect.find_list(text, label=slot.label.removesuffix("s")) or None


def _find_prose(slot: Slot, text: str) -> str | None:
    """Return the user's own words: they are what a ticket's description or a refund's reason is."""
    labelled = detect.find_after_label(text, label=slot.label)
    if labelled or not (slot.required or "reason" in slot.words):
        return labelled
    return _shorten(text) if slot.kind == "title" else text.strip() or None


def _shorten(text: str) -> str | None:
    first = next(iter(words.sentences(text)), "").rstrip(".!")
    if len(first) <= MAX_TITLE_CHARS:
        return first or None
    return first[:MAX_TITLE_CHARS].rsplit(" ", 1)[0] + "…"


def _other_things(slot: Slot) -> set[str]:
    known = {"order", "ticket", "invoice", "lead", "quote", "meeting", "refund", "version", "room", "page"}
    return known - set(slot.words)


def _find_in_past(slot: Slot, tool: ToolSpec, conversation: Conversation, filled: Filled) -> Any:
    for record in conversation.known:
        # A second refund is not of the first one's amount, though it may be for the same order.
        is_own = record.tool == tool.name and slot.kind != "id"
        if not is_own and _is_about(record, filled.ids):
            for value in _values_in(record, slot):
                return slot.convert(str(value)) if isinstance(value, str | int | float) else value
    if slot.kind == "id":
        return _find_told_id(slot, conversation)
    return None


def _find_told_id(slot: Slot, conversation: Conversation) -> Any:
    for text in (*conversation.earlier, *conversation.knowledge):
        found = detect.find_labelled_id(text[:MAX_SCANNED_CHARS], entity=slot.entity)
        if found is not None:
            return slot.convert(found)
    return None


def _is_about(record: Record, ids: Mapping[str, str]) -> bool:
    """Say whether a record is about the same things, so that no other order's total is refunded."""
    return all(holds_value(record.outcome.data, text) or holds_value(record.arguments, text) for text in ids.values())


def _values_in(record: Record, slot: Slot) -> Iterator[Any]:
    if isinstance(record.outcome.data, str) and slot.kind == "money":
        yield from filter(None, [detect.find_money(record.outcome.data[:MAX_SCANNED_CHARS], taken=())])
    data = record.outcome.data if isinstance(record.outcome.data, Mapping) else {}
    for key in _keys_for(slot, record):
        for source in (data, *(value for value in data.values() if isinstance(value, Mapping)), record.arguments):
            if source.get(key) not in (None, "", [], 0):
                yield source[key]


def _keys_for(slot: Slot, record: Record) -> Sequence[str]:
    if slot.kind == "money":
        return (slot.name, *MONEY_KEYS)
    if slot.kind == "id" and slot.entity in words.split_name(record.tool):
        return (slot.name, "id")
    return (slot.name,)


def _take_bare_numbers(filled: Filled, text: str) -> None:
    """Take the numbers of a text in their order, when there are as many as numbers are missing: "add 3 and 4"."""
    numbers = detect.find_numbers(text, taken=filled.taken)
    slots = [slot for slot in filled.missing if slot.kind == "number"]
    if len(numbers) == len(slots) == len(filled.missing):
        for slot, number in zip(slots, numbers, strict=True):
            filled.take(slot, slot.convert(number))
        filled.missing.clear()


def _take_answer(filled: Filled, answer: str) -> None:
    """Take the user's answer to our question as the one value that is missing."""
    slot = filled.missing[0]
    bare = answer.strip(" .!\"'“”")
    if slot.types & {"number", "integer"}:
        bare = next(iter(detect.find_numbers(bare, taken=filled.taken)), bare)
    elif any(text in answer for text in filled.taken):
        return
    value = slot.convert(bare) if bare else None
    if value is not None and slot.kind != "choice":
        filled.take(slot, value)
        filled.missing.clear()
