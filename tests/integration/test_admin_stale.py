"""Pages of the admin that are no longer true say what changed, and what became of the decision."""

from typing import Any

import pytest
from django.test import Client

from agentcore import runtime
from agentcore.models import ApprovalDecision, ToolApproval
from agentcore.testing import make_approval, make_session, make_user
from tests.integration.admin_pages import (
    ADMIN_AGENT,
    DECIDE,
    VIEW,
    Page,
    choose,
    confirm,
    list_url,
    page_url,
    said,
    staff,
    statuses,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def reviewer() -> Client:
    return staff(VIEW, DECIDE)


def launch(name: str = "x") -> ToolApproval:
    return make_approval("launch", {"name": name}, session=make_session(ADMIN_AGENT))


def edit(approval: ToolApproval, **arguments: Any) -> None:
    runtime.approve(approval.pk, make_user(permissions=(DECIDE,)), arguments=arguments)


def differences(page: Any) -> list[str]:
    """Return what the page marks as gone and as new, in its order."""
    text = page.content.decode()
    return [part.partition("<")[0] for part in text.replace("<ins>", "<del>").split("<del>")[1:]]


@pytest.mark.parametrize("way", ["approve", "edit", "respond", "reject"])
def test_apr_04_a_stale_page_shows_field_by_field_what_changed_since(reviewer: Client, way: str) -> None:
    approval = launch()
    page = reviewer.get(page_url(approval, way))
    edit(approval, name="y")
    typed = {"edit": {"arguments": '{"name": "z"}'}, "respond": {"result": "r"}}.get(way, {})
    answer = confirm(reviewer, page, page_url(approval, way), **typed)
    assert answer.status_code == 409
    assert "When you saw it" in Page(answer).text
    assert differences(answer)[:2] == ["x", "y"]
    words = {"approve": "Not approved", "edit": "Not approved", "respond": "Not answered", "reject": "Not rejected"}
    assert said(answer) == [f"{words[way]}: The request changed, please look again."]
    assert "refused" not in " ".join(said(answer))


def test_apr_04_the_records_own_page_is_compared_too(reviewer: Client) -> None:
    approval = launch()
    form = Page(reviewer.get(page_url(approval))).sent_by(f"version_{approval.pk}")
    edit(approval, name="y")
    page = reviewer.post(page_url(approval, "approve"), form)
    assert differences(page)[:2] == ["x", "y"]


def test_apr_04_many_at_once_say_what_changed_of_each(reviewer: Client) -> None:
    stale, fresh = launch(), launch("fresh")
    page = choose(reviewer, "approve_selected", [stale, fresh])
    edit(stale, name="y")
    assert differences(confirm(reviewer, page, list_url(ToolApproval))) == ["x", "y"]


def test_apr_34_of_a_secret_only_that_it_changed_is_told(reviewer: Client) -> None:
    arguments = {"url": "u", "headers": {"Authorization": "b-1"}, "api_key": "k-1", "pin": "p-1", "note": "n"}
    approval = make_approval("fetch", arguments, session=make_session(ADMIN_AGENT))
    page = reviewer.get(page_url(approval, "approve"))
    changed = {**arguments, "pin": "p-2"}
    ToolApproval.objects.update(version=2, arguments=changed, arguments_digest="0" * 64)
    answer = confirm(reviewer, page, page_url(approval, "approve"))
    assert "What changed is a secret." in Page(answer).text
    everything = page.content.decode() + answer.content.decode()
    assert not [secret for secret in ("b-1", "k-1", "p-1", "p-2") if secret in everything]


@pytest.mark.parametrize("seen", ["", "nonsense", "a:b:c"])
def test_what_was_seen_is_not_invented(reviewer: Client, seen: str) -> None:
    approval = launch()
    page = reviewer.get(page_url(approval, "approve"))
    edit(approval, name="y")
    answer = confirm(reviewer, page, page_url(approval, "approve"), **{f"seen_{approval.pk}": seen})
    assert "What it was when you saw it cannot be told." in Page(answer).text


def test_arguments_of_another_reviewer_are_not_called_the_agents(reviewer: Client) -> None:
    approval = launch()
    for way in ("approve", "edit"):
        page = Page(reviewer.get(page_url(approval, way)))
        assert "A reviewer changed" not in page.text
    edit(approval, name="y")
    for way in ("approve", "edit"):
        page = reviewer.get(page_url(approval, way))
        assert "The agent asked for this call" not in Page(page).text
        assert "A reviewer changed what the agent asked for:" in Page(page).text
        assert differences(page) == ["x", "y"]


# The session was over


@pytest.mark.parametrize("where", ["page", "list"])
def test_who_is_sent_to_the_log_in_with_a_decision_is_told_that_nothing_was_decided(
    reviewer: Client, where: str
) -> None:
    approval = make_approval()
    page = choose(reviewer, "approve_selected", [approval])
    reviewer.logout()
    answer = confirm(reviewer, page, list_url(ToolApproval) if where == "list" else page_url(approval, "approve"))
    assert "/login/" in answer.redirect_chain[-1][0]
    assert said(answer) == ["Your session was over: nothing was decided."]
    assert (statuses(), ApprovalDecision.objects.count()) == (["pending"], 0)


def test_opening_a_page_without_a_session_says_nothing_of_it() -> None:
    answer = Client().get(page_url(make_approval(), "approve"), follow=True)
    assert said(answer) == []
