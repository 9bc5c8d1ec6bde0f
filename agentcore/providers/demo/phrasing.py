"""What the demo says, in plain English."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentcore.messages import ToolSpec
from agentcore.providers.demo import words
from agentcore.providers.demo.outcomes import Outcome

_STILL_NEED = "I still need"
_CAN_OFFER = "I can also"
_PARTICIPLES = {"process": "made", "make": "made", "send": "sent", "set": "set", "do": "done", "book": "booked"}
_MONEY_KEYS = ("amount", "total", "price")
MAX_FACTS = 8


def greet(tools: Sequence[ToolSpec]) -> str:
    if not tools:
        return "Hello! I am the offline demo model. I have no tools here, but I can answer from what I was told."
    return f"Hello! Here is what I can do for you:\n{_list_tools(tools)}"


def thank() -> str:
    return "You are welcome!"


def accept_refusal() -> str:
    return "All right, I will leave it at that."


def not_understood(text: str, tools: Sequence[ToolSpec]) -> str:
    if not tools:
        return (
            f"You said: “{_cut(text)}”. I am the offline demo model, I have no tools here and know no more about that."
        )
    return f"I am sorry, I do not know how to help with that. Here is what I can do:\n{_list_tools(tools)}"


def recall(sentence: str) -> str:
    return f"From what I have been told: {sentence}"


def cite(sentence: str, *, title: str, source: str) -> str:
    plain = " ".join(re.sub(r"[*`|]", " ", sentence).split())
    return f"“{title}” ({source}) says: {plain}"


def ask_for(tool: ToolSpec, labels: Sequence[str]) -> str:
    return f"To {_task(tool)}, {_ask(labels)}"


def ask_again(labels: Sequence[str]) -> str:
    return _capital(_ask([f"right {label}" for label in labels]))


def is_question_for_slots(text: str) -> bool:
    return _STILL_NEED in text and text.endswith("?")


def offer(tool: ToolSpec) -> str:
    return f"{_CAN_OFFER} {_task(tool)} for you: just say yes."


def find_offer(text: str) -> str | None:
    """Return the sentence of `text` that makes an offer, None when there is none."""
    return next((part for part in words.sentences(text) if part.startswith(_CAN_OFFER)), None)


def report_act(tool: str, arguments: Mapping[str, Any], data: Any, *, again: bool) -> str:
    """Say that an act was done, with what its result adds to the arguments.

    A text is repeated, not believed to be a success: it may be a person's answer in the tool's place.
    """
    if len(words.split_name(tool)) == 1 and not isinstance(data, Mapping):
        return f"The result of {tool}: {_sentence(data)}"
    thing = _thing(tool, arguments, data)
    if data is not None and not isinstance(data, Mapping):
        return f"About {thing}: {_sentence(data)}"
    text = f"{_capital(thing)} was {'already ' if again else ''}{_participle(tool)}."
    return " ".join([text, *_additions(tool, arguments, data or {})])


def report_look_up(tool: str, arguments: Mapping[str, Any], data: Any, *, question: str) -> str:
    """Say what was found; only what was asked about when the question names it."""
    if data in (None, [], {}, ""):
        return f"I tried to {_task_on(tool, arguments)} and found nothing."
    if isinstance(data, list):
        return f"I found {len(data)}: {'; '.join(_value(item) for item in data[:MAX_FACTS])}."
    if not isinstance(data, Mapping):
        return _sentence(data)
    return _report_record(arguments, data, set(words.meanings(question)))


def report_failure(tool: str, arguments: Mapping[str, Any], outcome: Outcome, *, is_reading: bool) -> str:
    """Say that a call was declined or failed, and why."""
    because = f" {_capital(_sentence(outcome.reason))}" if outcome.reason else ""
    if is_reading and outcome.kind == "failed":
        return f"I am sorry, I could not {_task_on(tool, arguments)}.{because}"
    thing = _thing(tool, arguments, None)
    quoted = f" The reason given was: “{outcome.reason.rstrip('.')}”." if outcome.reason else ""
    match outcome.kind:
        case "rejected":
            return f"I am sorry, {thing} was not approved, so it was not carried out.{quoted}"
        case "expired":
            return f"I am sorry, nobody decided on {thing} in time, so it was not carried out."
        case "cancelled":
            return f"{_capital(thing)} was cancelled and not carried out.{because}"
        case "unknown":
            return (
                f"I cannot tell whether {thing} went through: it was begun and its outcome is not known. "
                "I will not try it a second time; a person has to check."
            )
        case _:
            return f"I am sorry, {thing} did not work.{because}"


def _additions(tool: str, arguments: Mapping[str, Any], data: Mapping[str, Any]) -> Iterator[str]:
    done = words.meaning(words.split_name(tool)[0])
    for key, value in _facts(data):
        # "cancelled" and "sent: true" only say again that it was done.
        if key in arguments or value is True or words.meaning(str(value)) == done:
            continue
        label = _label(key)
        yield f"It is {label} {_value(value)}." if label.endswith(" at") else f"The {label} is {_value(value)}."


def _report_record(arguments: Mapping[str, Any], data: Mapping[str, Any], asked: set[str]) -> str:
    thing = _things(arguments) or _things(data)
    facts = [(key, value) for key, value in _facts(data) if key not in arguments] or _facts(data)
    named = [fact for fact in facts if set(words.meanings(_label(fact[0]))) & asked]
    if named and thing:
        return " ".join(f"The {_label(key)} of {thing} is {_value(value)}." for key, value in named)
    listed = ", ".join(f"{_label(key)} {_value(value)}" for key, value in named or facts)
    return f"{_capital(thing or f'here is what I found{_for_values(arguments)}')}: {listed}."


def _ask(labels: Sequence[str]) -> str:
    return f"{_STILL_NEED} {_join([f'the {label}' for label in labels])}. Could you tell me?"


def _facts(data: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(key, value) for key, value in data.items() if value not in (None, "", [], {})][:MAX_FACTS]


def _list_tools(tools: Sequence[ToolSpec]) -> str:
    return "\n".join(f"- {tool.name}: {tool.description or _task(tool)}" for tool in tools)


def _task(tool: ToolSpec) -> str:
    return _verb_phrase(tool.name)


def _verb_phrase(name: str) -> str:
    """Return a tool's name as a task: "process a refund", "look up the order"."""
    first, *rest = words.split_name(name)
    verb = {"lookup": "look up", "get": "look up", "fetch": "look up"}.get(first, first)
    if not rest:
        return verb
    article = "the" if words.meaning(first) == words.READING else _article(rest[0])
    return f"{verb} {article} {' '.join(rest)}"


