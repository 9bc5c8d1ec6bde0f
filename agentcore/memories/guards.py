"""What stands before every page here: log-in, and what protects each page of agentcore's."""

from __future__ import annotations

from functools import wraps
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from agentcore import pages
from agentcore.pages import View

LIST = "agentcore-memories:list"


def guarded(view: View) -> View:
    """Let only users who are logged in come in; each sees what is their own."""

    @wraps(view)
    def guard(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.user.is_authenticated:
            return view(request, *args, **kwargs)
        # A browser comes back by GET, and what was posted is lost: then to the list.
        return redirect_to_login(request.get_full_path() if request.method != "POST" else reverse(LIST))

    return pages.protected(guard)


def posted(view: View) -> View:
    """Let a view take POST only. GET, as of a reload or a bookmark, leads to the list."""

    @require_http_methods(["GET", "HEAD", "POST"])
    @wraps(view)
    def guard(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        return view(request, *args, **kwargs) if request.method == "POST" else redirect(LIST)

    return guard
