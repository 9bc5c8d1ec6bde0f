"""Find out who opens a socket, and later whether that still holds.

In this order: `Authorization: Token <key>`, the subprotocol `agentcore.token.<key>`, the session cookie, a
user that a middleware of the project's own put into the scope.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from django.apps import apps
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, get_user_model, load_backend
from django.utils.crypto import constant_time_compare

from agentcore.sockets import headers
from agentcore.sockets.headers import Scope

SUBPROTOCOL = "agentcore.token."

_KEY = re.compile(r"[!-~]{1,256}")


@dataclass(frozen=True, kw_only=True)
class Login:
    """How somebody logged in. `user` asks the database anew each time it is called."""

    # Any: the project chooses its own user model.
    def user(self) -> Any:
        """Return the active user, or None when this is no log-in (any more)."""
        found = self._find_user()
        return found if found is not None and found.is_active else None

    def _find_user(self) -> Any:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class TokenLogin(Login):
    """A token of rest_framework.authtoken; nobody, when that app is not installed."""

    key: str

    def _find_user(self) -> Any:
        if not apps.is_installed("rest_framework.authtoken") or not _KEY.fullmatch(self.key):
            return None
        tokens = apps.get_model("authtoken", "Token")._default_manager.select_related("user")
        found: Any = tokens.filter(key=self.key).first()
        return found and found.user


@dataclass(frozen=True, kw_only=True)
class SessionLogin(Login):
    """Django's session, which must go on to exist and to name the same user."""

    session_key: str
    user_key: str

    def _find_user(self) -> Any:
        session = import_module(settings.SESSION_ENGINE).SessionStore(self.session_key)
        backend = session.get(BACKEND_SESSION_KEY)
        if session.get(SESSION_KEY) != self.user_key or backend not in settings.AUTHENTICATION_BACKENDS:
            return None
        user = load_backend(backend).get_user(get_user_model()._meta.pk.to_python(self.user_key))
        return user if user is not None and _is_verified(user, session.get(HASH_SESSION_KEY)) else None


@dataclass(frozen=True, kw_only=True)
class GivenLogin(Login):
    """A user that a middleware of the project's own vouches for."""

    user_pk: Any

    def _find_user(self) -> Any:
        return get_user_model()._default_manager.filter(pk=self.user_pk).first()


def login_of(scope: Scope) -> Login | None:
    """Return how the client logs in, None when it does not. Queries."""
    token = find_token(scope)
    if token is not None:
        return TokenLogin(key=token)
    session, given = scope.get("session"), scope.get("user")
    named = session.get(SESSION_KEY) if session is not None and session.session_key else None
    given_key = _as_text(given) if given is not None and given.is_authenticated else None
    if session is not None and named is not None and given_key in (None, named):
        return SessionLogin(session_key=session.session_key, user_key=named)
    return GivenLogin(user_pk=given.pk) if given is not None and given_key is not None else None


def find_token(scope: Scope) -> str | None:
    """Return the token that the client sends, which no browser does by itself; None without one."""
    kind, _, key = (headers.find(scope, "authorization") or "").strip().partition(" ")
    if kind.lower() == "token":
        return key.strip()
    subprotocol = token_subprotocol(scope)
    return None if subprotocol is None else subprotocol.removeprefix(SUBPROTOCOL)


def token_subprotocol(scope: Scope) -> str | None:
    """Return the subprotocol that carries a token. The answer must name it, or browsers drop the socket."""
    return next((item for item in scope.get("subprotocols", ()) if item.startswith(SUBPROTOCOL)), None)


def _as_text(user: Any) -> str:
    """Return the user's key as sessions hold it."""
    text: str = user._meta.pk.value_to_string(user)
    return text


def _is_verified(user: Any, session_hash: str | None) -> bool:
    """Say whether the session was begun with the present password.

    django.contrib.auth.get_user does so too, and then writes to the session, which a socket must not: it
    cannot send a new cookie.
    """
    if not hasattr(user, "get_session_auth_hash"):
        return True
    if not session_hash:
        return False
    valid = [user.get_session_auth_hash(), *user.get_session_auth_fallback_hash()]
    return any(constant_time_compare(session_hash, item) for item in valid)
