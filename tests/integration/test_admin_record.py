"""What the page of one approval shows: changes by people, background, what came of the call, and what hides in it."""

import json
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth import get_user_model
from django.test import Client

from agentcore import ApprovalPolicy, agent, runtime, tool
from agentcore.admin import differences
from agentcore.agents.registry import registry
from agentcore.models import AgentContext, AgentSession, AgentStep, ApprovalDecision, ToolApproval, ToolCall
from agentcore.testing import make_approval, make_session, make_user
from tests.integration.admin_pages import (
    ADMIN_AGENT,
    DECIDE,
    TEAM,
    VIEW,
    VIEW_ALL,
    Page,
    list_url,
    logged_in,
    page_url,
    staff,
    superuser,
)

pytestmark = pytest.mark.django_db

SECRETS = {
    "url": "https://h",
    "headers": {"Authorization": "Bearer sk-123"},
    "api_key": "k-9",
    "pin": "p-4711",
    "note": "hi",
}
HIDDEN = "pay\u202egpj\u200b"
SHOWN = "pay⟨U+202E⟩gpj⟨U+200B⟩"


@pytest.fixture
def reviewer() -> Client:
    return staff(VIEW, DECIDE)


def marks(response: Any) -> int:
    return len([tag for tag, _ in Page(response).elements if tag == "mark"])


# What a person changed


def test_the_difference_is_field_by_field_and_masks_secrets() -> None:
    old = {"amount": 1, "to": {"name": "a", "password": "x"}, "lines": [1, 2], "gone": None, "same": [{"k": 1}]}
    new = {"amount": "1", "to": {"name": "b", "password": "y"}, "lines": [1], "more": True, "same": [{"k": 1}]}
    approval = ToolApproval(arguments=old, approved_arguments=new, call=ToolCall(arguments=new, proposed_arguments=old))
    found = {
        change.field: (change.proposed, change.approved, str(change.kind))
        for change in differences.of_approval(approval)
    }
    assert found == {
        "amount": ("1", "1", "changed"),
        "to.name": ("a", "b", "changed"),
        "to.password": ("********", "********", "changed"),
        "lines": ("[\n  1,\n  2\n]", "[\n  1\n]", "changed"),
        "gone": ("null", "", "removed"),
        "more": ("", "true", "added"),
    }


def test_what_was_approved_as_it_was_asked_has_no_difference(reviewer: Client) -> None:
    approval = make_approval()
    assert differences.of_approval(approval) == []
    runtime.approve(approval.pk, reviewer.user)
    approval = ToolApproval.objects.get()
    assert differences.of_approval(approval) == []
    assert "changed by a person" not in Page(reviewer.get(page_url(approval))).text.lower()


def test_the_page_shows_what_was_proposed_beside_what_was_approved(reviewer: Client) -> None:
    approval = make_approval()
    runtime.approve(approval.pk, reviewer.user, arguments={"amount": 3, "to": "acme"})
    page = Page(reviewer.get(page_url(approval)))
    assert [tag for tag, _ in page.elements if tag in ("del", "ins")] == ["del", "ins"]
    assert "Proposed by the agent" in page.text


def test_adm_05_an_edit_is_told_as_one_and_its_before_and_after_can_be_read(reviewer: Client) -> None:
    approval, plain = make_approval("fetch", SECRETS, session=make_session(ADMIN_AGENT)), make_approval()
    runtime.approve(approval.pk, reviewer.user, arguments={**SECRETS, "note": "hello", "pin": "********"})
    runtime.approve(plain.pk, reviewer.user)
    auditor = staff("agentcore.view_approvaldecision", VIEW)
    entry, other = ApprovalDecision.objects.order_by("pk")
    assert "Changed and approved" in Page(reviewer.get(page_url(approval))).text
    assert "Changed and approved" not in Page(reviewer.get(page_url(plain))).text
    assert Page(auditor.get(list_url(ApprovalDecision))).text.count("Changed and approved") == 1
    page = Page(auditor.get(page_url(entry)))
    for words in ("Changed and approved", "What was changed", '"note": "hi"', '"note": "hello"', entry.proposed_digest):
        assert words in page.text
    assert [tag for tag, _ in page.elements if tag in ("del", "ins")] == ["del", "ins"]
    assert not [secret for secret in ("sk-123", "k-9", "p-4711") if secret in page.text]
    assert "What was changed" not in Page(auditor.get(page_url(other))).text
    blind = Page(staff("agentcore.view_approvaldecision").get(page_url(entry))).text
    assert ("Changed and approved" in blind, "hello" in blind) == (True, False)


