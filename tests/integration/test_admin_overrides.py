"""Stricter rules in the admin: a form with suggestions, and a history that says what was and is."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from agentcore.models import Agent, ToolOverride
from agentcore.testing import TESTING_AGENT, make_approval, make_session, make_user
from tests.integration.admin_pages import Page, list_url, page_url, said, staff

pytestmark = pytest.mark.django_db

CHANGE = tuple(f"agentcore.{verb}_tooloverride" for verb in ("view", "add", "change", "delete"))
ADD = "/admin/agentcore/tooloverride/add/"
RULE = {"tool": "pay", "is_active": "on", "votes": "2", "permission": "", "expires_in": "", "note": "", "agent": ""}


@pytest.fixture
def chief() -> Client:
    return staff(*CHANGE)


def history() -> list[str]:
    return list(LogEntry.objects.order_by("pk").values_list("change_message", flat=True))


def errors(response: Any) -> str:
    return str(response.context["errors"])


def test_a_rule_is_made_and_holds_for_what_is_asked_from_then_on(chief: Client) -> None:
    before = make_approval()
    told = said(chief.post(ADD, RULE, follow=True))
    assert "was added successfully" in told[-1]
    rule = ToolOverride.objects.get()
    assert (rule.tool, rule.votes, rule.changed_by) == ("pay", 2, chief.user)
    assert make_approval().votes_needed == 2
    before.refresh_from_db()
    assert before.votes_needed == 1


def test_the_form_explains_itself_and_suggests_tools_without_a_script(chief: Client) -> None:
    make_session()
    page = Page(chief.get(ADD))
    for words in (
        "for what is asked from then on",
        "stricter",
        "Nobody decides on their own request.",
        "2 days, or 04:30:00",
    ):
        assert words in page.text
    options = {given.get("value") for tag, given in page.elements if tag == "option"}
    assert {"*", "pay", "wipe", "lookup"} <= options
    [field] = [given for tag, given in page.elements if tag == "input" and given.get("name") == "tool"]
    assert field["list"] in [given.get("id") for tag, given in page.elements if tag == "datalist"]
    own = chief.get(ADD).content.decode()
    assert " style=" not in own
    assert "onclick" not in own


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("tool", "no such name!", "name of a tool"),
        ("tool", "", "required"),
        ("permission", "agentcore.nothing_like_it", "There is no permission"),
        ("permission", "nodot", "app.codename"),
        ("permission", "a.b.c", "no permission"),
        ("votes", "0", "greater than or equal to 1"),
        ("expires_in", "-1 00:00:00", "above 0"),
        ("expires_in", "two days", "2 days, or 04:30:00"),
    ],
)
def test_what_no_rule_can_be_is_refused(chief: Client, field: str, value: str, problem: str) -> None:
    answer = chief.post(ADD, {**RULE, field: value})
    assert answer.status_code == 200
    assert problem in errors(answer)
    assert not ToolOverride.objects.exists()


def test_a_tool_that_is_not_deployed_here_is_taken_with_a_word_of_warning(chief: Client) -> None:
    told = said(chief.post(ADD, {**RULE, "tool": "elsewhere"}, follow=True))
    assert any("No tool of this name is known here" in text for text in told)
    assert ToolOverride.objects.get().tool == "elsewhere"


def test_a_rule_that_asks_for_nothing_says_so(chief: Client) -> None:
    told = said(chief.post(ADD, {**RULE, "votes": "1"}, follow=True))
    assert any("makes nothing stricter" in text for text in told)


def test_the_history_says_what_was_and_what_is(chief: Client) -> None:
    make_session()
    chief.post(ADD, {**RULE, "note": "audit"})
    rule = ToolOverride.objects.get()
    agent = Agent.objects.get(name=TESTING_AGENT)
    other = staff(*CHANGE)
    changed = {"votes": "3", "agent": str(agent.pk), "expires_in": "2 00:00:00", "note": "a\u202eb", "four_eyes": "on"}
    other.post(page_url(rule), {**RULE, **changed})
    rule.refresh_from_db()
    assert (rule.votes, rule.expires_in, rule.changed_by) == (3, timedelta(days=2), other.user)
    added, entry = history()
    assert added.startswith("Added: ")
    assert "votes: 2" in added
    for words in (
        f"agent: - → {TESTING_AGENT}",
        "votes: 2 → 3",
        "expires in: - → 2 days, 0:00:00",
        "four eyes: no → yes",
        "note: audit → a⟨U+202E⟩b",
    ):
        assert words in entry
    shown = Page(other.get(page_url(rule, "history"))).text
    assert "votes: 2 → 3" in shown
    assert page_url(rule, "history") in Page(other.get(page_url(rule))).links


def test_a_deleted_rule_leaves_what_it_said(chief: Client) -> None:
    chief.post(ADD, {**RULE, "note": "audit"})
    rule = ToolOverride.objects.get()
    chief.post(page_url(rule, "delete"), {"post": "yes"})
    chief.post(ADD, RULE)
    second = ToolOverride.objects.get()
    chosen = {"action": "delete_selected", "_selected_action": second.pk, "post": "yes"}
    chief.post(list_url(ToolOverride), chosen)
    assert not ToolOverride.objects.exists()
    deleted = [text for text in history() if text.startswith("Deleted: ")]
    assert len(deleted) == 2
    assert "note: audit" in deleted[0]


def test_only_who_may_change_rules_changes_them() -> None:
    rule = ToolOverride.objects.create(tool="pay", votes=2)
    for client in (staff("agentcore.view_tooloverride"), staff("agentcore.decide_toolapproval"), staff()):
        assert client.post(page_url(rule), {**RULE, "votes": "1"}).status_code == 403
        assert client.post(ADD, RULE).status_code == 403
        assert client.post(page_url(rule, "delete"), {"post": "yes"}).status_code == 403
    rule.refresh_from_db()
    assert (rule.votes, ToolOverride.objects.count()) == (2, 1)
    page = staff("agentcore.view_tooloverride").get(page_url(rule))
    assert page.status_code == 200
    assert b'name="votes"' not in page.content


def test_the_list_says_what_each_rule_asks_for_in_few_queries(
    chief: Client, django_assert_max_num_queries: Any
) -> None:
    user = make_user("setter")
    for number in range(30):
        ToolOverride.objects.create(tool=f"t{number}", votes=2, forbid_edit=True, note="why", changed_by=user)
    with django_assert_max_num_queries(12):
        text = Page(chief.get(list_url(ToolOverride))).text
    assert "2 votes; no edits" in text
    assert "every agent: t7" in text


def test_what_staff_wrote_stays_text(chief: Client) -> None:
    bad = '"><img src=x onerror=alert(1)>\u202e'
    rule = ToolOverride.objects.create(tool="pay", note=bad, votes=2)
    for address in (list_url(ToolOverride), page_url(rule), page_url(rule, "delete"), reverse("admin:index")):
        page = Page(chief.get(address))
        assert not [given for tag, given in page.elements if tag == "img" and given.get("src") == "x"]
