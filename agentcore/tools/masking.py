"""Mask secrets wherever a person or a log sees arguments, and keep them when an edit sends the mask back.

A key is secret when its last word is password, secret, token, authorization or cookie, or its last words are
"api key": `password`, `DB_PASSWORD`, `access-token`, `clientSecret`, `X-Api-Key`, `apikey`; not `max_tokens`,
not `token_count`. Case, `_`, `-` and humps do not matter. The whole value of a secret key is masked, at any depth;
so is that of a key which is one of the tool's `sensitive` names.

In prose nobody can say which word is the secret: a text that speaks of one, or holds the number of a card (13 to 19
digits whose last one checks the others, ISO/IEC 7812-1) or an IBAN (ISO 13616), is masked whole.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from agentcore.exceptions import InvalidInput

MASK = "********"

_LAST_WORDS = frozenset({"password", "secret", "token", "authorization", "cookie", "apikey"})
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|[^\W_]+")
_SECRET_IN_TEXT = re.compile(
    r"passw(or|d)|passcode|passphrase|secret|token|(api|private)[ _-]?key|authorization|cookie|credential"
    r"|\b(pins?|cv[vc]2?|otp)\b",
    re.IGNORECASE,
)
_CARD = re.compile(r"(?<!\d)\d(?:[ -]?\d){12,18}(?!\d)")
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b")


def mask(value: Any, sensitive: Collection[str] = ()) -> Any:
    """Return a copy of a JSON-like `value` with MASK in place of every secret."""
    if isinstance(value, Mapping):
        return {key: MASK if is_secret(key, sensitive) else mask(item, sensitive) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mask(item, sensitive) for item in value]
    return value


def unmask(edited: Any, original: Any, sensitive: Collection[str] = ()) -> Any:
    """Return `edited` with the real value of `original` wherever a secret key still holds MASK.

    Raises InvalidInput where there is no such value, or when items of a list that hold secrets were moved and
    changed at once, so that nobody can say which secret is whose: the mask itself never reaches a tool.
    """
    if isinstance(edited, Mapping):
        known = original if isinstance(original, Mapping) else {}
        return {key: _unmask_entry(key, item, known, sensitive) for key, item in edited.items()}
    if isinstance(edited, list):
        return _unmask_list(edited, original if isinstance(original, list) else [], sensitive)
    return edited


def is_secret(key: Any, sensitive: Collection[str] = ()) -> bool:
    """Say whether the value of `key` is masked."""
    if not isinstance(key, str):
        return False
    if key in sensitive:
        return True
    words = [word.lower() for word in _WORD.findall(key)]
    return bool(words) and (words[-1] in _LAST_WORDS or words[-2:] == ["api", "key"])


def mentions_secret(text: str) -> bool:
    """Say whether `text`, prose or what nobody could parse, may hold a secret."""
    return bool(_SECRET_IN_TEXT.search(text) or _IBAN.search(text)) or any(map(_is_card, _CARD.findall(text)))


def mask_prose(value: Any) -> Any:
    """Return what `mask` does, with each text in it masked that speaks of a secret."""
    if isinstance(value, Mapping):
        return {
            key: MASK if is_secret(key) or mentions_secret(key) else mask_prose(item) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [mask_prose(item) for item in value]
    return MASK if isinstance(value, str) and mentions_secret(value) else value


def _is_card(number: str) -> bool:
    """Say whether the last digit of a number is the check digit of the others, by Luhn's rule."""
    digits = [int(digit) for digit in reversed(number) if digit.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[1::2]]
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _unmask_entry(key: str, item: Any, known: Mapping[str, Any], sensitive: Collection[str]) -> Any:
    if not (is_secret(key, sensitive) and item == MASK):
        return unmask(item, known.get(key), sensitive)
    if key not in known:
        raise InvalidInput(f"{key} has no earlier value that the mask could keep; give the value.", field=key)
    return known[key]


def _unmask_list(edited: list[Any], original: list[Any], sensitive: Collection[str]) -> list[Any]:
    shown = [mask(item, sensitive) for item in original]
    sources = [_same_item(index, edited, original, shown) for index in range(len(edited))]
    for index, source in enumerate(sources):
        if source is None and len(edited) == len(original) and index not in sources:
            sources[index] = index
    return [
        unmask(item, None if source is None else original[source], sensitive)
        for item, source in zip(edited, sources, strict=True)
    ]


def _same_item(index: int, edited: list[Any], original: list[Any], shown: list[Any]) -> int | None:
    """Return the place of the one original item that was shown exactly as the edited one reads."""
    places = [place for place, item in enumerate(shown) if item == edited[index]]
    if index in places and len(edited) == len(original):
        return index
    is_certain = all(original[place] == original[places[0]] for place in places)
    return places[0] if places and is_certain else None
