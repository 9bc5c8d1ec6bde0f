"""Several decisions in one request: each by itself, in their order."""

import json

import pytest

from agentcore.models import ApprovalDecision, ToolApproval
from agentcore.testing import assert_invariants, make_approval, make_user
from tests.integration.api import DECIDE, client_of, desk_session

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner():
    return make_user("owner")


@pytest.fixture
def client():
    return client_of(make_user("reviewer", permissions=(DECIDE,)))


def decide(client, *decisions):
    return client.post("/api/approvals/decide/", {"decisions": list(decisions)})


def test_each_decision_is_answered_in_the_order_they_came(client, owner):
    first, second, third, foreign = (
        make_approval(user=owner),
        make_approval(user=owner),
        make_approval(user=owner),
        make_approval("grant", {"group": "x"}, session=desk_session(owner), user=owner),
    )
    answer = decide(
        client,
        {"id": third.pk, "verdict": "reject", "reason": "no"},
        {"id": foreign.pk, "verdict": "approve"},
        {"id": first.pk, "verdict": "approve", "version": 7},
        {"id": first.pk, "verdict": "approve", "arguments": {"amount": "x", "to": "y"}},
        {"id": first.pk, "verdict": "approve", "note": "ok", "version": 1},
        {"id": 999_999, "verdict": "approve"},
        {"id": second.pk, "verdict": "respond", "result": None},
        {"id": second.pk, "verdict": "reject"},
        {"id": -5, "verdict": "approve"},
        {"id": 10**30, "verdict": "approve"},
    )
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [item["id"] for item in results] == [
        third.pk, foreign.pk, first.pk, first.pk, first.pk, 999_999, second.pk, second.pk, -5, 10**30
    ]  # fmt: skip
    assert [item.get("status") or item["error"]["code"] for item in results] == [
        "rejected",
        "not_found",
        "conflict",
        "invalid_input",
        "approved",
        "not_found",
        "responded",
        "conflict",
        "not_found",
        "not_found",
    ]
    assert list(results[0]) == ["id", "status"]
    assert list(results[1]) == ["id", "error"]
    assert list(results[1]["error"]) == ["code", "message"]
    assert results[1]["error"] == results[5]["error"]
    assert_invariants()


def test_a_vote_that_is_not_the_last_one_leaves_the_request_pending(client, owner):
    approval = make_approval("wire", {"amount": 1}, session=desk_session(owner), user=owner)
    assert decide(client, {"id": approval.pk, "verdict": "approve"}).json()["results"] == [
        {"id": approval.pk, "status": "pending"}
    ]


@pytest.mark.parametrize(
    ("second", "field"),
    [
        ({"verdict": "approve"}, "decisions.1.id"),
        ({"id": "1", "verdict": "approve"}, "decisions.1.id"),
        ({"id": True, "verdict": "approve"}, "decisions.1.id"),
        ({"id": 1}, "decisions.1.verdict"),
        ({"id": 1, "verdict": "expire"}, "decisions.1.verdict"),
        ({"id": 1, "verdict": ["approve"]}, "decisions.1.verdict"),
        ({"id": 1, "verdict": "approve", "reason": "x"}, "decisions.1.reason"),
        ({"id": 1, "verdict": "reject", "note": "x"}, "decisions.1.note"),
        ({"id": 1, "verdict": "respond"}, "decisions.1.result"),
        ({"id": 1, "verdict": "approve", "arguments": None}, "decisions.1.arguments"),
        ({"id": 1, "verdict": "approve", "status": "x"}, "decisions.1.status"),
        ({"id": 1, "verdict": "approve", "note": "a\x00"}, "decisions.1.note"),
        ("approve", "decisions.1"),
    ],
)
def test_a_list_that_is_wrong_anywhere_decides_nothing(client, owner, second, field):
    approval = make_approval(user=owner)
    answer = decide(client, {"id": approval.pk, "verdict": "approve"}, second)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")
    assert answer.json()["details"]["errors"][0]["field"] == field
    assert ToolApproval.objects.get().status == "pending"
    assert not ApprovalDecision.objects.exists()


@pytest.mark.parametrize(
    "body", [{}, [], {"decisions": {}}, {"decisions": None}, {"decisions": "x"}, {"decisions": [], "all": True}]
)
def test_a_body_of_another_shape_is_invalid(client, body):
    answer = client.post("/api/approvals/decide/", json.dumps(body), content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")


def test_more_than_two_hundred_decisions_are_refused(client):
    answer = decide(client, *[{"id": 1, "verdict": "approve"}] * 201)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")


def test_no_decisions_are_no_results(client):
    assert decide(client).json() == {"results": []}
