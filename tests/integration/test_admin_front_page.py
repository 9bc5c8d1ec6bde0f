"""The admin's front page: what waits, for how long, how long decisions take, and what nobody can decide."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.db import connection
from django.http import HttpRequest
from django.template import engines
from django.test.utils import CaptureQueriesContext

from agentcore import runtime
from agentcore.admin import front_page, waiting
from agentcore.models import ToolApproval
from agentcore.testing import make_approval, make_session, make_user
from tests.integration.admin_pages import ADMIN_AGENT, DECIDE, VIEW, VIEW_ALL, Page, staff, superuser

pytestmark = pytest.mark.django_db

ADDRESSES = ("/admin/", "/admin/agentcore/")


@pytest.mark.parametrize("address", ADDRESSES)
def test_it_says_what_waits_and_for_how_long(address: str, clock: Any) -> None:
    make_approval()
    clock.advance(timedelta(hours=3))
    make_approval()
    text = Page(staff(DECIDE).get(address)).text.replace("\xa0", " ")
    assert "2 requests wait for your decision, the oldest for 3 hours." in text
    assert "2 requests wait for a decision, the oldest for 3 hours." in Page(staff(VIEW).get(address)).text.replace(
        "\xa0", " "
    )


@pytest.mark.parametrize("address", ADDRESSES)
def test_it_is_not_there_for_who_may_see_no_approvals(address: str) -> None:
    make_approval()
    page = staff("agentcore.view_agentsession").get(address)
    assert page.status_code == 200
    assert "agentcore-waiting" not in page.content.decode()


def test_own_requests_are_not_counted_and_hidden_teams_neither() -> None:
    client = staff(DECIDE)
    make_approval(user=client.user)
    make_approval("team_pay", {"amount": 1}, session=make_session(ADMIN_AGENT))
    assert "No request waits" in Page(client.get("/admin/")).text


def test_it_tells_the_usual_time_to_decide(clock: Any) -> None:
    judge = make_user(permissions=(DECIDE,))
    for minutes in (10, 20, 600):
        approval = make_approval()
        clock.advance(timedelta(minutes=minutes))
        runtime.reject(approval.pk, judge)
    text = Page(staff(DECIDE).get("/admin/")).text.replace("\xa0", " ")
    assert "Half of the latest decisions took less than 20 minutes." in text
    for _ in range(4):
        runtime.reject(make_approval().pk, judge)
    assert "Half of the latest decisions took less than a minute." in Page(staff(DECIDE).get("/admin/")).text
    clock.advance(timedelta(days=31))
    assert "Half of the latest" not in Page(staff(DECIDE).get("/admin/")).text


def test_what_too_few_may_decide_is_told_and_listed() -> None:
    client = superuser()
    stuck, other = make_approval(), make_approval()
    ToolApproval.objects.filter(pk=stuck.pk).update(is_unroutable=True)
    page = Page(client.get("/admin/"))
    assert "1 request cannot be decided" in page.text
    [address] = [link for link in page.links if "routable" in link]
    listed = client.get(address).content.decode()
    assert f"/toolapproval/{stuck.pk}/change/" in listed
    assert f"/toolapproval/{other.pk}/change/" not in listed
    ToolApproval.objects.update(status="rejected")
    assert "cannot be decided" not in Page(client.get("/admin/")).text


@pytest.mark.parametrize("permissions", [(DECIDE,), (VIEW,), (VIEW, DECIDE), VIEW_ALL])
def test_three_queries_are_enough_whatever_waits(permissions: tuple[str, ...]) -> None:
    first = make_approval()
    user = make_user(permissions=permissions)
    user.get_all_permissions()
    for _ in range(2):
        with CaptureQueriesContext(connection) as captured:
            assert waiting.for_user(user) is not None
        assert len(captured) <= 3
        for _ in range(5):
            copy_story_of(first)


def copy_story_of(approval: ToolApproval) -> None:
    ToolApproval.objects.create(
        **{
            field.attname: getattr(approval, field.attname)
            for field in approval._meta.concrete_fields
            if field.name != "id"
        }
    )


def test_a_front_page_of_the_projects_own_is_left_alone() -> None:
    site = admin.AdminSite(name="own")
    site.index_template = "mine.html"
    front_page.show_on(site)
    assert site.index_template == "mine.html"
    plain = admin.AdminSite(name="plain")
    front_page.show_on(plain)
    assert plain.index_template == admin.site.index_template == "admin/agentcore/index.html"


OVERRIDES = {
    "admin/index.html": '{% extends "admin/base_site.html" %}{% block content %}<p>Our own index.</p>{% endblock %}',
    "admin/base_site.html": (
        "<html><head>{% block extrastyle %}{% endblock %}{% block extrahead %}{% endblock %}</head><body>"
        "<h1>Our base</h1>"
        "{% if messages %}<ul class='messagelist'>{% for message in messages %}<li>{{ message }}</li>{% endfor %}</ul>"
        "{% endif %}{% block content %}{% endblock %}</body></html>"
    ),
}


@pytest.fixture
def own_templates(settings: Any, tmp_path: Any) -> None:
    for name, text in OVERRIDES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    [templates] = settings.TEMPLATES
    settings.TEMPLATES = [{**templates, "DIRS": [tmp_path]}]
    assert engines["django"].get_template("admin/index.html").template.source == OVERRIDES["admin/index.html"]


def test_a_project_that_has_its_own_templates_keeps_them_and_has_the_block_too(own_templates: None) -> None:
    approval = make_approval()
    client = superuser()
    page = Page(client.get("/admin/"))
    for words in ("Our base", "Our own index.", "1 request waits for your decision"):
        assert words in page.text
    here = f"/admin/agentcore/toolapproval/{approval.pk}"
    for way in ("change", "approve", "edit", "respond", "reject", "history"):
        page = Page(client.get(f"{here}/{way}/"))
        assert "Our base" in page.text
    form = Page(client.get(f"{here}/approve/")).sent_by("post")
    assert "1 approved, 0 refused" in Page(client.post(f"{here}/approve/", form, follow=True)).text


def test_the_tag_needs_no_request_of_its_own() -> None:
    request = HttpRequest()
    request.user = make_user(is_staff=True)
    found = engines["django"].from_string("{% load agentcore_admin %}{% waiting_approvals user as w %}{{ w }}")
    assert found.render({"user": request.user}) == "None"
