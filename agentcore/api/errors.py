"""The one shape of every error: {"code", "message", "details"}."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.core.signals import got_request_exception
from django.http import Http404
from django.utils.log import log_response
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.settings import api_settings
from rest_framework.views import set_rollback

from agentcore import canonical
from agentcore.exceptions import AgentError, NotFound, TooLarge

STATUSES = {
    "invalid_input": 400,
    "not_authenticated": 401,
    "permission_denied": 403,
    "not_found": 404,
    "conflict": 409,
    "too_large": 413,
    "rate_limited": 429,
    "driver_unavailable": 503,
    "unavailable": 503,
}
# DRF's own codes, where the contract has a name for the same thing.
CODES = {
    exceptions.ValidationError: "invalid_input",
    exceptions.ParseError: "invalid_input",
    exceptions.NotAuthenticated: "not_authenticated",
    exceptions.AuthenticationFailed: "not_authenticated",
    exceptions.Throttled: "rate_limited",
}
MAX_NAME = 100


def absent() -> NotFound:
    """Return the one answer for what does not exist and for what is another's: nobody can tell them apart."""
    return NotFound("There is nothing here, or nothing of yours.")


def handle(error: Exception, context: dict[str, Any]) -> Response:
    """Return the answer for anything a view raises; DRF's exception handler of every view here."""
    if isinstance(error, RequestDataTooBig):
        error = TooLarge(str(error))
    if isinstance(error, AgentError) and error.code in STATUSES:
        # Nothing is rolled back, not even under ATOMIC_REQUESTS: a verb that refuses leaves what it recorded of it.
        return _of_agent_error(error)
    set_rollback()
    if isinstance(error, Http404):
        error = exceptions.NotFound()
    elif isinstance(error, PermissionDenied):
        error = exceptions.PermissionDenied()
    if isinstance(error, exceptions.APIException):
        return _of_api_exception(error)
    return _unexpected(error, context)


def body(code: str, message: str, details: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return an error as it is shown; text that no encoder takes is cleaned."""
    cleaned: dict[str, Any] = canonical.clean({"code": code, "message": message, "details": details or {}})
    return cleaned


def _of_agent_error(error: AgentError) -> Response:
    details = error.details
    if error.code == "invalid_input" and "field" in details:
        details = {"errors": [{"field": details["field"], "message": error.message}], **details}
    response = Response(body(error.code, error.message, details), status=STATUSES[error.code])
    if error.code == "rate_limited":
        response["Retry-After"] = _whole_seconds(details.get("retry_after"))
    return response


def _of_api_exception(error: exceptions.APIException) -> Response:
    problems = list(_problems(error.detail))
    code = CODES.get(type(error), error.default_code)
    details: dict[str, Any] = {}
    if isinstance(error, exceptions.ValidationError):
        details["errors"] = [{"field": field, "message": message} for field, message in problems]
    message = " ".join(f"{field}: {text}" if field else text for field, text in problems)
    response = Response(body(code, message, details), status=error.status_code)
    if auth_header := getattr(error, "auth_header", None):
        response["WWW-Authenticate"] = auth_header
    if isinstance(error, exceptions.Throttled):
        response["Retry-After"] = _whole_seconds(getattr(error, "wait", None))
    return response


def _unexpected(error: Exception, context: dict[str, Any]) -> Response:
    """Report an error nobody foresaw as Django does, and tell the client nothing of it."""
    request = context["request"]._request
    got_request_exception.send(sender=type(context["view"]), request=request)
    response = Response(body("internal", "Something went wrong here; it was logged."), status=500)
    log_response("%s: %s", response.reason_phrase, request.path, response=response, request=request, exception=error)
    return response


def _problems(detail: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield the field, as a dotted path, and the text of each problem in a DRF error's `detail`."""
    if isinstance(detail, dict):
        for name, item in detail.items():
            own = name == api_settings.NON_FIELD_ERRORS_KEY
            yield from _problems(item, path if own else (*path, str(name)[:MAX_NAME]))
    elif isinstance(detail, list):
        for index, item in enumerate(detail):
            yield from _problems(item, (*path, str(index)) if isinstance(item, dict) else path)
    else:
        yield ".".join(path), str(detail)


def _whole_seconds(wait: float | None) -> str:
    return str(max(1, math.ceil(wait or 1)))
