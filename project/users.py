"""Who may log in to the demonstration: a customer and a reviewer, with a new password and token at each start."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY, get_user_model
from django.contrib.auth.models import Permission
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.db.models import Q
from django.utils import timezone
from rest_framework.authtoken.models import Token


@dataclass(frozen=True, kw_only=True)
class DemoUser:
    """A log-in of the demonstration, as it is printed."""

    username: str
    password: str
    token: str
    role: str


def make_customer() -> DemoUser:
    return make_user("customer", role="customer", permissions=Permission.objects.none())


def make_reviewer() -> DemoUser:
    may = Q(codename__startswith="view_") | Q(codename="decide_toolapproval")
    permissions = Permission.objects.filter(may, content_type__app_label__in=("agentcore", "project"))
    return make_user("reviewer", role="reviewer", permissions=permissions, is_staff=True)


def make_user(username: str, *, role: str, permissions: Any, is_staff: bool = False) -> DemoUser:
    """Make the user, or give them a new password and a new token; browsers that are logged in stay so."""
    password = secrets.token_urlsafe(9)
    user, _ = get_user_model().objects.get_or_create(username=username)
    before = user.get_session_auth_hash()
    user.set_password(password)
    user.is_active, user.is_staff = True, is_staff
    user.save()
    keep_logged_in(user, before)
    user.user_permissions.set(permissions)
    Token.objects.filter(user=user).delete()
    token = Token.objects.create(user=user)
    return DemoUser(username=username, password=password, token=token.key, role=role)


def keep_logged_in(user: Any, before: str) -> None:
    """Let the sessions that the old password began go on: each holds a hash of the password it is valid for."""
    known = Session.objects.filter(expire_date__gt=timezone.now()).values_list("session_key", flat=True)
    for key in list(known):
        session = SessionStore(key)
        if session.get(SESSION_KEY) == str(user.pk) and session.get(HASH_SESSION_KEY) == before:
            session[HASH_SESSION_KEY] = user.get_session_auth_hash()
            session.save()
