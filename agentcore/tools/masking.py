"""Mask secrets wherever a person or a log sees arguments, and keep them when an edit sends the mask back.

A key is secret when its last word is password, secret, token, authorization or cookie, or its last words are
"api key": `password`, `DB_PASSWORD`, `access-token`, `clientSecret`, `X-Api-Key`, `apikey`; not `max_tokens`,
not `token_count`. Case, `_`, `-` and humps do not matter. The whole value of a secret key is masked, at any depth;
so is that of a key which is one of the tool's `sensitive` names.

In prose nobody can say which word is the secret: a text that speaks of one, or holds the number of a card (13 to 19
digits whose last one checks the others, ISO/IEC 7812-1), an IBAN (ISO 13616), an access token of a known form, a JSON
Web Token (RFC 7519) or an address with a password (RFC 3986), is masked whole. So is a memory of which any part does.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from agentcore.exceptions import InvalidInput

MASK = "********"
# Of the countries that have one, Norway's is the shortest.
MIN_IBAN = 15

_LAST_WORDS = frozenset({"password", "secret", "token", "authorization", "cookie", "apikey"})
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|[^\W_]+")
# Where a name such as `userPin`, `PINCode` or `db_pwd` has its words.
_BETWEEN_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_")
_SECRET_IN_TEXT = re.compile(
    r"passw(or|d)|passcode|passphrase|secret|token|(api|private)[ -]?key|authorization|cookie|credential"
    r"|\b(pwd|pins?|cv[vc]2?|otp)\b"
    r"|\b(one[ -]?time|security|verification|access|recovery|2 ?fa|mfa|two[ -]?factor)[ -]?codes?\b(?! reviews?\b)",
    re.IGNORECASE,
)
# Each begins where no other can begin within it, so that a text is read once whatever it holds.
_TOKEN = re.compile(
    r"(?<![\w-])(?:"
    r"sk-(?=[\w-]*[A-Z0-9])[\w-]{16,}|[sr]k_(?:live|test)_\w{16,}"
    r"|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{20,}|xox[abeprs]-[\w-]{10,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}(?!\w)|AIza[\w-]{35}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)",
    re.ASCII,
)
_PASSWORD_IN_ADDRESS = re.compile(r"://[^\s/?#@:]*:[^\s/?#@]+@")
# With full stops only as a card is printed: so are many other numbers.
_CARD = re.compile(r"(?<!\d)(?:\d(?:[ -]?\d){12,18}|\d{4}(?:\.\d{4}){3}|\d{4}\.\d{6}\.\d{5})(?!\d)")
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b")
# In small letters it looks like other things, so its check digits decide. Read at each place: another may begin in it.
_SMALL_IBAN = re.compile(
    r"\b(?=([A-Z]{2}\d{2}(?:[A-Z0-9]{11,30}|(?: [A-Z0-9]{4}){2,7}(?: [A-Z0-9]{1,3})?)\b))", re.IGNORECASE | re.ASCII
)


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


def mentions_secret(value: Any) -> bool:
    """Say whether `value`, prose, what nobody could parse, or JSON of such, may hold a secret in any part of it."""
    if isinstance(value, Mapping):
        return any(is_secret(key) or mentions_secret(key) or mentions_secret(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return any(map(mentions_secret, value))
    if isinstance(value, int):
        return _holds_number(str(value))
    return isinstance(value, str) and (_speaks_of_secret(value) or _holds_token(value) or _holds_number(value))


def mask_prose(value: Any) -> Any:
    """Return `value`, or MASK if any part of it may hold a secret: what the others say may be that secret."""
    return MASK if mentions_secret(value) else value


def _speaks_of_secret(text: str) -> bool:
    return bool(_SECRET_IN_TEXT.search(_BETWEEN_WORDS.sub(" ", text)))


def _holds_token(text: str) -> bool:
    return bool(_TOKEN.search(text) or _PASSWORD_IN_ADDRESS.search(text))


def _holds_number(text: str) -> bool:
    """Say whether `text` has the number of a card or an account."""
    return (
        bool(_IBAN.search(text))
        or any(map(_is_card, _CARD.findall(text)))
        or any(map(_begins_with_iban, _SMALL_IBAN.findall(text)))
    )


def _is_card(number: str) -> bool:
    """Say whether the last digit of a number is the check digit of the others, by Luhn's rule."""
    digits = [int(digit) for digit in reversed(number) if digit.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[1::2]]
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _begins_with_iban(text: str) -> bool:
    """Say whether the check digits of `text`, or of its first words, are right: the words after it may be others."""
    words = text.split(" ")
    return any(_is_iban("".join(words[:count])) for count in range(1, len(words) + 1))


def _is_iban(number: str) -> bool:
    turned = number[4:] + number[:4]
    return len(number) >= MIN_IBAN and int("".join(str(int(sign, 36)) for sign in turned)) % 97 == 1


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
