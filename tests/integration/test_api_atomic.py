"""A project that wraps each request in a transaction: what is refused is kept, what fails is rolled back."""

import json

import pytest
from django.db import connection, transaction

from agentcore import dispatch
from agentcore.api.serializers import turns
from agentcore.models import AgentContext, ApprovalDecision, SessionEvent, ToolApproval
from agentcore.states import ApprovalStatus, TurnState
from agentcore.testing import assert_invariants, make_approval, make_session, make_user
from tests.integration.api import DECIDE, client_of, desk_session

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _atomic_requests(monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)


@pytest.fixture
def sent(monkeypatch):
    """The turns a worker was asked for, each with the state a worker would find at that moment."""
    found = []

    def send(execution_id):
        assert not connection.in_atomic_block
        found.append(AgentContext.objects.get(execution_id=execution_id).state)

    monkeypatch.setattr(dispatch, "_send", send)
    return found


@pytest.fixture
def owner():
    return make_user("owner")


@pytest.fixture
def client():
    return client_of(make_user("reviewer", permissions=(DECIDE,)))


def test_dur_19_a_worker_is_asked_for_only_once_the_request_is_committed(owner, sent):
    make_session(user=owner, session_id="s")
    assert client_of(owner).post("/api/sessions/s/turns/", {"message": "hi"}).status_code == 202
    assert sent == [TurnState.QUEUED]


def test_dur_19_a_decision_wakes_the_turn_only_once_the_request_is_committed(owner, client, sent):
    approval = make_approval(user=owner)
    sent.clear()
    assert client.post(f"/api/approvals/{approval.pk}/approve/", {}).status_code == 200
    assert sent == [TurnState.QUEUED]


def test_dur_19_a_request_that_fails_after_queueing_leaves_nothing(owner, sent, monkeypatch):
    session = make_session(user=owner, session_id="s")
    monkeypatch.setattr(turns, "shown", lambda turn: 1 / 0)
    client = client_of(owner)
    client.raise_request_exception = False
    assert client.post("/api/sessions/s/turns/", {"message": "hi"}).status_code == 500
    assert sent == []
    assert not AgentContext.objects.exists()
    assert SessionEvent.objects.filter(session=session).count() == 1


def test_a_refused_attempt_is_kept(owner):
    approval = make_approval(user=owner)
    stranger = client_of(make_user())
    assert stranger.post(f"/api/approvals/{approval.pk}/approve/", {}).status_code == 404
    assert ApprovalDecision.objects.get(approval=approval).refusal == "permission_denied"


def test_a_request_found_expired_stays_expired(owner, client, clock):
    approval = make_approval("hurry", {"n": 1}, session=desk_session(owner), user=owner)
    clock.advance(301)
    assert client.post(f"/api/approvals/{approval.pk}/approve/", {}).status_code == 409
    assert ToolApproval.objects.get().status == ApprovalStatus.EXPIRED
    assert_invariants()


def test_a_taken_id_conflicts_and_the_connection_stays_usable(owner):
    make_session(session_id="taken")
    answer = client_of(owner).post("/api/sessions/", {"agent": "testing-agent", "session_id": "taken"})
    assert answer.status_code == 409


def test_each_of_several_decisions_has_a_transaction_of_its_own(owner, client, sent, monkeypatch):
    first, second = make_approval(user=owner), make_approval(user=owner)
    sent.clear()
    seen = []
    real = AgentContext.objects.__class__.get_queryset

    def observe(self):
        seen.append(connection.in_atomic_block)
        return real(self)

    monkeypatch.setattr(ToolApproval.objects.__class__, "get_queryset", observe)
    body = {"decisions": [{"id": first.pk, "verdict": "approve"}, {"id": second.pk, "verdict": "reject"}]}
    answer = client.post("/api/approvals/decide/", body)
    assert [item["status"] for item in answer.json()["results"]] == ["approved", "rejected"]
    assert seen[0] is False
    assert sent == [TurnState.QUEUED, TurnState.QUEUED]


def test_an_answer_to_a_turn_conflicts_as_it_does_elsewhere(owner):
    turn = make_approval(user=owner).turn
    body = json.dumps({"message": "x"})
    path = f"/api/turns/{turn.execution_id}/resume/"
    assert client_of(owner).post(path, body, content_type="application/json").status_code == 409
    assert transaction.get_autocommit()
