"""Read a request's messages: what the user wants now, and which calls were made with what outcome."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentcore.messages import Message, ToolRequest
from agentcore.providers.demo import outcomes, phrasing, words
from agentcore.providers.demo.outcomes import Outcome

# What the runtime puts before the passages that it found.
FOUND = re.compile(r"^Found in the knowledge base[^\n]*:\n(\[.*)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Record:
    """One answered call. `asked` are its arguments as they were asked for, `arguments` those that were used."""

    tool: str
    asked: Mapping[str, Any]
    arguments: Mapping[str, Any]
    outcome: Outcome
    is_of_this_turn: bool

    @property
    def is_done(self) -> bool:
        return self.outcome.kind == "done"


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the user wants now. `texts` are the messages that say so, the newest first.

    `offer` is the sentence of ours that the user agreed to; `answers` says that the newest text answers
    a question of ours, asked because of the texts behind it.
    """

    texts: Sequence[str]
    offer: str | None = None
    answers: bool = False


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A passage of the knowledge base that stands in the instructions, as data."""

    title: str
    source: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """A request's messages, read. `earlier` are the user's texts before the wish, the newest first."""

    wish: Wish
    earlier: Sequence[str]
    records: Sequence[Record]
    knowledge: Sequence[str]
    passages: Sequence[Passage]
    calls_made: int

    @property
    def made_now(self) -> list[Record]:
        """The calls that were answered since the user spoke."""
        return [record for record in self.records if record.is_of_this_turn]

    @property
    def known(self) -> list[Record]:
        """The calls that gave a result, the newest first."""
        return [record for record in reversed(self.records) if record.is_done]


def read(messages: Sequence[Message]) -> Conversation:
    """Return the conversation that `messages` hold."""
    spoken = [index for index, message in enumerate(messages) if message.role == "user"]
    last = spoken[-1] if spoken else -1
    wish = _read_wish(messages, spoken)
    told = [message.content for message in messages if message.role == "system" and message.content]
    texts = [messages[index].content or "" for index in reversed(spoken)]
    return Conversation(
        wish=wish,
        earlier=[text for text in texts[1:] if text not in wish.texts],
        records=_read_records(messages, since=last),
        knowledge=[FOUND.sub("", text) for text in told],
        passages=[passage for text in told for passage in _read_passages(text)],
        calls_made=_last_call_number(messages),
    )


def _read_passages(text: str) -> Iterator[Passage]:
    found = FOUND.search(text)
    try:
        entries = json.loads(found[1]) if found else []
    except ValueError:
        # Cut, for want of room.
        return
    for entry in entries:
        if isinstance(entry, dict):
            yield Passage(**{name: str(entry.get(name, "")) for name in ("title", "source", "text")})


def _read_wish(messages: Sequence[Message], spoken: Sequence[int]) -> Wish:
    if not spoken:
        return Wish(texts=[""])
    newest = messages[spoken[-1]].content or ""
    before = _said_before(messages, spoken[-1])
    if words.is_agreement(newest) and (offer := phrasing.find_offer(before)):
        return Wish(texts=_chain(messages, spoken[:-1]) or [newest], offer=offer)
    chain = _chain(messages, spoken)
    return Wish(texts=chain, answers=len(chain) > 1)


def _chain(messages: Sequence[Message], spoken: Sequence[int]) -> list[str]:
    """Return the last user text and those before it that our questions tie it to, the newest first."""
    chain: list[str] = []
    for index in reversed(spoken):
        chain.append(messages[index].content or "")
        if not phrasing.is_question_for_slots(_said_before(messages, index)):
            break
    return chain


def _said_before(messages: Sequence[Message], index: int) -> str:
    """Return the assistant's words right before the user's message at `index`."""
    for message in reversed(messages[:index]):
        if message.role == "user":
            return ""
        if message.role == "assistant" and message.content and not message.tool_calls:
            return message.content
    return ""


def _read_records(messages: Sequence[Message], *, since: int) -> list[Record]:
    records = []
    # An id may be used again in a later turn: the last call that bore it is meant.
    requests: dict[str | None, ToolRequest] = {}
    for index, message in enumerate(messages):
        requests.update({call.id: call for call in message.tool_calls})
        if message.role == "tool" and message.tool_call_id in requests:
            request = requests[message.tool_call_id]
            records.append(_read_record(request, message.content or "", is_of_this_turn=index > since))
    return records


def _read_record(request: ToolRequest, result: str, *, is_of_this_turn: bool) -> Record:
    asked = outcomes.read_object(request.arguments)
    changed, text = outcomes.split_note(result)
    arguments = asked if changed is None else changed
    return Record(
        tool=request.name,
        asked=asked,
        arguments=arguments,
        outcome=outcomes.read_outcome(text, arguments),
        is_of_this_turn=is_of_this_turn,
    )


def _last_call_number(messages: Sequence[Message]) -> int:
    ids = [call.id for message in messages for call in message.tool_calls]
    # The start of a long conversation may be cut off, so counting alone could give an id twice.
    numbers = [int(found[1]) for call_id in ids if (found := re.fullmatch(r"call_(\d+)", call_id))]
    return max([len(ids), *numbers])
