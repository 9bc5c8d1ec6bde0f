"""The list of approvals: its filters, what it costs with ten thousand requests, and many decided in one step."""

import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from agentcore.models import ToolApproval
from agentcore.testing import make_approval, make_session
from tests.integration.admin_pages import (
    ADMIN_AGENT,
    DECIDE,
    VIEW,
    VIEW_ALL,
    Page,
    act,
    choose,
    said,
    staff,
    statuses,
)

pytestmark = pytest.mark.django_db

LIST = "/admin/agentcore/toolapproval/"


@pytest.fixture
def reviewer() -> Client:
    return staff(VIEW, DECIDE)


def listed(client: Client, query: str = "") -> list[int]:
    pages = Page(client.get(LIST + query)).pages
    return [int(page.split("/")[-3]) for page in pages if page.endswith("/change/")]


def crowd(approval: ToolApproval, number: int) -> None:
    """Make many pending requests like one that there is."""
    fields = {
        field.attname: getattr(approval, field.attname)
        for field in approval._meta.concrete_fields
        if field.name != "id"
    }
    ToolApproval.objects.bulk_create([ToolApproval(**fields) for _ in range(number)], batch_size=500)


# Filters


def test_requests_are_filtered_by_age(reviewer: Client, clock: Any) -> None:
    rows = []
    for hours in (24 * 8, 30, 2, 0):
        rows.append(make_approval().pk)
        ToolApproval.objects.filter(pk=rows[-1]).update(requested_at=clock.now() - timedelta(hours=hours))
    assert listed(reviewer, "?age=week") == rows[:1]
    assert listed(reviewer, "?age=day") == rows[:2]
    assert listed(reviewer, "?age=hour") == rows[:3]
    assert listed(reviewer, "?age=new") == rows[3:]
    assert listed(reviewer, "?age=nonsense") == []


def test_requests_are_filtered_by_the_votes_that_they_still_need(reviewer: Client) -> None:
    begun, fresh = (make_approval("launch", {"name": name}, session=make_session(ADMIN_AGENT)) for name in "ab")
    make_approval()
    act(staff(VIEW, DECIDE), "approve_selected", [begun])
    assert listed(reviewer, "?votes=several") == [begun.pk, fresh.pk]
    assert listed(reviewer, "?votes=begun") == [begun.pk]
    ToolApproval.objects.filter(pk=begun.pk).update(version=9)
    assert listed(reviewer, "?votes=begun") == []


def test_requests_are_filtered_by_whether_enough_people_may_decide(reviewer: Client) -> None:
    stuck, other = make_approval(), make_approval()
    ToolApproval.objects.filter(pk=stuck.pk).update(is_unroutable=True)
    assert listed(reviewer, "?routable=no") == [stuck.pk]
    assert listed(reviewer, "?routable=yes") == [other.pk]


def test_requests_are_filtered_by_agent_tool_and_kind(reviewer: Client) -> None:
    pay, wipe = make_approval(), make_approval("wipe", {"path": "/"})
    say = make_approval("say", {"body": "x"}, session=make_session(ADMIN_AGENT))
    ToolApproval.objects.filter(pk=say.pk).update(kind="outcome")
    assert listed(reviewer, "?tool=wipe") == [wipe.pk]
    assert listed(reviewer, f"?agent__id__exact={say.agent_id}") == [say.pk]
    assert listed(reviewer, "?kind__exact=call") == [pay.pk, wipe.pk]


# Ten thousand


QUERIES = ("", "?q=acme", "?age=hour", "?votes=begun", "?routable=no", "?tool=pay", "?kind__exact=call", "?status=all")


def test_adm_01_ten_thousand_pending_cost_as_many_queries_as_ten() -> None:
    approval = make_approval()
    client = staff(*VIEW_ALL, DECIDE)
    addresses = ["/admin/", *(LIST + query for query in QUERIES), f"{LIST}{approval.pk}/change/"]
    crowd(approval, 9)
    for address in addresses:
        client.get(address)
    few = {address: cost(client, address) for address in addresses}
    crowd(approval, 9_990)
    many = {address: cost(client, address) for address in addresses}
    assert {address: queries for address, (queries, _, _) in many.items()} == {
        address: queries for address, (queries, _, _) in few.items()
    }
    for address, (queries, size, seconds) in many.items():
        assert queries <= 20, address
        assert size < 500_000, address
        assert seconds < 2, address


def cost(client: Client, address: str) -> tuple[int, int, float]:
    started = time.monotonic()
    with CaptureQueriesContext(connection) as captured:
        answer = client.get(address)
    assert answer.status_code == 200
    return len(captured), len(answer.content), time.monotonic() - started


def test_adm_01_choosing_all_of_ten_thousand_shows_a_bounded_page(reviewer: Client) -> None:
    approval = make_approval()
    crowd(approval, 9_999)
    page = choose(reviewer, "reject_selected", [approval], select_across="1")
    assert "More than 400 requests match" in Page(page).text
    assert len(page.content) < 1_000_000


# Many at once


def test_adm_03_thirty_chosen_one_by_one_are_rejected_with_one_reason(
    reviewer: Client, scripted: Any, run_turns: Any
) -> None:
    rows = [make_approval() for _ in range(30)]
    assert act(reviewer, "reject_selected", rows, reason="Not today.") == ["30 rejected, 0 refused"]
    provider = scripted(lambda request: "I see.")
    run_turns()
    assert all("Not today." in request.messages[-1].content for request in provider.requests)
    assert provider.call_count == 30


def test_adm_10_what_was_decided_is_gone_from_the_list_and_a_click_on_it_does_nothing(reviewer: Client) -> None:
    approval = make_approval()
    sent = {"action": "approve_selected", "post": "yes", "_selected_action": approval.pk}
    act(staff(VIEW, DECIDE), "reject_selected", [approval], reason="no")
    told = said(reviewer.post(LIST, {**sent, f"version_{approval.pk}": "1"}, follow=True))
    assert told[0] == "0 approved, 1 refused"
    assert "already rejected" in told[1]
    assert listed(reviewer) == []
    assert statuses() == ["rejected"]
