"""What runs is what people were shown and voted for, to the last bit; in doubt they are asked again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from agentcore import ApprovalPolicy, agent, canonical, runtime, tool
from agentcore.agents.registry import registry
from agentcore.approvals import allowed
from agentcore.exceptions import AgentError, Conflict
from agentcore.models import AgentContext, ToolApproval, ToolCall, ToolOverride
from agentcore.testing import assert_invariants, calls, make_approval, make_session, make_user, run_turns
from agentcore.testing.agents import ledger

pytestmark = pytest.mark.django_db

DECIDE = "agentcore.decide_toolapproval"
NAME = "binding"
runs: list[object] = []


@pytest.fixture(autouse=True)
def _agent():
    runs.clear()

    @agent(name=NAME, model="scripted:x")
    class Binding:
        @tool(description="Set", requires_approval=True)
        def put(self, items: list) -> str:
            runs.append(items)
            return "put"

        @tool(description="Wire", requires_approval=True, approval=ApprovalPolicy(votes=2))
        def wire(self, amount: int) -> str:
            runs.append(amount)
            return "wired"

    yield
    registry.unregister(NAME)


@pytest.fixture
def reviewer():
    return make_user("reviewer", permissions=(DECIDE,))


def ask(scripted, *wanted):
    scripted(lambda request: calls(*wanted) if request.messages[-1].role == "user" else "Done.")
    session = make_session(NAME)
    runtime.enqueue(session.session_id, "go")
    run_turns()
    return ToolApproval.objects.pending().get(session=session)


@pytest.mark.parametrize(("shown", "meant"), [(True, 1), (1, True), (False, 0), (0, False)])
def test_apr_02_true_and_one_are_two_values(scripted, reviewer, shown, meant):
    asked = ask(scripted, ("put", {"items": [{"all": shown}]}))
    decided = runtime.approve(asked.pk, reviewer, arguments={"items": [{"all": meant}]})
    assert decided.version == 2
    run_turns()
    [[item]] = runs
    assert item["all"] is meant if isinstance(meant, bool) else (item["all"] == meant and item["all"] is not True)


def test_apr_03_a_boolean_is_no_number_also_where_they_are_equal(reviewer):
    asked = make_approval(arguments={"amount": 1, "to": "acme"})
    with pytest.raises(AgentError):
        runtime.approve(asked.pk, reviewer, arguments={"amount": True, "to": "acme"})
    asked.refresh_from_db()
    assert asked.status == "pending"


def test_a_second_answer_that_only_equals_the_first_conflicts(reviewer):
    asked = make_approval()
    runtime.respond(asked.pk, reviewer, 1)
    assert runtime.respond(asked.pk, reviewer, 1).status == "responded"
    with pytest.raises(Conflict):
        runtime.respond(asked.pk, reviewer, True)


def test_apr_01_arguments_that_were_altered_in_the_row_are_not_approved(reviewer):
    asked = make_approval(arguments={"amount": 10, "to": "acme"})
    ToolApproval.objects.filter(pk=asked.pk).update(arguments={"amount": 9000, "to": "evil"})
    with pytest.raises(Conflict, match="not those that were asked for"):
        runtime.approve(asked.pk, reviewer, version=1)
    run_turns()
    assert ledger.entries == []
    rejected = runtime.reject(asked.pk, reviewer, version=1)
    assert (rejected.status, rejected.version) == ("rejected", 1)


def test_apr_01_what_nobody_voted_for_does_not_run_and_is_asked_about_anew(scripted, reviewer):
    scripted(lambda request: "Done.")
    asked = make_approval(arguments={"amount": 10, "to": "acme"})
    runtime.approve(asked.pk, reviewer)
    evil = {"amount": 9000, "to": "evil"}
    ToolApproval.objects.filter(pk=asked.pk).update(approved_arguments=evil)
    ToolCall.objects.filter(approvals=asked).update(arguments=evil, arguments_digest=canonical.digest(evil))
    run_turns()
    assert ledger.entries == []
    anew = ToolApproval.objects.pending().get()
    assert (anew.pk != asked.pk, anew.arguments) == (True, evil)
    assert AgentContext.objects.get().state == "waiting_for_approval"


def test_a_plain_approval_after_ones_own_edit_is_another_decision(reviewer):
    asked = make_approval(arguments={"amount": 500, "to": "acme"})
    runtime.approve(asked.pk, reviewer, arguments={"amount": 50, "to": "acme"}, version=1)
    with pytest.raises(Conflict, match="already approved"):
        runtime.approve(asked.pk, reviewer, version=1)
    again = runtime.approve(asked.pk, reviewer, arguments={"amount": 50, "to": "acme"}, version=1)
    assert again.approved_arguments == {"amount": 50, "to": "acme"}


def test_apr_12_a_late_approval_of_an_old_version_is_told_that_it_expired(reviewer, clock):
    asked = make_approval()
    clock.advance(8 * 86_400)
    with pytest.raises(Conflict, match="expired"):
        runtime.approve(asked.pk, reviewer, version=7)
    asked.refresh_from_db()
    assert asked.status == "expired"
    assert_invariants()


def test_apr_21_what_was_declined_after_an_edit_is_not_asked_about_again(scripted, reviewer):
    other = make_user("other", permissions=(DECIDE,))
    amounts = iter([10, 5, 10])
    scripted(lambda request: calls(("wire", {"amount": amount})) if (amount := next(amounts, 0)) else "Done.")
    session = make_session(NAME)
    runtime.enqueue(session.session_id, "go")
    run_turns()
    asked = ToolApproval.objects.get()
    runtime.approve(asked.pk, reviewer, arguments={"amount": 5})
    runtime.reject(asked.pk, other)
    run_turns()
    assert ToolApproval.objects.count() == 1
    assert runs == []
    assert [call.error["code"] for call in ToolCall.objects.order_by("pk")] == ["rejected"] * 3
    assert_invariants()


def test_many_strict_rules_at_once_still_ask(scripted, db):
    for number in range(8):
        permission = f"auth.{'x' * 80}{number}"
        ToolOverride.objects.create(tool="put", permission=permission, expires_in=timedelta(days=3_000_000))
    asked = ask(scripted, ("put", {"items": []}))
    assert len(asked.permission.split()) == 8
    assert asked.expires_at is not None or asked.status == "pending"
    assert_invariants()


def test_an_approval_that_nobody_voted_for_does_not_borrow_the_votes_of_an_earlier_one(scripted, reviewer):
    asked = ask(scripted, ("wire", {"amount": 50}))
    for person in (reviewer, make_user("second", permissions=(DECIDE,))):
        runtime.approve(asked.pk, person)
    call = ToolCall.objects.get(pk=asked.call_id)
    found = allowed.find(call)
    assert found.covers(call)
    assert found.by == ("reviewer", "second")
    later = ToolApproval.objects.get(pk=asked.pk)
    later.pk = None
    later.save(force_insert=True)
    found = allowed.find(call)
    assert not found.covers(call)
    assert found.by == ("reviewer", "second")


def test_what_was_decided_comes_back_as_it_is_stored_and_the_rest_as_it_is_now(scripted, reviewer):
    second = make_user("second", permissions=(DECIDE,))
    for decide in (
        lambda pk: runtime.approve(pk, reviewer, note="fine"),
        lambda pk: runtime.approve(pk, reviewer, arguments={"amount": 7}),
        lambda pk: [runtime.approve(pk, reviewer), runtime.approve(pk, second)][1],
        lambda pk: runtime.reject(pk, reviewer, reason="no"),
        lambda pk: runtime.respond(pk, reviewer, {"paid": [1, 2.5, None]}),
        lambda pk: [runtime.respond(pk, reviewer, "x"), runtime.respond(pk, reviewer, "x")][1],
    ):
        decided = decide(ask(scripted, ("wire", {"amount": 50})).pk)
        stored = ToolApproval.objects.get(pk=decided.pk)
        names = [field.attname for field in ToolApproval._meta.concrete_fields]
        assert {name: getattr(decided, name) for name in names} == {name: getattr(stored, name) for name in names}
        run_turns()
        assert decided.turn.state == AgentContext.objects.get(pk=stored.turn_id).state
        assert decided.call.status == ToolCall.objects.get(pk=stored.call_id).status
        runtime.cancel(decided.session.session_id) if decided.status == "pending" else None
    assert_invariants()
