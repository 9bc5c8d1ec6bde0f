"""English, as much as the demo needs: words, their stems, which mean the same, and what is a question."""

from __future__ import annotations

import re

_WORD = re.compile(r"[A-Za-z]+(?:'[a-z]+)?")
_CAMEL_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")

_FILLERS = frozenset(
    """a an the my your our his her their its i you we it they me us them he she is are was were be been am do does
    did to of for on in at by with and or but this that these those please can could would will shall should have
    has had not no so if as from about into there here what which who when why how just again want need like i'd
    i'm it's don't let some any id new""".split()
)
_SAME = (
    ("refund", "money", "reimburse", "reimbursement", "repay", "return", "chargeback", "compensation"),
    ("ticket", "human", "person", "complaint", "complain", "manager", "supervisor", "representative", "escalate",
     "someone", "somebody", "colleague", "staff"),
    ("quote", "offer", "proposal", "estimate"),
    ("meeting", "appointment"),
    ("schedule", "book", "arrange"),
    ("lookup", "look", "find", "search", "check", "show", "get", "fetch", "track", "view", "read", "retrieve",
     "list", "query", "where"),
    ("create", "open", "make", "file", "raise", "add", "process", "submit", "do", "run", "perform", "handle"),
    ("cancel", "stop", "abort"),
    ("delete", "remove"),
    ("update", "change", "modify", "edit"),
)  # fmt: skip
_QUESTION_WORDS = frozenset("what whats when where which who whose why how".split())
_ASKING_VERBS = frozenset("is are was were does do did has have am".split())
_OPENERS = frozenset("and so but ok okay hi hello hey well please thanks".split())
_GREETINGS = frozenset("hi hello hey greetings morning afternoon evening help".split())
_THANKS = frozenset("thanks thank thx cheers".split())
_AGREEING = frozenset("yes yeah yep sure ok okay please go ahead great".split())
_REFUSING = frozenset("no nope not".split())


def stem(word: str) -> str:
    """Return what is left of a word without its ending, so that "refunded" and "refunds" are one."""
    word = word.lower().removesuffix("'s")
    for suffix in ("ing", "ed", "es", "s"):
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            word = word.removesuffix(suffix)
            break
    if len(word) > 3:
        word = word.removesuffix("e")
    if len(word) > 2 and word[-1] == word[-2]:
        word = word[:-1]
    return word[:-1] + "i" if word.endswith("y") else word


_MEANING = {stem(word): stem(group[0]) for group in _SAME for word in group}

READING = stem("lookup")
MAKING = stem("create")


def meaning(word: str) -> str:
    """Return the stem that stands for a word and for all that mean the same."""
    root = stem(word)
    return _MEANING.get(root, root)


def meanings(text: str) -> list[str]:
    """Return the meaning of each word of `text` that carries one, in order."""
    return [meaning(word) for word in _WORD.findall(text) if word.lower() not in _FILLERS]


def split_name(name: str) -> list[str]:
    """Return the words of an identifier in lower case: `order_id` and `orderId` both are order, id."""
    parts = [word.lower() for word in re.split(r"[_\W]+", _CAMEL_HUMP.sub("_", name)) if word]
    return parts or [name]


def sentences(text: str) -> list[str]:
    return [part.strip() for part in _SENTENCE_END.split(text) if part.strip()]


def is_question(sentence: str) -> bool:
    """Say whether a sentence asks to know something. "Can you refund it?" asks for an act, so it does not."""
    words = [word.lower() for word in _WORD.findall(sentence)]
    while words and words[0] in _OPENERS:
        words.pop(0)
    first = words[0].split("'")[0] if words else ""
    return first in _QUESTION_WORDS or (first in _ASKING_VERBS and sentence.rstrip().endswith("?"))


def is_greeting(text: str) -> bool:
    """Say whether a text greets or asks for help, and says little else."""
    found = [word.lower() for word in _WORD.findall(text)]
    return found[:1] != [] and (found[0] in _GREETINGS or (len(found) <= 3 and bool(_GREETINGS & set(found))))


def is_thanks(text: str) -> bool:
    """Say whether a text does nothing but thank."""
    return _says_only(text, _THANKS | {"you", "very", "much", "a", "lot", "many"}, at_least_one_of=_THANKS)


def is_agreement(text: str) -> bool:
    """Say whether a text does nothing but agree."""
    return _says_only(text, _AGREEING | {"do", "it", "that", "so"}, at_least_one_of=_AGREEING)


def is_refusal(text: str) -> bool:
    """Say whether a text does nothing but decline."""
    return _says_only(text, _REFUSING | {"thanks", "thank", "you", "now"}, at_least_one_of=_REFUSING)


def _says_only(text: str, words: frozenset[str], *, at_least_one_of: frozenset[str]) -> bool:
    said = _set(text)
    return bool(said & at_least_one_of) and said <= words and not any(sign.isdigit() for sign in text)


def _set(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(text)}
