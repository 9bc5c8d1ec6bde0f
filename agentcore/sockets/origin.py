"""Say whether a page may open a socket: only our own, and those of CSRF_TRUSTED_ORIGINS.

A browser sends the user's cookie with the handshake whatever page asks for it, and always tells the page's origin,
if only as `null`. Who tells none is no browser: no page of somebody else's can be behind it, and it is let through.
The rule is the one by which Django accepts a POST: scheme, host and port must be those of the request.
"""

from __future__ import annotations

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest
from django.http.request import validate_host
from django.utils.http import is_same_domain

from agentcore.sockets import headers
from agentcore.sockets.headers import Scope

_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def is_allowed(scope: Scope) -> bool:
    """Say whether the handshake comes from an allowed origin, or from no page at all. One that names two does not."""
    given = headers.find_all(scope, "origin")
    if not given:
        return True
    if len(given) > 1:
        return False
    origin = _bare(given[0].lower())
    return _is_own(scope, origin) or any(_matches(origin, trusted) for trusted in settings.CSRF_TRUSTED_ORIGINS)


def _is_own(scope: Scope, origin: str) -> bool:
    request = _as_request(scope)
    if not {"HTTP_HOST", "SERVER_NAME"} & request.META.keys():
        return _is_allowed_host(origin)
    try:
        host = request.get_host()
    except DisallowedHost:
        return False
    return any(origin == _bare(f"{scheme}://{host}".lower()) for scheme in _schemes(request, scope))


def _as_request(scope: Scope) -> HttpRequest:
    """Return the handshake as far as Django reads it to find host and scheme, proxy settings included."""
    request = HttpRequest()
    for name in ("host", "x-forwarded-host", "x-forwarded-port", *_proxy_headers()):
        value = headers.find(scope, name)
        if value is not None:
            request.META["HTTP_" + name.upper().replace("-", "_")] = value
    server = scope.get("server")
    if server and server[1]:
        request.META["SERVER_NAME"], request.META["SERVER_PORT"] = server[0], str(server[1])
    return request


def _proxy_headers() -> list[str]:
    """Return the name of the header in which a proxy tells the scheme, if the project has one."""
    setting: tuple[str, str] | None = settings.SECURE_PROXY_SSL_HEADER
    return [setting[0].removeprefix("HTTP_").replace("_", "-").lower()] if setting else []


def _schemes(request: HttpRequest, scope: Scope) -> tuple[str, ...]:
    """Return the scheme our pages have. Daphne does not tell it for sockets: then the host alone decides."""
    if request.is_secure() or scope.get("scheme") in ("wss", "https"):
        return ("https",)
    return ("http",) if "scheme" in scope or _proxy_headers() else ("http", "https")


def _is_allowed_host(origin: str) -> bool:
    """Judge a handshake without a Host header. No browser sends one; test clients do."""
    scheme, _, host = origin.partition("://")
    return scheme in _DEFAULT_PORTS and validate_host(host, [name for name in settings.ALLOWED_HOSTS if name != "*"])


def _matches(origin: str, trusted: str) -> bool:
    scheme, _, host = trusted.lower().partition("://")
    if not host.startswith("*"):
        return origin == _bare(trusted.lower())
    given_scheme, _, given_host = origin.partition("://")
    return given_scheme == scheme and is_same_domain(given_host, host.removeprefix("*"))


def _bare(origin: str) -> str:
    """Return the origin without a port that its scheme implies."""
    return origin.removesuffix(_DEFAULT_PORTS.get(origin.partition("://")[0], ""))
