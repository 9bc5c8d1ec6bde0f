"""Put what waits for a decision on the front page of an admin site."""

from __future__ import annotations

from django.contrib.admin import AdminSite

TEMPLATE = "admin/agentcore/index.html"


def show_on(site: AdminSite) -> None:
    """Have a site's front page show what waits, unless the project chose a front page of its own.

    The template extends `admin/index.html`, whichever the project has: an override of it stays. A template named
    `admin/index.html` of ours would be found or not by the order of INSTALLED_APPS.
    """
    if site.index_template is None:
        site.index_template = TEMPLATE
