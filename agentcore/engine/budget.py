"""Keep a request within its tokens: estimate what texts cost, leave out whole groups, cut what cannot be left out.

The estimate needs no tokenizer and errs on the high side: a token is three ASCII letters or spaces, or two bytes of
anything else in UTF-8. English prose costs models less; JSON, code and most scripts cost about that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from string import ascii_letters
from typing import NamedTuple

from agentcore.exceptions import TurnFailure
from agentcore.messages import Message, ToolRequest, ToolSpec

LETTERS = f"{ascii_letters} ".encode()

# What a format adds to each message, call and tool: roles, brackets, names of fields.
MESSAGE_TOKENS = 6
CALL_TOKENS = 12
TOOL_TOKENS = 16
# The least that is left of a text that is cut: hardly more than the mark that says so.
LEAST_TOKENS = 40
# The part of what is free that the session's first message may take, when it is not the turn's own.
FIRST_PART = 3


class Group(NamedTuple):
    """Messages that only make sense together: a user's message, or a reply with its results.

    `lengths` are the characters that the text of each message had before it was cut, 0 where it was not.
    """

    messages: tuple[Message, ...]
    tokens: int
    lengths: tuple[int, ...] = ()


def group(*messages: Message, lengths: tuple[int, ...] = ()) -> Group:
    return Group(messages, sum(map(message_tokens, messages)), lengths)


def text_tokens(text: str) -> int:
    """Return how many tokens a text is taken for."""
    encoded = text.encode("utf-8", "surrogatepass")
    others = len(encoded.translate(None, LETTERS))
    return (len(encoded) - others) // 3 + others // 2 + 1


def message_tokens(message: Message) -> int:
    """Return how many tokens a message is taken for, with its calls."""
    return _overhead(message) + sum(map(text_tokens, _texts(message)))


def tools_tokens(tools: Iterable[ToolSpec]) -> int:
    """Return how many tokens the tools of a request are taken for, with their schemas."""
    return sum(
        TOOL_TOKENS + text_tokens(tool.name + tool.description + json.dumps(tool.parameters, ensure_ascii=False))
        for tool in tools
    )


def fit(groups: Sequence[Group], *, own: int, room: int) -> list[Group]:
    """Return the groups, oldest first, that `room` tokens hold. `own` says which one is the turn's own message.

    That one is always among them, whole; so are the newest group and the first one, cut if they must be. Of the
    others the oldest are left out. Raises TurnFailure when the room is too small even for that.
    """
    if sum(item.tokens for item in groups) <= room:
        return list(groups)
    last = len(groups) - 1
    kept = {own: groups[own]}
    free = room - groups[own].tokens
    least = _least(groups[last]) if last != own else 0
    if free < least:
        raise too_small(room, groups[own].tokens + least)
    if own != 0:
        kept |= _first(groups[0], (free - least) // FIRST_PART)
    free -= sum(item.tokens for index, item in kept.items() if index != own)
    if last not in kept:
        kept[last] = _cut(groups[last], free)
        free -= kept[last].tokens
    _fill(kept, groups, free)
    return [kept[index] for index in sorted(kept)]


def too_small(room: int, needed: int) -> TurnFailure:
    """Return the error of a turn whose request cannot be made small enough."""
    return TurnFailure(
        f"The request does not fit into the model's context: beside instructions and tools there is room for about "
        f"{max(room, 0)} tokens, and the message with what must go with it needs about {needed}. Send less, or allow "
        "more with CONTEXT_TOKENS or the provider's context_tokens.",
        code="too_large",
        room=max(room, 0),
        needed=needed,
    )


def cut_text(text: str, tokens: int, *, length: int = 0, what: str = "result") -> str:
    """Return as much of a text as `tokens` allow, with a mark that says how much of it there was."""
    total = length or len(text)
    return _longest(text, tokens, lambda head: f"{head}\n[cut: the {what} has {total} characters, {_shown(head)}]")


def _shown(head: str) -> str:
    return f"the first {len(head)} are shown" if head else "none are shown"


def _longest(text: str, tokens: int, form: Callable[[str], str]) -> str:
    """Return the form with the longest beginning of a text that still fits; with none of it if nothing does."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if text_tokens(form(text[:middle])) <= tokens:
            low = middle
        else:
            high = middle - 1
    return form(text[:low])


def _fill(kept: dict[int, Group], groups: Sequence[Group], free: int) -> None:
    for index in range(len(groups) - 1, 0, -1):
        if index in kept:
            continue
        free -= groups[index].tokens
        if free < 0:
            return
        kept[index] = groups[index]


def _first(first: Group, tokens: int) -> dict[int, Group]:
    """Return the session's first message for a place of so many tokens; nothing if not even a mark fits there."""
    if first.tokens <= tokens:
        return {0: first}
    if tokens < LEAST_TOKENS + MESSAGE_TOKENS:
        return {}
    [message] = first.messages
    return {
        0: group(replace(message, content=cut_text(message.content or "", tokens - MESSAGE_TOKENS, what="message")))
    }


def _cut(item: Group, room: int) -> Group:
    """Return a reply with its results for a place of so many tokens: the longest texts are cut, to one length."""
    if item.tokens <= room:
        return item
    sizes = sorted(text_tokens(text) for message in item.messages for text in _cuttable(message))
    cap = _cap(sizes, room - (item.tokens - sum(sizes)))
    lengths = item.lengths or (0,) * len(item.messages)
    return group(*(_cut_message(message, cap, length) for message, length in zip(item.messages, lengths, strict=True)))


def _cap(sizes: list[int], room: int) -> int:
    """Return the size to which the largest of `sizes`, sorted, are cut so that all fit."""
    for number, size in enumerate(sizes):
        fair = room // (len(sizes) - number)
        if size > fair:
            return max(fair, LEAST_TOKENS)
        room -= size
    return sizes[-1]


def _cut_message(message: Message, cap: int, length: int) -> Message:
    content = message.content
    if content is not None and text_tokens(content) > cap:
        content = cut_text(content, cap, length=length, what="result" if message.role == "tool" else "text")
    return replace(message, content=content, tool_calls=tuple(_cut_call(call, cap) for call in message.tool_calls))


def _cut_call(call: ToolRequest, cap: int) -> ToolRequest:
    """Return a call whose arguments fit: what is left of longer ones is still a JSON object."""
    text = call.arguments
    if text_tokens(text) <= cap:
        return call
    note = f"the arguments had {len(text)} characters"
    return replace(
        call, arguments=_longest(text, cap, lambda head: json.dumps({"cut": note, "head": head}, ensure_ascii=False))
    )


def _least(item: Group) -> int:
    """Return how many tokens a group needs when all its texts are cut as far as may be."""
    sizes = [text_tokens(text) for message in item.messages for text in _cuttable(message)]
    return item.tokens - sum(sizes) + sum(min(size, LEAST_TOKENS) for size in sizes)


def _overhead(message: Message) -> int:
    return MESSAGE_TOKENS + CALL_TOKENS * len(message.tool_calls)


def _texts(message: Message) -> list[str]:
    names = [text for call in message.tool_calls for text in (call.id, call.name)]
    return [*_cuttable(message), *names, *([message.tool_call_id] if message.tool_call_id else [])]


def _cuttable(message: Message) -> list[str]:
    content = [message.content] if message.content is not None else []
    return [*content, *(call.arguments for call in message.tool_calls)]
