"""Votes in the admin: how many are given, and who gave one is not asked again."""

import re
from typing import Any

import pytest
from django.test import Client

from agentcore import runtime
from agentcore.models import ToolApproval
from agentcore.testing import make_approval, make_session
from tests.integration.admin_pages import (
    ADMIN_AGENT,
    DECIDE,
    VIEW,
    Page,
    act,
    choose,
    list_url,
    page_url,
    staff,
)

pytestmark = pytest.mark.django_db

VOTED = "You have voted; it waits for others."


@pytest.fixture
def begun() -> tuple[ToolApproval, Client, Client]:
    """A request with one vote of two, who gave it, and who has not."""
    approval = make_approval("launch", {"name": "x"}, session=make_session(ADMIN_AGENT))
    first, second = staff(VIEW, DECIDE), staff(VIEW, DECIDE)
    act(first, "approve_selected", [approval])
    return approval, first, second


def ways(page: Any) -> int:
    return len([given for _, given in Page(page).elements if given.get("formaction")])


def test_apr_10_list_record_and_confirmation_say_how_many_votes_there_are(begun: Any) -> None:
    approval, first, second = begun
    for client in (first, second):
        pages = [client.get(list_url(ToolApproval)), client.get(page_url(approval))]
        pages += [client.get(page_url(approval, "approve")), choose(client, "approve_selected", [approval])]
        for page in pages:
            assert "1 of 2 approvals" in Page(page).text
            assert (VOTED in Page(page).text) is (client is first)


def test_who_has_voted_is_offered_no_decision_and_the_others_are(begun: Any) -> None:
    approval, first, second = begun
    assert ways(first.get(page_url(approval))) == 0
    assert ways(second.get(page_url(approval))) == 4


def test_the_front_page_counts_it_for_the_others_only(begun: Any) -> None:
    approval, first, second = begun
    assert "No request waits" in Page(first.get("/admin/")).text
    assert "1 request waits for your decision" in Page(second.get("/admin/")).text
    runtime.approve(approval.pk, second.user, arguments={"name": "y"})
    assert "1 request waits for your decision" in Page(first.get("/admin/")).text
    assert VOTED not in Page(first.get(list_url(ToolApproval))).text
    assert "1 of 2 approvals" in Page(first.get(list_url(ToolApproval))).text


def test_a_request_for_one_vote_says_nothing_of_votes_in_the_list() -> None:
    make_approval()
    assert not re.search(r"\d of \d approvals?", Page(staff(VIEW, DECIDE).get(list_url(ToolApproval))).text)