def _task_on(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a task with what it is done to: "look up order 12345", "search the docs for prices"."""
    verb, _, noun = _verb_phrase(name).partition(" the ")
    things = _things(arguments)
    if noun and things.startswith(f"{noun} "):
        return f"{verb} {things}"
    return f"{_verb_phrase(name)}{_for_values(arguments)}"


def _thing(name: str, arguments: Mapping[str, Any], data: Any) -> str:
    """Return what a call is about: "the refund of 49.90 for order 12345"."""
    _, *noun = words.split_name(name)
    results = data if isinstance(data, Mapping) else {}
    money = next((source[key] for source in (results, arguments) for key in _MONEY_KEYS if source.get(key)), None)
    amount = f" of {_value(money)}" if money is not None else ""
    for_what = _things(arguments)
    if for_what.startswith(f"{' '.join(noun)} "):
        return f"{for_what}{amount}"
    return f"the {' '.join(noun) or words.split_name(name)[0]}{amount}{f' for {for_what}' if for_what else ''}"


def _things(values: Mapping[str, Any]) -> str:
    """Return the things that ids name: "order 12345 and customer 7"."""
    named = [
        f"{_label(key.removesuffix('_id').removesuffix('Id'))} {value}"
        for key, value in values.items()
        if re.fullmatch(r"\w+(?:_id|Id|_number)", key) and isinstance(value, str | int)
    ]
    return _join([name.replace(" number ", " ") for name in named])


def _for_values(arguments: Mapping[str, Any]) -> str:
    values = [_value(value) for value in arguments.values() if isinstance(value, str | int | float)]
    return f" for {', '.join(values)}" if values and all(len(value) <= 40 for value in values) else ""


def _participle(name: str) -> str:
    verb = words.split_name(name)[0]
    if verb in _PARTICIPLES:
        return _PARTICIPLES[verb]
    if verb.endswith("e"):
        return f"{verb}d"
    if verb.endswith("y") and verb[-2:-1] not in "aeiou":
        return f"{verb[:-1]}ied"
    return f"{verb}{'l' if verb.endswith('cel') else ''}ed"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        named = next((value[key] for key in ("name", "title", "product", "label") if value.get(key)), None)
        return str(named) if named else ", ".join(f"{_label(key)} {_value(item)}" for key, item in _facts(value))
    if isinstance(value, list | tuple):
        return _join([_value(item) for item in value])
    return str(value)


def _label(key: str) -> str:
    return " ".join(words.split_name(key))


def _join(parts: Sequence[str]) -> str:
    *front, last = parts or [""]
    return f"{', '.join(front)} and {last}" if front else last


def _sentence(value: Any) -> str:
    text = "" if value is None else _value(value).strip()
    return text if not text or text[-1] in ".!?" else f"{text}."


def _article(word: str) -> str:
    return "an" if word[:1] in "aeiou" else "a"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _cut(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}…"


def split_words(text: str) -> Iterator[str]:
    """Yield `text` word by word, each with the space behind it, so that they join to the same text."""
    yield from re.findall(r"\S+\s*|\s+", text)