# What it is about


@pytest.fixture
def linked() -> Any:
    """An agent whose tool names a user as what its call is about."""

    @agent(name="linked", model="scripted:any")
    class Linked:
        @tool(requires_approval=True)
        def close(self, name: str) -> str:
            """Close an account"""
            return "closed"

        @close.links
        def _(self, name: str) -> Any:
            return get_user_model().objects.filter(username=name).first()

    yield
    registry.unregister("linked")


def test_what_the_call_is_about_is_linked_for_who_may_view_it(linked: Any) -> None:
    account = make_user("account-7")
    approval = make_approval("close", {"name": "account-7"}, session=make_session("linked"))
    AgentStep.objects.filter(pk=approval.call.step_id).update(message={"content": "I close it as you asked."})
    address = f"/admin/auth/user/{account.pk}/change/"
    page = Page(staff(VIEW, DECIDE, "auth.view_user").get(page_url(approval)))
    assert address in page.links
    for words in ("user: account-7", "I close it as you asked.", "hello"):
        assert words in page.text
    page = Page(staff(VIEW, DECIDE).get(page_url(approval)))
    assert address not in page.links
    assert "user: you may not see it" in page.text
    assert "account-7" not in page.text.replace('"account-7"', "")


def test_earlier_decisions_and_the_tally_are_shown_to_who_may_know(reviewer: Client) -> None:
    fields: dict[str, Any] = {"tool": "team_pay", "arguments": {"amount": 5}}
    earlier = make_approval(session=make_session(ADMIN_AGENT), **fields)
    runtime.reject(earlier.pk, make_user("judge", permissions=(DECIDE, TEAM)), reason="Not for them.")
    now = make_approval(session=make_session(ADMIN_AGENT), **fields)
    other = make_approval("team_pay", {"amount": 6}, session=make_session(ADMIN_AGENT))
    page = Page(reviewer.get(page_url(now)))
    assert page_url(earlier) in page.links
    for words in ("Rejected", "by judge", "Not for them.", "0 approved, 1 rejected, 0 answered"):
        assert words in page.text
    assert page_url(earlier) not in Page(reviewer.get(page_url(other))).links
    assert "Not for them." not in Page(staff(DECIDE).get(page_url(make_approval()))).text


# What came of it


def test_what_came_of_the_call_is_shown_and_masked(reviewer: Client, scripted: Any, run_turns: Any) -> None:
    arguments = {"url": "https://h", "headers": {"Authorization": "Bearer sk-123"}, "api_key": "k-9", "pin": "p-4711"}
    approval = make_approval("fetch", {**arguments, "note": "hi"}, session=make_session(ADMIN_AGENT))
    assert "What came of it" not in Page(reviewer.get(page_url(approval))).text
    runtime.approve(approval.pk, reviewer.user)
    scripted(["Done."])
    run_turns()
    page = Page(reviewer.get(page_url(approval)))
    for words in ("What came of it", "Completed, attempts: 1", '"fetched": "https://h"', "********"):
        assert words in page.text
    assert not [secret for secret in ("sk-123", "k-9", "p-4711", "t-77") if secret in page.text]


def test_why_a_call_failed_and_what_came_late_are_shown(reviewer: Client) -> None:
    approval = make_approval()
    error = {"code": "tool_error", "message": "No such account.", "details": {"password": "p-1"}}
    ToolCall.objects.update(status="failed", attempts=1, error=error, late_result={"paid": "late", "token": "t-1"})
    text = Page(reviewer.get(page_url(approval))).text
    assert "No such account." in text
    assert '"paid": "late"' in text
    assert "p-1" not in text
    assert "t-1" not in text


# Where it comes from, and its history


