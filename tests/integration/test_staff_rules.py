"""Staff's stricter rules for a tool's approvals, and the rows a request is about."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model

from agentcore import ApprovalPolicy, agent, runtime, tool
from agentcore.agents.registry import registry
from agentcore.approvals import background
from agentcore.exceptions import PermissionDenied
from agentcore.models import Agent, ToolApproval, ToolOverride
from agentcore.testing import TESTING_AGENT, assert_invariants, calls, make_session, make_user, run_turns

pytestmark = pytest.mark.django_db

DECIDE = "agentcore.decide_toolapproval"
NAME = "ruled"


@pytest.fixture(autouse=True)
def ruled():
    @agent(name=NAME, model="scripted:x")
    class Ruled:
        @tool(description="Free")
        def note(self, text: str) -> str:
            return text

        @tool(description="Pay", requires_approval=True, approval=ApprovalPolicy(permission="auth.view_group"))
        def pay(self, amount: int, to: str) -> str:
            return f"paid {amount}"

        @pay.links
        def _(self, to):
            if to == "broken":
                raise RuntimeError("cannot say")
            return get_user_model().objects.filter(username=to).order_by("pk")

    yield Ruled
    registry.unregister(NAME)


def ask(scripted, *wanted, user=None):
    scripted(lambda request: calls(*wanted) if request.messages[-1].role == "user" else "Done.")
    session = make_session(NAME, user=user)
    runtime.enqueue(session.session_id, "go", user=user)
    run_turns()
    return ToolApproval.objects.filter(session=session).first()


def test_without_a_rule_the_code_decides(scripted):
    assert ask(scripted, ("note", {"text": "x"})) is None


@pytest.mark.parametrize("tool_name", ["note", "*"])
@pytest.mark.parametrize("of_agent", [True, False])
def test_staff_may_have_a_person_asked_for_a_free_tool(scripted, tool_name, of_agent):
    make_session(NAME)
    ToolOverride.objects.create(
        agent=Agent.objects.get(name=NAME) if of_agent else None, tool=tool_name, always_ask=True
    )
    asked = ask(scripted, ("note", {"text": "x"}))
    assert (asked.status, asked.reason) == ("pending", "Staff asked for it.")
    assert_invariants()


def test_the_reason_of_a_request_names_the_notes_of_the_rules_that_ask(scripted):
    ToolOverride.objects.create(tool="note", always_ask=True, note="Audit until May.")
    ToolOverride.objects.create(tool="*", always_ask=True)
    ToolOverride.objects.create(tool="note", votes=2, note="Two people.")
    asked = ask(scripted, ("note", {"text": "x"}))
    assert asked.reason == "Staff asked for it: Audit until May."


def test_a_rule_of_another_agent_or_tool_or_out_of_force_changes_nothing(scripted):
    make_session()
    other = Agent.objects.get(name=TESTING_AGENT)
    ToolOverride.objects.create(agent=other, always_ask=True)
    ToolOverride.objects.create(tool="pay", always_ask=True)
    ToolOverride.objects.create(tool="note", always_ask=True, is_active=False)
    assert ask(scripted, ("note", {"text": "x"})) is None


def test_rules_only_make_it_stricter_and_all_that_match_hold(scripted):
    ToolOverride.objects.create(tool="pay", votes=2, permission="auth.view_permission", expires_in=timedelta(days=2))
    ToolOverride.objects.create(votes=1, four_eyes=False, forbid_edit=True, expires_in=timedelta(days=9))
    asked = ask(scripted, ("pay", {"amount": 1, "to": "x"}), user=make_user("owner"))
    assert (asked.votes_needed, asked.four_eyes, asked.allow_edit) == (2, True, False)
    assert asked.permission == "auth.view_group auth.view_permission"
    assert asked.expires_at - asked.requested_at == timedelta(days=2)


def test_who_decides_has_every_permission_asked_for(scripted):
    ToolOverride.objects.create(tool="pay", permission="auth.view_permission")
    asked = ask(scripted, ("pay", {"amount": 1, "to": "x"}))
    half = make_user("half", permissions=(DECIDE, "auth.view_group"))
    whole = make_user("whole", permissions=(DECIDE, "auth.view_group", "auth.view_permission"))
    assert list(runtime.pending_approvals(half)) == []
    with pytest.raises(PermissionDenied):
        runtime.approve(asked.pk, half)
    assert list(runtime.pending_approvals(whole)) == [asked]
    assert runtime.approve(asked.pk, whole).status == "approved"


def test_a_request_is_linked_to_the_rows_its_tool_names(scripted):
    acme = make_user("acme")
    asked = ask(scripted, ("pay", {"amount": 1, "to": "acme"}))
    stranger, viewer = make_user("stranger"), make_user("viewer", permissions=("auth.view_user",))
    [seen] = background.subjects(asked, viewer)
    assert (seen.model, seen.object_key, seen.label) == (type(acme), str(acme.pk), "acme")
    [hidden] = background.subjects(asked, stranger)
    assert (hidden.kind, hidden.label) == ("user", "")


@pytest.mark.parametrize("to", ["nobody", "broken"])
def test_a_tool_that_names_no_row_blocks_nothing(scripted, to):
    asked = ask(scripted, ("pay", {"amount": 1, "to": to}))
    assert (asked.status, asked.links.count()) == ("pending", 0)


def test_an_edit_links_to_what_it_is_about(scripted):
    make_user("acme")
    other = make_user("other")
    asked = ask(scripted, ("pay", {"amount": 1, "to": "acme"}))
    reviewer = make_user("reviewer", permissions=(DECIDE, "auth.view_group"))
    runtime.approve(asked.pk, reviewer, arguments={"amount": 1, "to": "other"})
    assert [link.object_key for link in asked.links.all()] == [str(other.pk)]


def test_what_was_decided_before_is_told_to_those_who_may_know(scripted):
    reviewer = make_user("reviewer", permissions=(DECIDE, "auth.view_group"))
    first = ask(scripted, ("pay", {"amount": 1, "to": "x"}))
    runtime.reject(first.pk, reviewer, reason="not them")
    second = ask(scripted, ("pay", {"amount": 1, "to": "x"}))
    ask(scripted, ("pay", {"amount": 2, "to": "x"}))
    [told] = background.earlier(second, reviewer)
    assert (told.approval_id, told.status, told.by, told.note) == (first.pk, "rejected", "reviewer", "not them")
    assert background.earlier(second, make_user("other", permissions=(DECIDE,))) == []
    assert background.tally(second) == {"approved": 0, "rejected": 1, "responded": 0}
