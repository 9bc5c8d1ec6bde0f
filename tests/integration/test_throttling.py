"""Refused attempts are recorded up to a bound; what would succeed is never held up."""

from __future__ import annotations

from datetime import timedelta

import pytest

from agentcore import runtime
from agentcore.approvals import throttling
from agentcore.exceptions import AgentError, Conflict, PermissionDenied, RateLimited
from agentcore.models import ApprovalDecision, SessionEvent
from agentcore.testing import assert_invariants, make_approval, make_user
from tests.integration.api import DECIDE, client_of

pytestmark = pytest.mark.django_db

VIEW = "agentcore.view_toolapproval"


@pytest.fixture
def owner():
    return make_user("owner", permissions=(DECIDE,))


@pytest.fixture
def approval(owner):
    return make_approval(user=owner)


def refusal(approval, person, verb="approve", **fields):
    try:
        getattr(runtime, verb)(approval.pk, person, **fields)
    except AgentError as error:
        return error
    return None


def fill(approval, person, count, *, code="conflict", at=None):
    """Leave as much behind as so many refused attempts do."""
    ApprovalDecision.objects.bulk_create(
        ApprovalDecision(
            approval=approval,
            approval_version=1,
            verdict="approve",
            refusal=code,
            channel="api",
            actor=person,
            actor_key=str(person.pk),
            actor_name=person.get_username(),
            created_at=at or approval.requested_at,
        )
        for _ in range(count)
    )


def test_of_one_person_thirty_attempts_without_permission_are_recorded_in_a_minute(approval, clock):
    outsider = make_user("outsider")
    codes = [refusal(approval, outsider).code for _ in range(35)]
    assert codes == [*["permission_denied"] * throttling.MAX_DENIED, *["rate_limited"] * 5]
    assert ApprovalDecision.objects.count() == throttling.MAX_DENIED == 30
    clock.advance(timedelta(seconds=61))
    assert isinstance(refusal(approval, outsider), PermissionDenied)
    assert ApprovalDecision.objects.count() == 31


def test_the_limit_says_when_to_come_again(approval, clock):
    outsider = make_user("outsider")
    fill(approval, outsider, 30, code="permission_denied", at=clock.now())
    clock.advance(timedelta(seconds=20))
    waits = refusal(approval, outsider).details["retry_after"]
    assert 35 < waits <= 40


def test_of_all_refusals_three_hundred_are_recorded_in_a_minute(approval, clock):
    reviewer = make_user("reviewer", permissions=(DECIDE,))
    fill(approval, reviewer, 299, at=clock.now())
    assert isinstance(refusal(approval, reviewer, version=9), Conflict)
    before = list(SessionEvent.objects.values())
    assert isinstance(refusal(approval, reviewer, version=9), RateLimited)
    assert ApprovalDecision.objects.count() == throttling.MAX_REFUSED == 300
    assert list(SessionEvent.objects.values()) == before
    assert_invariants()


def test_thirty_denied_attempts_do_not_hold_up_other_refusals(approval, owner, clock):
    reviewer = make_user("reviewer", permissions=(DECIDE,))
    fill(approval, reviewer, 30, code="permission_denied", at=clock.now())
    assert isinstance(refusal(approval, reviewer, version=9), Conflict)


def test_a_decision_that_succeeds_is_never_held_up(approval, clock):
    reviewer = make_user("reviewer", permissions=(DECIDE,))
    fill(approval, reviewer, 300, at=clock.now())
    assert runtime.approve(approval.pk, reviewer).status == "approved"
    assert runtime.approve(approval.pk, reviewer).status == "approved"
    assert isinstance(refusal(approval, reviewer, "reject"), RateLimited)


def test_each_person_has_a_limit_of_their_own(approval, clock):
    outsider = make_user("outsider")
    fill(approval, outsider, 300, at=clock.now())
    assert isinstance(refusal(approval, make_user("another")), PermissionDenied)


def test_over_http_it_is_429_with_the_time_to_wait_for_who_may_see_the_request(approval, owner, clock):
    fill(approval, owner, 30, code="permission_denied", at=clock.now())
    answer = client_of(owner).post(f"/api/approvals/{approval.pk}/approve/", {})
    assert (answer.status_code, answer.json()["code"]) == (429, "rate_limited")
    assert 1 <= int(answer["Retry-After"]) <= 60
    many = client_of(owner).post("/api/approvals/decide/", {"decisions": [{"id": approval.pk, "verdict": "reject"}]})
    assert many.json()["results"][0]["error"]["code"] == "rate_limited"
    assert ApprovalDecision.objects.count() == 30


@pytest.mark.parametrize("permissions", [(), (VIEW,)])
def test_who_may_not_see_a_request_cannot_tell_by_the_limit_that_there_is_one(approval, permissions, clock):
    person = make_user("person", permissions=permissions)
    fill(approval, person, 30, code="permission_denied", at=clock.now())
    there, absent = (
        client_of(person).post(f"/api/approvals/{number}/approve/", {}) for number in (approval.pk, approval.pk + 999)
    )
    assert absent.status_code == 404
    assert there.status_code == (429 if permissions else 404)
    if not permissions:
        assert there.json() == absent.json()
        assert "Retry-After" not in there
