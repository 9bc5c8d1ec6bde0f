"""Many at once in the admin: what the page does not show wholly, or asks how a call ended, is not decided there."""

from typing import Any

import pytest
from django.test import Client

from agentcore.models import ApprovalDecision, ToolApproval
from agentcore.testing import make_approval, make_session
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

TOO_LONG = "This one is too long to approve here: open it."
OUTCOME = "Nobody knows how this call ended: decide it on its own page."


@pytest.fixture
def reviewer() -> Client:
    return staff(VIEW, DECIDE)


def long(length: int) -> ToolApproval:
    return make_approval("say", {"body": "x" * length + "the end"}, session=make_session(ADMIN_AGENT))


def forced(client: Client, page: Any, approvals: list[ToolApproval], **data: Any) -> Any:
    """Press the button of a page that was changed to send requests it did not."""
    sent = {**Page(page).sent_by("post"), "_selected_action": [item.pk for item in approvals], **data}
    versions = {f"version_{item.pk}": "1" for item in approvals}
    return client.post(list_url(ToolApproval), {**sent, **versions}, follow=True)


@pytest.mark.parametrize("length", [5_000, 61_000, 2_000_000])
def test_apr_33_what_is_not_wholly_shown_is_not_approved_with_others(
    reviewer: Client, length: int, settings: Any
) -> None:
    settings.AGENTCORE = {**settings.AGENTCORE, "MAX_ARGUMENT_BYTES": 4 * 2**20}
    huge, small = long(length), make_approval()
    page = choose(reviewer, "approve_selected", [huge, small])
    shown = Page(page)
    assert (TOO_LONG in shown.text, "the end" in shown.text) == (True, False)
    assert page_url(huge) in shown.links
    assert shown.sent_by("post")["_selected_action"] == [str(small.pk)]
    answer = forced(reviewer, page, [huge, small])
    assert said(answer) == ["1 approved, 1 refused", f"#{huge.pk}: {TOO_LONG}"]
    assert statuses() == ["pending", "approved"]


def test_apr_33_alone_in_the_list_it_is_not_approved_either_but_on_its_own_page(reviewer: Client) -> None:
    huge, small = long(61_000), make_approval()
    page = choose(reviewer, "approve_selected", [huge])
    assert TOO_LONG in Page(page).text
    assert "Approve" not in [given.get("value") for tag, given in Page(page).elements if tag == "input"]
    answer = forced(reviewer, choose(reviewer, "approve_selected", [small]), [huge])
    assert said(answer) == ["0 approved, 1 refused", f"#{huge.pk}: {TOO_LONG}"]
    alone = reviewer.get(page_url(huge, "approve"))
    assert "the end" in Page(alone).text
    assert said(confirm(reviewer, alone, page_url(huge, "approve"))) == ["1 approved, 0 refused"]


def test_apr_33_a_preview_that_is_cut_holds_an_approval_back_too(reviewer: Client) -> None:
    approval, other = make_approval(), make_approval()
    ToolApproval.objects.filter(pk=approval.pk).update(preview="y" * 6_000 + "the end")
    page = choose(reviewer, "approve_selected", [approval, other])
    assert (TOO_LONG in Page(page).text, "yyyy" in Page(page).text) == (True, False)
    assert f"#{approval.pk}: {TOO_LONG}" in said(forced(reviewer, page, [approval, other]))
    assert "the end" in Page(reviewer.get(page_url(approval, "approve"))).text
    assert statuses() == ["pending", "approved"]


def test_apr_33_a_page_of_many_shows_less_and_approves_no_more_than_it_shows(reviewer: Client) -> None:
    middling, *others = [long(1_000), *(make_approval() for _ in range(20))]
    page = choose(reviewer, "approve_selected", [middling, *others])
    assert TOO_LONG in Page(page).text
    assert f"#{middling.pk}: {TOO_LONG}" in said(forced(reviewer, page, [middling, *others[:2]]))
    assert statuses().count("approved") == 2
    few = choose(reviewer, "approve_selected", [middling, others[3]])
    assert (TOO_LONG in Page(few).text, "the end" in Page(few).text) == (False, True)
    assert said(confirm(reviewer, few, list_url(ToolApproval))) == ["2 approved, 0 refused"]


def test_apr_33_long_requests_are_rejected_together(reviewer: Client) -> None:
    page = choose(reviewer, "reject_selected", [long(61_000), long(61_000)])
    assert TOO_LONG not in Page(page).text
    assert said(confirm(reviewer, page, list_url(ToolApproval), reason="no")) == ["2 rejected, 0 refused"]


@pytest.mark.parametrize("way", ["approve", "reject"])
def test_how_calls_ended_is_not_decided_together(reviewer: Client, way: str) -> None:
    doubtful, plain = make_approval(), make_approval()
    ToolApproval.objects.filter(pk=doubtful.pk).update(kind="outcome")
    page = choose(reviewer, f"{way}_selected", [doubtful, plain])
    assert OUTCOME in Page(page).text
    assert Page(page).sent_by("post")["_selected_action"] == [str(plain.pk)]
    told = said(forced(reviewer, page, [doubtful, plain]))
    assert told[0].startswith("1 ")
    assert told[1:] == [f"#{doubtful.pk}: {OUTCOME}"]
    assert statuses()[0] == "pending"


def test_an_attempt_without_the_right_on_what_is_held_back_is_still_on_record() -> None:
    huge = long(61_000)
    ToolApproval.objects.filter(pk=huge.pk).update(permission="agentcore.view_metrics", kind="outcome")
    client = staff(VIEW, DECIDE)
    told = said(forced(client, choose(client, "approve_selected", [make_approval()]), [huge]))
    assert "permission" in told[1]
    assert ApprovalDecision.objects.get().refusal == "permission_denied"
