"""Find values in a text: ids, amounts of money, dates, numbers with a unit, names, quoted words."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from decimal import Decimal

from agentcore.providers.demo import words

_ID_TEXT = r"(?<![\w.,$€£-])(#?[A-Za-z]{0,10}-?\d[\w-]{0,40})(?![.,]?\d)"
_LABEL_TAIL = r"(?:[\W_]+(?:with|the|has|is|id|number|no|nr|num|code|reference))*[\s:.#=\"]*"
_NUMBER = r"\d[\d,]{0,20}(?:\.\d{1,6})?(?:\s?(?:k|million|thousand)\b)?"
_CURRENCY = r"(?:€|\$|£|\b(?:usd|eur|gbp|euros?|dollars?|pounds?)\b)"
_MARKED_MONEY = re.compile(rf"{_CURRENCY}\s*({_NUMBER})|({_NUMBER})\s*{_CURRENCY}", re.IGNORECASE)
_CENTS = re.compile(r"(?<![\w.,-])(\d+\.\d{2})(?![\w-]|\.\d)")
_NAMED_MONEY = re.compile(
    rf"\b(?:refund|quote|amount|budget|total|price|pay|worth|of)\s+(?:me\s+|of\s+|is\s+|about\s+)*({_NUMBER})"
    r"(?=\s*(?:$|[.,;!?]|(?:for|on|to|please|and|with)\b))",
    re.IGNORECASE,
)
_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_ISO_DATE = r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?(?:Z|[+-]\d{2}:\d{2})?)?"
_DATE = re.compile(
    rf"\b(?:{_ISO_DATE}|\d{{1,2}}\.? (?:{_MONTHS})(?: \d{{4}})?|(?:{_MONTHS}) \d{{1,2}}(?:, \d{{4}})?"
    r"|(?:next |this )?(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|today|tomorrow|next week)\b"
    r"(?: at \d{1,2}(?::\d{2})?(?: ?[ap]m)?)?",
    re.IGNORECASE,
)
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|(?<!\w)'([^']+)'(?!\w)")
_NAME = r"[A-Z][\w&]*(?:[ -](?:[A-Z][\w&]*|&|of|de))*"
_INTRODUCED_NAME = re.compile(
    rf"\b(?:[Cc]ompany|[Ll]ead|[Cc]ustomer|[Cc]lient|[Nn]amed|[Cc]alled|[Ff]rom|[Ff]or|[Aa]t|[Ii]n|[Ww]ith|[Ii]s)\s+({_NAME})"
)
_MULTIPLES = {"k": 1_000, "thousand": 1_000, "million": 1_000_000}
_MINUTES = {"minute": 1, "min": 1, "hour": 60, "hr": 60}


def find_id(text: str, *, entity: str, others: Collection[str], taken: Collection[str]) -> str | None:
    """Return the id of `entity` in `text`: behind its word, else one that stands alone and is nothing else's."""
    return find_labelled_id(text, entity=entity) or next(_lone_ids(text, others=others, taken=taken), None)


def find_labelled_id(text: str, *, entity: str) -> str | None:
    """Return the id that follows the word for `entity`, as in "order no. 12345"."""
    if not entity:
        return None
    found = re.search(rf"\b{re.escape(entity)}s?(?:\b|(?=_)){_LABEL_TAIL}{_ID_TEXT}", text, re.IGNORECASE)
    return found[1].lstrip("#") if found else None


def find_money(text: str, *, taken: Collection[str]) -> str | None:
    """Return an amount of money as plain digits: one with a currency, with cents, or named as one."""
    for pattern in (_MARKED_MONEY, _CENTS, _NAMED_MONEY):
        for found in pattern.finditer(text):
            number = plain_number(next(group for group in found.groups() if group))
            if number not in taken:
                return number
    return None


def find_date(text: str, *, iso_only: bool) -> str | None:
    """Return a date as it is written, with `iso_only` one that a program can read."""
    found = re.search(_ISO_DATE, text) if iso_only else _DATE.search(text)
    return found[0] if found else None


def find_email(text: str) -> str | None:
    found = _EMAIL.search(text)
    return found[0] if found else None


