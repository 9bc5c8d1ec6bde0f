"""Show text that models, tools and users wrote: escaped, and what hides in it made visible."""

from __future__ import annotations

from typing import Any

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from agentcore.approvals.visible import made_visible, pieces

register = template.Library()


@register.filter
def visible(text: Any) -> SafeString:
    """Return the text with a <mark> in place of each character that does not show or turns the reading."""
    return format_html_join("", "{}", ((_mark(piece) if is_mark else piece,) for piece, is_mark in pieces(str(text))))


@register.filter
def visible_plain(text: Any) -> str:
    """Return the same as text alone, for attributes and options: they hold no elements."""
    return made_visible(str(text))


def _mark(piece: str) -> SafeString:
    title = _("Hidden character %(code)s") % {"code": piece.strip("⟨⟩")}
    return format_html('<mark class="hidden-character" title="{}">{}</mark>', title, piece)
