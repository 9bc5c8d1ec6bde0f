"""Canonical JSON, its digests, and the cleaning of text: one form of every value, on every database."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

# NUL is refused by PostgreSQL, a lone surrogate by every encoder: neither can be stored everywhere.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def clean_text(text: str) -> str:
    """Return `text` with each NUL and lone surrogate replaced by U+FFFD.

    A surrogate pair that arrived as two halves is joined to the character it stands for.
    """
    if not _UNSTORABLE.search(text):
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _UNSTORABLE.sub("\ufffd", joined)


def clean(value: Any) -> Any:
    """Return a JSON-like `value` with every string in it, keys too, cleaned by `clean_text`."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Mapping):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    return value


def has_unstorable_text(value: Any) -> bool:
    """Say whether any string in a JSON-like `value`, keys too, holds NUL or a lone surrogate."""
    if isinstance(value, str):
        return bool(_UNSTORABLE.search(value))
    if isinstance(value, Mapping):
        return any(has_unstorable_text(key) or has_unstorable_text(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return any(has_unstorable_text(item) for item in value)
    return False


def normalise(value: Any) -> Any:
    """Return the plain JSON value that `value` is stored as.

    Decimal becomes a string and a float of integral value an integer, so that every database gives
    back what was hashed. Raises ValueError for NaN and infinity, TypeError for what JSON cannot hold.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return _normalise_float(value)
    if isinstance(value, Decimal):
        return _normalise_decimal(value)
    if isinstance(value, Mapping):
        return {_normalise_key(key): normalise(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [normalise(item) for item in value]
    raise TypeError(f"JSON cannot hold a {type(value).__name__}")


def dumps(value: Any) -> str:
    """Return the canonical JSON text of `value`."""
    return json.dumps(normalise(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: Any) -> str:
    """Return the SHA-256 of the canonical JSON of `value`, as 64 hexadecimal digits."""
    return text_digest(dumps(value))


def text_digest(text: str) -> str:
    """Return the SHA-256 of `text` in UTF-8, as 64 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def depth(value: Any) -> int:
    """Return how many levels of objects and lists a JSON-like `value` has; 0 for a scalar."""
    if isinstance(value, Mapping):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list | tuple):
        return 1 + max(map(depth, value), default=0)
    return 0


def byte_size(value: Any) -> int:
    """Return how many bytes the canonical JSON of `value` has."""
    return len(dumps(value).encode())


def _normalise_float(value: float) -> float | int:
    if not math.isfinite(value):
        raise ValueError("JSON cannot hold NaN or infinity")
    return int(value) if value.is_integer() else value


def _normalise_decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise ValueError("JSON cannot hold NaN or infinity")
    return str(value)


def _normalise_key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"JSON keys are strings, not {type(key).__name__}")
    return key