def find_measure(text: str, *, name: Collection[str]) -> str | None:
    """Return a number that belongs to a parameter's name: "3 seats", "30 minutes" for a duration."""
    if "duration" in name or "minutes" in name:
        return _find_minutes(text)
    if set(name) & {"size", "employees", "headcount"}:
        found = re.search(r"\b(\d[\d,.-]*) ?(?:employees|people|staff|persons|users)\b", text, re.IGNORECASE)
        return found[1] if found else None
    units = {words.stem(word) for word in name}
    for number, unit in re.findall(rf"\b({_NUMBER})\s+([A-Za-z]+)", text):
        if words.stem(unit) in units:
            return plain_number(number)
    return None


def find_after_label(text: str, *, label: str) -> str | None:
    """Return what is said to be the value of `label`, as in "the subject is Broken lamp"."""
    found = re.search(rf"\b{re.escape(label)}\s*(?::|=|\bis\b|\bof\b|\bare\b)\s*([^,;\n]+)", text, re.IGNORECASE)
    if not found:
        return None
    value = re.split(r"\s+and\s+(?:the|a|an|with)\b|[.!?](?:\s|$)", found[1])[0]
    return value.strip(" \"'“”") or None


def find_number_after_label(text: str, *, label: str) -> str | None:
    found = re.search(rf"\b{re.escape(label)}\b\W*(?:(?:is|of|about|to)\W+)*({_NUMBER})", text, re.IGNORECASE)
    return plain_number(found[1]) if found else None


def find_numbers(text: str, *, taken: Collection[str]) -> list[str]:
    """Return every number in `text`, in order, but those that were taken for something else."""
    numbers = [plain_number(found) for found in re.findall(_NUMBER, text)]
    return [number for number in numbers if number not in taken]


def find_list(text: str, *, label: str) -> list[str]:
    """Return several values: the quoted ones, else those listed behind the label."""
    quoted = find_quoted(text)
    if quoted:
        return quoted
    found = re.search(rf"\b{re.escape(label)}s?\b\s*:?\s*(?:are\s+)?([^.;!?\n]+)", text, re.IGNORECASE)
    parts = re.split(r",\s*(?:and\s+)?|\s+and\s+", found[1]) if found else []
    return [part.strip() for part in parts if part.strip()]


def find_quoted(text: str) -> list[str]:
    return [next(group for group in found if group) for found in _QUOTED.findall(text)]


def find_name(text: str) -> str | None:
    """Return a name: a quoted one, or capitalised words behind a word that introduces them."""
    if re.fullmatch(_NAME, text.strip()):
        return text.strip()
    quoted = find_quoted(text)
    if quoted:
        return quoted[0]
    found = _INTRODUCED_NAME.search(text) or re.search(rf"(?<=\w )({_NAME})", text)
    return found[1] if found and found[1] != "I" else None


def plain_number(text: str) -> str:
    """Return a number as people write it in plain digits: "500,000" and "500k" are 500000, "49,90" is 49.90."""
    if re.fullmatch(r"\d+,\d{2}", text):
        return text.replace(",", ".")
    found = re.fullmatch(r"([\d,.]+)\s?(k|million|thousand)?", text.strip(), re.IGNORECASE)
    if found is None:
        return text
    digits = found[1].replace(",", "").rstrip(".")
    factor = _MULTIPLES.get((found[2] or "").lower(), 1)
    return digits if factor == 1 else f"{(Decimal(digits) * factor).normalize():f}"


def _lone_ids(text: str, *, others: Collection[str], taken: Collection[str]) -> Iterator[str]:
    for found in re.finditer(_ID_TEXT, text):
        token = found[1].lstrip("#")
        before = re.findall(r"[A-Za-z]+", text[: found.start()])[-1:]
        is_long = bool(re.search(r"\d{3,}|[A-Za-z]-?\d", token))
        is_others = bool(before) and before[0].lower() in others
        if is_long and not is_others and token not in taken and not _is_measured(text, found.start(1), found.end(1)):
            yield token


def _is_measured(text: str, start: int, end: int) -> bool:
    """Say whether the digits at this place are money, a date or a number of something."""
    for pattern in (_MARKED_MONEY, _DATE):
        if any(found.start() < end and start < found.end() for found in pattern.finditer(text)):
            return True
    return bool(re.match(r"\s+(?:minutes?|hours?|days?|weeks?|months?|years?|people|employees|percent)\b", text[end:]))


def _find_minutes(text: str) -> str | None:
    found = re.search(r"\b(\d+) ?-?(minute|min|hour|hr)s?\b", text, re.IGNORECASE)
    return str(int(found[1]) * _MINUTES[found[2].lower()]) if found else None
