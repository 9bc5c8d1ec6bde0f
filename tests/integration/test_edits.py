"""Edits of a request, and decisions that are made again."""

from datetime import timedelta

import pytest

from agentcore import ApprovalPolicy, agent, runtime, tool
from agentcore.agents.registry import registry
from agentcore.exceptions import Conflict, InvalidInput, NotFound
from agentcore.models import SessionEvent, ToolApproval
from agentcore.testing import calls, make_user
from agentcore.testing.agents import ledger

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _clean_ledger():
    ledger.clear()


@pytest.fixture
def reviewers():
    permission = ("agentcore.decide_toolapproval",)
    return make_user("first", permissions=permission), make_user("second", permissions=permission)


@pytest.fixture
def two_votes(scripted):
    """A pending request on which two people must agree."""

    @agent(name="two-votes", model="scripted:x")
    class TwoVotes:
        @tool(
            description="Pay",
            requires_approval=True,
            approval=ApprovalPolicy(votes=2, expires_in=timedelta(days=1)),
        )
        def pay(self, amount: int, to: str) -> str:
            ledger.write("pay", amount, to)
            return "paid"

        @pay.preview
        def _(self, amount, to):
            return f"PAYS {amount} TO {to}"

    scripted([calls(("pay", {"amount": 1, "to": "acme"})), "done"])
    runtime.execute("two-votes", "pay", user=make_user("owner"))
    yield ToolApproval.objects.get()
    registry.unregister("two-votes")


@pytest.fixture
def one_vote(scripted):
    scripted([calls(("pay", {"amount": 5, "to": "acme"})), "done"])
    runtime.execute("testing-agent", "pay", user=make_user("owner"))
    return ToolApproval.objects.get()


def test_an_edit_is_previewed_again_for_those_who_still_must_agree(two_votes, reviewers, run_turns, assert_invariants):
    first, second = reviewers
    edited = runtime.approve(two_votes.pk, first, arguments={"amount": 9000, "to": "acme"})
    assert (edited.status, edited.version, edited.preview) == ("pending", 2, "PAYS 9000 TO acme")
    with pytest.raises(Conflict, match="look again"):
        runtime.approve(two_votes.pk, second, version=1)
    runtime.approve(two_votes.pk, second, version=2)
    run_turns()
    assert ledger.entries == [("pay", 9000, "acme")]
    assert_invariants()


def test_the_same_person_may_edit_again_while_it_is_pending(two_votes, reviewers, run_turns):
    first, second = reviewers
    runtime.approve(two_votes.pk, first)
    again = runtime.approve(two_votes.pk, first, arguments={"amount": 6, "to": "acme"})
    assert (again.version, again.arguments["amount"], again.status) == (2, 6, "pending")
    more = runtime.approve(two_votes.pk, first, arguments={"amount": 7, "to": "acme"})
    assert (more.version, more.arguments["amount"], more.status) == (3, 7, "pending")
    runtime.approve(two_votes.pk, second)
    run_turns()
    assert ledger.entries == [("pay", 7, "acme")]


def test_repeating_a_vote_does_not_count_twice(two_votes, reviewers):
    first, _ = reviewers
    runtime.approve(two_votes.pk, first)
    assert runtime.approve(two_votes.pk, first).status == "pending"


def test_an_edit_makes_a_new_version_where_one_vote_decides(one_vote, reviewers, run_turns):
    decided = runtime.approve(one_vote.pk, reviewers[0], arguments={"amount": 4, "to": "acme"})
    assert (decided.version, decided.arguments["amount"], decided.approved_arguments["amount"]) == (2, 5, 4)
    assert decided.preview == "Pays 4 to acme"
    assert SessionEvent.objects.filter(type="tool.approval.changed").count() == 1
    run_turns()
    assert ledger.entries == [("pay", 4, "acme")]


def test_the_same_edit_again_is_answered_and_another_one_conflicts(one_vote, reviewers):
    edit = {"amount": 4, "to": "acme"}
    runtime.approve(one_vote.pk, reviewers[0], arguments=edit)
    assert runtime.approve(one_vote.pk, reviewers[0], arguments=edit).status == "approved"
    assert runtime.approve(one_vote.pk, reviewers[0]).status == "approved"
    with pytest.raises(Conflict, match="already approved"):
        runtime.approve(one_vote.pk, reviewers[0], arguments={"amount": 6000, "to": "mallory"})


def test_another_answer_in_its_place_conflicts(one_vote, reviewers):
    runtime.respond(one_vote.pk, reviewers[0], {"paid": 5})
    assert runtime.respond(one_vote.pk, reviewers[0], {"paid": 5}).status == "responded"
    with pytest.raises(Conflict, match="already responded"):
        runtime.respond(one_vote.pk, reviewers[0], {"paid": 6})


@pytest.mark.parametrize("by", [None, 5, "first", object()])
def test_who_decides_must_be_a_stored_user(one_vote, by):
    with pytest.raises(InvalidInput, match="stored user"):
        runtime.approve(one_vote.pk, by)


@pytest.mark.parametrize("approval_id", [True, 1.5, None, "one", -1, 2**70])
def test_what_is_no_approvals_id_is_not_found(one_vote, reviewers, approval_id):
    with pytest.raises(NotFound):
        runtime.approve(approval_id, reviewers[0])
