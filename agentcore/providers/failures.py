"""What the failure of a model API means: which error it is, how long to wait, what people may see of it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime

from agentcore import clock
from agentcore.exceptions import (
    ProviderAuthError,
    ProviderBadRequest,
    ProviderConnectionError,
    ProviderContextTooLong,
    ProviderError,
    ProviderOverloaded,
    ProviderRateLimited,
    ProviderTimeout,
)

MAX_EXCERPT_CHARS = 300
# Longer than any turn, and short enough to make a date of.
MAX_RETRY_AFTER_SECONDS = 366 * 24 * 3600.0

_CREDENTIAL = re.compile(r"\b(?:sk|pk|key|org|proj)-[\w*.-]{4,}|\bBearer\s+\S+", re.IGNORECASE)
# Each API and server says it in words of its own.
_TOO_LONG = re.compile(
    r"context[ _-]?(?:length|size|window|limit)|(?:prompt|input) is too (?:long|large)|"
    r"exceeds? the (?:maximum|available) (?:context|number of tokens)",
    re.IGNORECASE,
)

# 408: the API waited too long for us. 409: it works on something else; the SDKs too call it temporary.
_CLASS_OF_STATUS: dict[int, type[ProviderError]] = {
    401: ProviderAuthError,
    403: ProviderAuthError,
    408: ProviderTimeout,
    409: ProviderOverloaded,
    429: ProviderRateLimited,
}
# Inside a stream there is no status, only what an error calls itself.
_CLASS_OF_CODE: dict[str, type[ProviderError]] = {
    "authentication_error": ProviderAuthError,
    "permission_error": ProviderAuthError,
    "billing_error": ProviderAuthError,
    "rate_limit_error": ProviderRateLimited,
    "rate_limit_exceeded": ProviderRateLimited,
    "timeout_error": ProviderTimeout,
    "invalid_request_error": ProviderBadRequest,
    "not_found_error": ProviderBadRequest,
    "request_too_large": ProviderBadRequest,
    "context_length_exceeded": ProviderContextTooLong,
}


def timed_out() -> ProviderTimeout:
    """Return the error for an answer that did not come in time."""
    return ProviderTimeout("The model API did not answer in time.")


def disconnected(host: str) -> ProviderConnectionError:
    """Return the error for a connection that failed or broke off; `host` is shown."""
    return ProviderConnectionError(f"The connection to the model API ({host}) failed.")


def of_answer(
    *, status: int, code: object, text: object, headers: Mapping[str, str], secrets: Iterable[str | None]
) -> ProviderError:
    """Return the error for an answer with a status of 4xx or 5xx.

    Of `text`, the API's own words, an excerpt is shown where the request was bad; `secrets` are masked in it.
    """
    name = shown_code(code)
    error_class = _class_of(status, name)
    message = f"The model API answered {status}{_in_brackets(name)}"
    if error_class is ProviderBadRequest:
        message += f": {_excerpt(text, secrets=secrets)}"
        if _TOO_LONG.search(f"{name} {text}"):
            error_class = ProviderContextTooLong
    return error_class(message + ".", retry_after=retry_after(headers))


def of_stream(*, code: object) -> ProviderError:
    """Return the error for one reported inside a stream: its code may be a status, a word, or say nothing."""
    name = shown_code(code)
    error_class = _CLASS_OF_CODE.get(name) or _class_of(int(name) if name.isdecimal() else 500, name)
    return error_class(f"The model API broke off its stream with an error{_in_brackets(name)}.")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds the API asks to wait, from its header in (milli)seconds or as a date.

    None when it does not say, or not in a way that can be read; never less than 0, never more than a year.
    """
    seconds = _number(headers.get("retry-after"))
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        seconds = milliseconds / 1000
    if seconds is None:
        seconds = _seconds_until(headers.get("retry-after"))
    return None if seconds is None else min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS)


def shown_code(code: object) -> str:
    """Return an error's code if it looks like one, else "": anything may stand there, a key too."""
    text = "" if code is None else str(code)
    return text if re.fullmatch(r"\w{1,64}", text) else ""


def _class_of(status: int, code: str) -> type[ProviderError]:
    # A used-up budget answers 429 as well, but waiting does not fill it.
    if code == "insufficient_quota":
        return ProviderAuthError
    if status >= 500:
        return ProviderOverloaded
    return _CLASS_OF_STATUS.get(status, ProviderBadRequest)


def _in_brackets(code: str) -> str:
    return f" ({code})" if code else ""


def _excerpt(text: object, *, secrets: Iterable[str | None]) -> str:
    if not isinstance(text, str) or not text:
        return "it gave no reason"
    for secret in secrets:
        if secret:
            text = text.replace(secret, "********")
    return _CREDENTIAL.sub("********", text)[:MAX_EXCERPT_CHARS].rstrip(".\n ")


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _seconds_until(value: str | None) -> float | None:
    try:
        moment = parsedate_to_datetime(value or "")
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=clock.now().tzinfo)
    return (moment - clock.now()).total_seconds()
