"""The record of decisions as files from the admin: what was selected, or all that matches."""

import csv
import io
import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.test import AsyncClient, Client

from agentcore import runtime
from agentcore.models import ApprovalDecision
from agentcore.testing import make_approval, make_user
from tests.integration.admin_pages import DECIDE, VIEW, list_url, logged_in, staff

pytestmark = pytest.mark.django_db

LIST = "/admin/agentcore/approvaldecision/"
READ = "agentcore.view_approvaldecision"
FORMULA = "=HYPERLINK(1)"


@pytest.fixture
def record() -> list[ApprovalDecision]:
    """Four entries: two approvals, a rejection with a reason that a spreadsheet would run, and a refused attempt."""
    judge = make_user("judge", permissions=(DECIDE,))
    for _ in range(2):
        runtime.approve(make_approval().pk, judge)
    rejected = make_approval()
    runtime.reject(rejected.pk, judge, reason=FORMULA)
    client = staff(VIEW)
    client.post(f"/admin/agentcore/toolapproval/{rejected.pk}/approve/", {"post": "yes"})
    return list(ApprovalDecision.objects.order_by("pk"))


def export(client: Client, kind: str, chosen: list[ApprovalDecision], query: str = "", **data: str) -> Any:
    return client.post(
        LIST + query,
        {"action": f"export_{kind}", "index": "0", "_selected_action": [item.pk for item in chosen], **data},
    )


def text_of(answer: Any) -> str:
    return b"".join(answer.streaming_content).decode()


def test_selected_entries_are_a_csv_file_that_no_spreadsheet_runs(record: list[ApprovalDecision]) -> None:
    answer = export(staff(READ), "csv", record[2:3])
    assert answer.streaming
    assert answer.headers["Content-Type"].startswith("text/csv")
    assert ".csv" in answer.headers["Content-Disposition"]
    [entry] = csv.DictReader(io.StringIO(text_of(answer)))
    assert (entry["decision_id"], entry["verdict"], entry["actor_name"]) == (str(record[2].pk), "reject", "judge")
    assert entry["note"] == f"'{FORMULA}"


def test_all_that_matches_is_a_json_file_oldest_first(record: list[ApprovalDecision]) -> None:
    answer = export(staff(READ), "json", record[:1], select_across="1")
    assert answer.headers["Content-Type"] == "application/json"
    entries = json.loads(text_of(answer))
    assert [entry["decision_id"] for entry in entries] == [item.pk for item in record]
    assert entries[-1]["refusal"] == "permission_denied"
    rejected = export(staff(READ), "json", record[:1], "?verdict__exact=reject", select_across="1")
    assert [entry["note"] for entry in json.loads(text_of(rejected))] == [FORMULA]


@pytest.mark.parametrize("permissions", [(), (VIEW, DECIDE)], ids=["none", "decides"])
def test_who_may_not_view_the_record_gets_no_file(record: list[ApprovalDecision], permissions: tuple[str, ...]) -> None:
    for kind in ("csv", "json"):
        assert export(staff(*permissions), kind, record).status_code == 403
    assert list_url(ApprovalDecision) == LIST


@pytest.mark.django_db(transaction=True)
async def test_a_server_that_waits_for_many_sends_it_as_well(async_client: AsyncClient) -> None:
    def prepare() -> Any:
        runtime.reject(make_approval().pk, make_user("judge", permissions=(DECIDE,)), reason="no")
        user = make_user(permissions=(READ,), is_staff=True)
        return logged_in(user).cookies["sessionid"].value

    async_client.cookies["sessionid"] = await sync_to_async(prepare)()
    sent = {"action": "export_json", "index": "0", "_selected_action": "1", "select_across": "1"}
    answer = await async_client.post(LIST, sent)
    pieces = [piece async for piece in answer.streaming_content]
    assert [entry["note"] for entry in json.loads(b"".join(pieces))] == ["no"]