def test_the_list_leads_to_session_turn_and_call_for_who_may_see_them() -> None:
    approval = make_approval()
    addresses = {page_url(record) for record in (approval.session, approval.turn, approval.call)}
    assert addresses <= set(Page(staff(*VIEW_ALL, DECIDE).get(list_url(ToolApproval))).pages)
    assert not addresses & set(Page(staff(VIEW, DECIDE).get(list_url(ToolApproval))).pages)


def test_approvals_have_djangos_history_and_other_records_none(reviewer: Client) -> None:
    approval = make_approval()
    LogEntry.objects.log_actions(
        reviewer.user.pk, [approval], CHANGE, change_message=f"Approved: {HIDDEN}", single_object=True
    )
    client = superuser()
    assert page_url(approval, "history") in Page(client.get(page_url(approval))).links
    shown = Page(client.get(page_url(approval, "history"))).text
    assert f"Approved: {SHOWN}" in shown
    for record in (approval.session, approval.turn, approval.call):
        assert page_url(record, "history") not in Page(client.get(page_url(record))).links


# Hidden characters


def test_apr_30_hidden_characters_are_marked_wherever_text_of_others_is_shown(reviewer: Client) -> None:
    approval = make_approval(arguments={"amount": 1, "to": HIDDEN})
    both = {HIDDEN: HIDDEN}
    ToolApproval.objects.update(tool=HIDDEN, preview=HIDDEN, reason=HIDDEN, requester_key="1", requester_name=HIDDEN)
    ToolCall.objects.update(tool=HIDDEN, result=both, error=both, provider_call_id=HIDDEN, status="completed")
    AgentSession.objects.update(title=HIDDEN, metadata=both, user_name=HIDDEN, user_key="1")
    AgentContext.objects.update(
        response=HIDDEN, question=HIDDEN, idempotency_key=HIDDEN, user_name=HIDDEN, user_key="1"
    )
    AgentStep.objects.update(message={"content": HIDDEN}, model=HIDDEN)
    runtime.reject(make_approval().pk, reviewer.user, reason=HIDDEN)
    ApprovalDecision.objects.update(actor_name=HIDDEN)
    client = superuser()
    records = [
        approval,
        approval.session,
        approval.turn,
        approval.call,
        approval.call.step,
        ApprovalDecision.objects.get(),
    ]
    pages = [client.get(page_url(record)) for record in records]
    pages += [client.get(list_url(type(record))) for record in records if not isinstance(record, AgentContext)]
    pages += [client.get(page_url(approval, way)) for way in ("approve", "edit", "respond", "reject", "history")]
    for page in pages:
        assert page.status_code == 200
        text = Page(page).text
        assert "\u202e" not in text, page.request["PATH_INFO"]
        assert "\u200b" not in text, page.request["PATH_INFO"]
        assert marks(page) or SHOWN in text, page.request["PATH_INFO"]


def test_a_user_with_a_hidden_name_is_shown_with_it_in_reports() -> None:
    approval = make_approval()
    other = make_user("a\u202eb", permissions=(DECIDE,))
    runtime.reject(approval.pk, other)
    client = logged_in(make_user(is_staff=True, is_superuser=True))
    sent = {"post": "yes", f"version_{approval.pk}": "1"}
    told = Page(client.post(page_url(approval, "approve"), sent, follow=True)).messages
    assert "decided by a⟨U+202E⟩b (reject)" in told[0]


def test_apr_34_what_is_typed_is_json_that_reads_back(reviewer: Client) -> None:
    approval = make_approval(arguments={"amount": 1, "to": 'ü "quoted" \\ \u2028 🙂'})
    text = Page(reviewer.get(page_url(approval, "edit"))).areas["arguments"]
    assert json.loads(text) == {"amount": 1, "to": 'ü "quoted" \\ \u2028 🙂'}
    assert "ü" in text


def test_a_policy_is_shown_whole(reviewer: Client) -> None:
    @agent(name="strict", model="scripted:any")
    class Strict:
        @tool(requires_approval=True, approval=ApprovalPolicy(votes=2, permission=TEAM))
        def pay(self, amount: int) -> str:
            """Pay"""
            return "paid"

    try:
        approval = make_approval("pay", {"amount": 1}, session=make_session("strict"))
        text = Page(reviewer.get(page_url(approval))).text
        assert TEAM in text
        assert "0 of 2" in text
    finally:
        registry.unregister("strict")
