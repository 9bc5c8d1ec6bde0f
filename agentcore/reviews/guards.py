"""What stands before every page here: log-in, and what protects each page of agentcore's."""

from __future__ import annotations

from functools import wraps
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from agentcore import pages
from agentcore.pages import View
from agentcore.reviews import filters

# In the address of a page: somebody was logged out when they decided.
UNDECIDED = "undecided"


def guarded(view: View) -> View:
    """Protect a page by itself, whatever middleware the project has or lacks."""
    return pages.protected(_for_users(view))


def posted(view: View) -> View:
    """Let a view take POST only. GET, as of a reload or a bookmark, leads to the page that the form was on."""

    @require_http_methods(["GET", "HEAD", "POST"])
    @wraps(view)
    def guard(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.method == "POST":
            return view(request, *args, **kwargs)
        return redirect(page_of(**kwargs))

    return guard


def page_of(approval_id: int | None = None) -> str:
    """Return the address of a request's page, or of the list."""
    if approval_id is None:
        return reverse("agentcore-reviews:list")
    return reverse("agentcore-reviews:detail", args=[approval_id])


def _for_users(view: View) -> View:
    @wraps(view)
    def guard(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.user.is_authenticated:
            return view(request, *args, **kwargs)
        return redirect_to_login(_after_log_in(request, **kwargs))

    return guard


def _after_log_in(request: HttpRequest, **kwargs: Any) -> str:
    """Return where to go after the log-in: a browser comes back by GET, and what was posted is lost."""
    if request.method != "POST":
        return request.get_full_path()
    here = filters.carried(request).here()
    pairs = {UNDECIDED: "1", **({"in": here} if here and kwargs else {})}
    query = urlencode(pairs) if kwargs or not here else f"{here}&{urlencode(pairs)}"
    return f"{page_of(**kwargs)}?{query}"
