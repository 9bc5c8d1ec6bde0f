"""What stands before every page of agentcore's own: CSRF, and headers against framing, caching and foreign scripts."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.views.decorators.cache import never_cache
from django.views.decorators.clickjacking import xframe_options_deny
from django.views.decorators.csrf import csrf_protect

POLICY_HEADER = "Content-Security-Policy"

View = Callable[..., HttpResponseBase]


def protected(view: View) -> View:
    """Protect a page by itself, whatever middleware the project has or lacks."""
    return xframe_options_deny(never_cache(_with_policy(csrf_protect(view))))


def _with_policy(view: View) -> View:
    @wraps(view)
    def guard(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = view(request, *args, **kwargs)
        response.headers.setdefault(POLICY_HEADER, _policy())
        return response

    return guard


def _policy() -> str:
    """Allow scripts and styles from this site, and from where its static files are; nothing inline."""
    static = urlsplit(settings.STATIC_URL or "")
    sources = f"'self' {static.scheme or 'https'}://{static.netloc}" if static.netloc else "'self'"
    return f"default-src {sources}; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
