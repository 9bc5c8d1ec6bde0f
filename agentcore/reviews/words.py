"""What the live script says, in the reader's language: scripts have no translations of their own."""

from __future__ import annotations

import json

from django.conf import settings
from django.shortcuts import resolve_url
from django.utils.translation import gettext as _


def as_json() -> str:
    """Return the words as the JSON of a data attribute."""
    return json.dumps({**_connection(), **_statuses(), **_list(), **_keys(), **_text()})


def _connection() -> dict[str, str]:
    return {
        "live": _("Live"),
        "connecting": _("Connecting…"),
        "lost": _("Not live, connecting again…"),
        "closed": _("Not live, reload to see changes"),
        "logged_out": _("You are logged out."),
        "log_in": _("Log in again."),
        "log_in_page": resolve_url(settings.LOGIN_URL),
    }


def _statuses() -> dict[str, str]:
    return {
        "pending": _("pending"),
        "approved": _("approved"),
        "rejected": _("rejected"),
        "responded": _("answered"),
        "expired": _("expired"),
        "cancelled": _("cancelled"),
        "by": _("# by @"),
    }


def _list() -> dict[str, str]:
    return {
        "changed": _("This request changed. Look at it again before you decide."),
        "settled": _("This request is not pending any more: #."),
        "over": _("This request is not pending any more."),
        "voted": _("Somebody voted on this request."),
        "none": _("Nothing waits for you."),
        "one": _("1 request waits for you."),
        "many": _("# requests wait for you."),
        "fits_one": _("1 fits the filter."),
        "fits_many": _("# fit the filter."),
        "arrived": _("New request: #"),
        "nobody": _("nobody"),
        "now": _("just now"),
    }


def _keys() -> dict[str, str]:
    return {
        "confirm": _("Press Enter to approve #, Escape to go back."),
        "open_first": _("The list does not show all of this request: press Enter to open it."),
        "cannot_decide": _("You cannot decide this request."),
        "chosen_none": _("Nothing is selected."),
        "chosen_one": _("1 request is selected."),
        "chosen_many": _("# requests are selected."),
        "last_page": _("This is the last page."),
        "unchanged": _("The request has not changed."),
        "first": _("This is the first request."),
        "last": _("This is the last request."),
    }


def _text() -> dict[str, str]:
    return {
        "hidden": _("Hidden character #"),
        "characters": _("# characters"),
        "more": _("and # more"),
        "own_page": _("Decide it on its own page."),
        "too_long_to_decide": _("Too long to decide here: open it."),
        "votes_given": _("# of @ approvals given"),
        "vote": _("# of @ approvals"),
        "you_voted": _("You have voted; it waits for others."),
        "too_long_here": _("too long for the list"),
        "too_long": _("Its arguments are too long for the list: open the request to read them."),
        "looking_one": _("# is looking at this request too."),
        "looking_many": _("# are looking at this request too."),
        "and": _("and"),
    }
