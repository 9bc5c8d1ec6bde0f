"""Approvals over HTTP: the queue, one approval, and the decisions on it."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection
from rest_framework.test import APIClient

from agentcore import runtime
from agentcore.api.serializers.approvals import ApprovalSerializer
from agentcore.approvals import history
from agentcore.models import ApprovalDecision, SessionEvent, ToolApproval
from agentcore.states import ApprovalStatus, Channel, TurnState
from agentcore.testing import assert_invariants, make_approval, make_session, make_turn, make_user, run_turns
from agentcore.testing.agents import ledger
from tests.integration.api import DECIDE, browser_of, client_of, desk_session, queries_of, with_csrf

pytestmark = pytest.mark.django_db

FIELDS = [
    "id",
    "kind",
    "execution_id",
    "session_id",
    "agent",
    "revision",
    "call_id",
    "tool",
    "arguments",
    "arguments_digest",
    "preview",
    "status",
    "version",
    "requested_by",
    "votes",
    "decisions",
    "requested_at",
    "expires_at",
    "decided_at",
    "approved_arguments",
    "late_result",
]
DECISIONS = {"approve": {}, "reject": {"reason": "no"}, "respond": {"result": "mine"}}


@pytest.fixture(autouse=True)
def _clean_ledger():
    ledger.clear()


@pytest.fixture
def owner():
    return make_user("owner")


@pytest.fixture
def reviewer():
    return make_user("reviewer", permissions=(DECIDE,))


@pytest.fixture
def client(reviewer):
    return client_of(reviewer)


@pytest.fixture
def approval(owner):
    return make_approval(user=owner)


def decide(client, approval, verb="approve", body=None):
    return client.post(f"/api/approvals/{approval.pk}/{verb}/", DECISIONS[verb] if body is None else body)


def status_of(approval):
    return ToolApproval.objects.get(pk=approval.pk).status


def test_an_approval_is_shown_with_all_that_a_reviewer_needs(client, approval):
    answer = client.get(f"/api/approvals/{approval.pk}/")
    assert answer.status_code == 200
    assert list(answer.json()) == FIELDS
    assert answer.json() == {
        "id": approval.pk,
        "kind": "call",
        "execution_id": str(approval.turn.execution_id),
        "session_id": approval.session.session_id,
        "agent": approval.agent.name,
        "revision": {"number": 1, "hash": approval.turn.revision.hash},
        "call_id": approval.call.call_id,
        "tool": "pay",
        "arguments": {"amount": 10, "to": "acme"},
        "arguments_digest": approval.arguments_digest,
        "preview": "Pays 10 to acme",
        "status": "pending",
        "version": 1,
        "requested_by": "owner",
        "votes": {"needed": 1, "approve": 0},
        "decisions": [],
        "requested_at": answer.json()["requested_at"],
        "expires_at": answer.json()["expires_at"],
        "decided_at": None,
        "approved_arguments": None,
        "late_result": None,
    }


def test_the_description_names_the_fields_that_are_shown():
    assert list(ApprovalSerializer().fields) == [*FIELDS, "cut"]


def test_a_result_too_large_is_413(client, approval, settings):
    settings.AGENTCORE = {**settings.AGENTCORE, "MAX_ARGUMENT_BYTES": 100}
    answer = decide(client, approval, "respond", {"result": "x" * 100})
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert_untouched(approval)


def test_approving_answers_with_the_approval_and_queues_the_turn(client, approval, scripted):
    answer = decide(client, approval, body={"note": "fine", "version": 1})
    assert answer.status_code == 200
    assert list(answer.json()) == FIELDS
    assert answer.json()["status"] == "approved"
    assert answer.json()["approved_arguments"] == {"amount": 10, "to": "acme"}
    assert answer.json()["votes"] == {"needed": 1, "approve": 1}
    [decision] = answer.json()["decisions"]
    assert decision == {"by": "reviewer", "verdict": "approve", "note": "fine", "at": decision["at"]}
    assert ApprovalDecision.objects.get().channel == Channel.API
    assert ledger.entries == []
    scripted(["Paid."])
    run_turns()
    assert ledger.entries == [("pay", 10, "acme")]
    assert_invariants()


def test_rejecting_tells_the_model_the_reason(client, approval, scripted):
    answer = decide(client, approval, "reject", {"reason": "too much"})
    assert (answer.status_code, answer.json()["status"]) == (200, "rejected")
    assert answer.json()["decisions"][0]["note"] == "too much"
    provider = scripted(["Understood."])
    run_turns()
    assert "too much" in provider.requests[0].messages[-1].content
    assert ledger.entries == []
    assert_invariants()


@pytest.mark.parametrize("result", [{"paid": "by hand"}, "done", None, [], 0, False])
def test_responding_gives_the_model_any_result_without_running_the_tool(client, approval, scripted, result):
    answer = decide(client, approval, "respond", {"result": result, "note": "by phone"})
    assert (answer.status_code, answer.json()["status"]) == (200, "responded")
    scripted(["Thanks."])
    run_turns()
    approval.call.refresh_from_db()
    assert (approval.call.status, approval.call.result) == ("completed", result)
    assert ledger.entries == []


def test_edited_arguments_replace_the_whole_object_and_are_what_runs(client, approval, scripted):
    answer = decide(client, approval, body={"arguments": {"amount": 5, "to": "bolt"}})
    assert answer.json()["approved_arguments"] == {"amount": 5, "to": "bolt"}
    assert answer.json()["arguments"] == {"amount": 10, "to": "acme"}
    scripted(["Paid."])
    run_turns()
    assert ledger.entries == [("pay", 5, "bolt")]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        None,
        "x",
        {},
        {"amount": 5},
        {"amount": "ten", "to": "acme"},
        {"amount": "10", "to": "acme"},
        {"amount": -1, "to": "acme"},
        {"amount": True, "to": "acme"},
        {"amount": 5, "to": "acme", "admin": True},
        {"amount": 5, "to": "a\x00b"},
        {"amount": 5, "to": "a\ud83d"},
    ],
)
def test_apr_03_a_bad_edit_is_refused_and_the_request_stays(client, approval, arguments):
    body = json.dumps({"arguments": arguments})
    answer = client.post(f"/api/approvals/{approval.pk}/approve/", body, content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")
    assert answer.json()["details"]["errors"]
    assert_untouched(approval)


def test_apr_03_what_is_no_json_is_refused_and_the_request_stays(client, approval):
    for body in ('{"arguments": {amount: 5}}', '{"arguments": {"amount": NaN, "to": "a"}}', "{", "\xff"):
        answer = client.post(f"/api/approvals/{approval.pk}/approve/", body, content_type="application/json")
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")
    assert_untouched(approval)


def assert_untouched(approval):
    row = ToolApproval.objects.get(pk=approval.pk)
    assert (row.status, row.version) == (ApprovalStatus.PENDING, 1)
    assert (row.arguments, row.approved_arguments) == ({"amount": 10, "to": "acme"}, None)
    assert row.turn.state == TurnState.WAITING_FOR_APPROVAL
    assert run_turns() == 0
    assert ledger.entries == []
    assert_invariants()


def test_an_edit_where_none_is_allowed_conflicts(client, owner):
    approval = make_approval("stamp", {"page": 1}, session=desk_session(owner), user=owner)
    answer = decide(client, approval, body={"arguments": {"page": 2}})
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert status_of(approval) == ApprovalStatus.PENDING


@pytest.mark.parametrize(
    ("verb", "body", "field"),
    [
        ("approve", {"reason": "x"}, "reason"),
        ("approve", {"status": "approved"}, "status"),
        ("approve", {"note": 5}, "note"),
        ("approve", {"note": "a\x00"}, "note"),
        ("approve", {"note": "x" * 10_001}, "note"),
        ("approve", {"version": "1"}, "version"),
        ("approve", {"version": 0}, "version"),
        ("approve", {"version": True}, "version"),
        ("approve", {"version": 1.0}, "version"),
        ("approve", {"version": None}, "version"),
        ("reject", {"note": "x"}, "note"),
        ("reject", {"reason": ["x"]}, "reason"),
        ("reject", {"reason": "a\x00"}, "reason"),
        ("reject", {"arguments": {}}, "arguments"),
        ("respond", {}, "result"),
        ("respond", {"result": 1, "arguments": {}}, "arguments"),
        ("respond", {"result": "a\x00"}, "result"),
        ("respond", {"result": 1, "approved_by": 1}, "approved_by"),
    ],
)
def test_a_bad_field_is_refused_by_name_and_decides_nothing(client, approval, verb, body, field):
    answer = decide(client, approval, verb, body)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")
    assert answer.json()["details"]["errors"][0]["field"] == field
    assert_untouched(approval)
    assert not ApprovalDecision.objects.exists()


def test_apr_04_a_decision_on_a_page_that_is_no_longer_true_conflicts(owner):
    approval = make_approval("wire", {"amount": 10}, session=desk_session(owner), user=owner)
    first, second = (client_of(make_user(permissions=(DECIDE,))) for _ in range(2))
    edited = decide(second, approval, body={"arguments": {"amount": 99}, "version": 1})
    assert (edited.status_code, edited.json()["status"], edited.json()["version"]) == (200, "pending", 2)
    stale = decide(first, approval, body={"version": 1})
    assert (stale.status_code, stale.json()["code"]) == (409, "conflict")
    assert stale.json()["details"] == {"version": 2, "seen": 1}
    assert status_of(approval) == ApprovalStatus.PENDING
    fresh = decide(first, approval, body={"version": 2})
    assert (fresh.json()["status"], fresh.json()["approved_arguments"]) == ("approved", {"amount": 99})


def test_votes_on_an_earlier_version_are_void(owner):
    approval = make_approval("wire", {"amount": 10}, session=desk_session(owner), user=owner)
    first, second = (client_of(make_user(permissions=(DECIDE,))) for _ in range(2))
    assert decide(first, approval).json()["votes"] == {"needed": 2, "approve": 1}
    answer = decide(second, approval, body={"arguments": {"amount": 11}}).json()
    assert (answer["status"], answer["votes"]) == ("pending", {"needed": 2, "approve": 1})
    assert len(answer["decisions"]) == 1
    assert decide(first, approval).json()["status"] == "approved"


def test_the_same_verdict_by_the_same_person_again_is_answered_with_what_is_stored(client, approval):
    first, again = decide(client, approval), decide(client, approval)
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json() == again.json()
    assert ApprovalDecision.objects.count() == 1


def test_any_other_second_decision_conflicts_and_says_who_decided_what(client, approval):
    decide(client, approval)
    other = client_of(make_user(permissions=(DECIDE,)))
    for answer in (decide(client, approval, "reject"), decide(other, approval), decide(other, approval, "respond")):
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        assert answer.json()["details"]["status"] == "approved"
        assert answer.json()["details"]["decided_by"] == [{"by": "reviewer", "verdict": "approve"}]
        assert "reviewer" in answer.json()["message"]
    assert status_of(approval) == ApprovalStatus.APPROVED


@pytest.mark.django_db(transaction=True)
def test_apr_05_of_two_reviewers_at_once_one_decides_and_the_tool_runs_once(owner, scripted):
    approval = make_approval(user=owner)
    clients = [client_of(make_user(permissions=(DECIDE,))) for _ in range(2)]

    def send(client):
        try:
            return decide(client, approval)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(send, clients * 2))
    codes = [answer.status_code for answer in answers]
    # Each sends twice: the one who decided is told so both times.
    assert sorted(codes) == [200, 200, 409, 409]
    assert codes[:2] == codes[2:]
    assert ApprovalDecision.objects.exclude(counted_key=None).count() == 1
    assert SessionEvent.objects.filter(type="turn.resumed").count() == 1
    scripted(["Paid."])
    run_turns()
    assert ledger.entries == [("pay", 10, "acme")]
    assert_invariants()


def test_an_expired_request_conflicts_and_stays_expired(client, owner, clock):
    approval = make_approval("hurry", {"n": 1}, session=desk_session(owner), user=owner)
    clock.advance(301)
    answer = decide(client, approval)
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert status_of(approval) == ApprovalStatus.EXPIRED
    shown = client.get(f"/api/approvals/{approval.pk}/").json()
    assert [(item["by"], item["verdict"]) for item in shown["decisions"]] == [(None, "expire")]


def everybody(owner):
    return {
        "no permission": client_of(make_user()),
        "the owner": client_of(owner),
        "staff": client_of(make_user(is_staff=True)),
        "may change": client_of(make_user(is_staff=True, permissions=("agentcore.change_toolapproval",))),
        "sees sessions": client_of(make_user(permissions=("agentcore.view_agentsession",))),
        "only the tool's permission": client_of(make_user(permissions=("auth.add_group",))),
        "another tool's reviewer": client_of(make_user(permissions=(DECIDE,))),
    }


@pytest.mark.parametrize("verb", DECISIONS)
def test_apr_25_who_may_not_decide_is_told_there_is_nothing_and_the_attempt_is_kept(owner, verb):
    approval = make_approval("grant", {"group": "staff"}, session=desk_session(owner), user=owner)
    for who, client in everybody(owner).items():
        foreign, absent = decide(client, approval, verb), client.post("/api/approvals/999999/approve/", {})
        assert (who, foreign.status_code) == (who, 404)
        assert foreign.content == absent.content
        assert client.get(f"/api/approvals/{approval.pk}/").content == absent.content
        assert client.get("/api/approvals/").json()["results"] == []
        for method in (client.put, client.patch):
            assert method(f"/api/approvals/{approval.pk}/", {"status": "approved"}).status_code == 405
    assert status_of(approval) == ApprovalStatus.PENDING
    kept = ApprovalDecision.objects.filter(approval=approval)
    assert kept.count() == len(everybody(make_user()))
    assert {(item.refusal, item.counted_key, item.channel) for item in kept} == {("permission_denied", None, "api")}
    assert ledger.entries == []


def test_apr_25_nobody_decides_without_logging_in(client, approval):
    anonymous = APIClient()
    for verb in DECISIONS:
        answer = decide(anonymous, approval, verb)
        assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated")
    body = {"decisions": [{"id": approval.pk, "verdict": "approve"}]}
    assert anonymous.post("/api/approvals/decide/", body).status_code == 401
    assert_untouched(approval)


def test_apr_25_who_is_not_active_any_more_decides_nothing(client, reviewer, approval):
    reviewer.is_active = False
    reviewer.save()
    assert decide(client, approval).status_code == 401
    assert_untouched(approval)


@pytest.mark.parametrize("extra", [{}, {"is_superuser": True}])
def test_apr_26_nobody_decides_on_their_own_turn(extra):
    selfish = make_user(permissions=(DECIDE,), **extra)
    approval = make_approval(user=selfish)
    client = client_of(selfish)
    for verb in DECISIONS:
        answer = decide(client, approval, verb)
        assert (answer.status_code, answer.json()["code"]) == (403, "permission_denied")
    bulk = client.post("/api/approvals/decide/", {"decisions": [{"id": approval.pk, "verdict": "approve"}]})
    assert bulk.json()["results"][0]["error"]["code"] == "permission_denied"
    assert client.get("/api/approvals/").json()["results"] == []
    assert_untouched(approval)


def test_apr_26_nobody_decides_once_the_requester_is_deleted(client, owner, approval):
    owner.delete()
    answer = decide(client, approval)
    assert (answer.status_code, answer.json()["code"]) == (403, "permission_denied")
    assert client.get(f"/api/approvals/{approval.pk}/").json()["requested_by"] == "owner"
    assert_untouched(approval)


def test_apr_26_without_four_eyes_one_s_own_request_may_be_decided():
    both = make_user("both", permissions=(DECIDE,))
    approval = make_approval("note", {"text": "x"}, session=desk_session(both), user=both)
    client = client_of(both)
    assert [item["id"] for item in client.get("/api/approvals/").json()["results"]] == [approval.pk]
    assert decide(client, approval).json()["status"] == "approved"


def test_a_request_that_was_never_anybody_s_may_be_decided_by_any_reviewer(client):
    approval = make_approval()
    assert client.get(f"/api/approvals/{approval.pk}/").json()["requested_by"] is None
    assert decide(client, approval).json()["status"] == "approved"


def test_ten_07_a_reviewer_decides_only_where_the_policy_lets_them(owner):
    approval = make_approval("grant", {"group": "x"}, session=desk_session(owner), user=owner)
    client = client_of(make_user(permissions=(DECIDE, "auth.add_group")))
    assert [item["id"] for item in client.get("/api/approvals/").json()["results"]] == [approval.pk]
    assert decide(client, approval).json()["status"] == "approved"


def test_ten_07_who_may_only_view_approvals_reads_them_and_decides_nothing(approval):
    viewer = client_of(make_user(is_staff=True, permissions=("agentcore.view_toolapproval",)))
    assert viewer.get(f"/api/approvals/{approval.pk}/").status_code == 200
    for verb in DECISIONS:
        answer = decide(viewer, approval, verb)
        assert (answer.status_code, answer.json()["code"]) == (403, "permission_denied")
    assert_untouched(approval)


def test_apr_28_neither_get_nor_head_nor_options_decides(client, reviewer, approval):
    for someone in (client, browser_of(reviewer)):
        for end in ("", "approve/", "reject/", "respond/"):
            for method in (someone.get, someone.head, someone.options):
                method(f"/api/approvals/{approval.pk}/{end}?result=1&verdict=approve")
        someone.get("/api/approvals/decide/")
    assert_untouched(approval)


def test_apr_28_a_browser_decides_with_its_csrf_token_only(reviewer, approval):
    browser = browser_of(reviewer)
    refused = decide(browser, approval)
    assert (refused.status_code, refused.json()["code"]) == (403, "permission_denied")
    bulk = {"decisions": [{"id": approval.pk, "verdict": "approve"}]}
    assert browser.post("/api/approvals/decide/", bulk).status_code == 403
    assert_untouched(approval)
    token = with_csrf(browser)
    assert browser.post(f"/api/approvals/{approval.pk}/approve/", {}, **token).status_code == 200


def test_apr_29_a_form_of_another_site_decides_nothing_and_no_answer_may_be_framed(reviewer, approval):
    browser = browser_of(reviewer)
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        for body in ('{"note": "x"}', "note=x"):
            answer = browser.post(f"/api/approvals/{approval.pk}/approve/", body, content_type=content_type)
            assert answer.status_code == 403
            assert answer["X-Frame-Options"] == "DENY"
    assert browser.get(f"/api/approvals/{approval.pk}/", HTTP_ACCEPT="text/html")["X-Frame-Options"] == "DENY"
    assert_untouched(approval)


def test_apr_34_an_edit_that_sends_the_mask_keeps_the_secret(client, owner, scripted):
    arguments = {"url": "https://h", "headers": {"Authorization": "Bearer sk-123"}, "api_key": "k-9", "note": "hi"}
    approval = make_approval("fetch", {**arguments, "pin": "pin-4711"}, session=desk_session(owner), user=owner)
    shown = client.get(f"/api/approvals/{approval.pk}/")
    for secret in (b"sk-123", b"k-9", b"pin-4711"):
        assert secret not in shown.content
    edit = {**shown.json()["arguments"], "note": "changed"}
    answer = decide(client, approval, body={"arguments": edit})
    assert answer.json()["approved_arguments"] == edit
    scripted(["Done."])
    run_turns()
    assert ledger.entries == [("fetch", "https://h", {"Authorization": "Bearer sk-123"}, "k-9", "changed", "pin-4711")]
    everything = client.get("/api/approvals/").content
    bad = decide(client, approval, body={"arguments": {**edit, "url": 5}}).content
    assert b"sk-123" not in everything + bad


def test_the_queue_is_what_one_may_decide_newest_first(client, owner, reviewer):
    first, second = make_approval(user=owner), make_approval("wipe", {"path": "/x"}, user=owner)
    make_approval(user=reviewer)
    make_approval("grant", {"group": "x"}, session=desk_session(owner), user=owner)
    answer = client.get("/api/approvals/?status=pending").json()
    assert list(answer) == ["next", "previous", "results"]
    assert [item["id"] for item in answer["results"]] == [second.pk, first.pk]
    assert [item["id"] for item in answer["results"]] == list(
        runtime.pending_approvals(reviewer).values_list("pk", flat=True)
    )


def test_the_queue_is_filtered_by_all_that_tells_requests_apart(client, owner):
    pay = make_approval(user=owner, session=make_session(user=owner, session_id="s:one"))
    wipe = make_approval("wipe", {"path": "/x"}, user=owner)
    wire = make_approval("wire", {"amount": 1}, session=desk_session(owner), user=owner)
    decide(client, wipe)

    def found(query):
        return [item["id"] for item in client.get(f"/api/approvals/?{query}").json()["results"]]

    assert found("") == [wire.pk, wipe.pk, pay.pk]
    assert found("status=pending") == [wire.pk, pay.pk]
    assert found("status=approved") == found("tool=wipe") == [wipe.pk]
    assert found("kind=call") == [wire.pk, wipe.pk, pay.pk]
    assert found("kind=outcome") == []
    assert found("agent=desk-agent") == [wire.pk]
    assert found("session_id=s:one") == [pay.pk]
    assert found(f"execution_id={wipe.turn.execution_id}") == [wipe.pk]
    assert found("agent=nobody") == found("tool=none") == found("session_id=none") == []
    for query in ("status=open", "kind=x", "execution_id=1", "tool=a%00b"):
        answer = client.get(f"/api/approvals/?{query}")
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")


def test_approvals_of_deleted_sessions_are_gone(client, owner, approval):
    client_of(owner).post(f"/api/sessions/{approval.session.session_id}/cancel/")
    assert client.get(f"/api/approvals/{approval.pk}/").json()["status"] == "cancelled"
    client_of(owner).delete(f"/api/sessions/{approval.session.session_id}/")
    assert client.get("/api/approvals/").json()["results"] == []
    assert client.get(f"/api/approvals/{approval.pk}/").status_code == 404
    assert decide(client, approval).status_code == 404


def test_the_queue_costs_as_many_queries_for_twenty_as_for_one(client, owner):
    make_approval(user=owner)
    one = queries_of(lambda: client.get("/api/approvals/"), rows=1)
    for _ in range(19):
        make_approval(user=owner)
    assert queries_of(lambda: client.get("/api/approvals/"), rows=20) == one


@pytest.mark.parametrize(
    "number", ["0", "-1", "abc", "1.0", "1_0", "+1", "9" * 30, "9223372036854775808", "a%00b", "١"]
)
def test_an_absurd_id_is_not_found(client, number):
    make_turn()
    for answer in (
        client.get(f"/api/approvals/{number}/"),
        client.post(f"/api/approvals/{number}/approve/", {}),
        client.post(f"/api/approvals/{number}/respond/", {"result": 1}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_apr_33_a_list_stays_small_and_the_request_itself_is_whole(client, owner, settings):
    settings.AGENTCORE = {**settings.AGENTCORE, "MAX_ARGUMENT_BYTES": 4 * 2**20}
    huge = make_approval(arguments={"amount": 1, "to": "x" * 2 * 2**20}, user=owner)
    others = [make_approval(user=owner) for _ in range(50)]
    answer = client.get("/api/approvals/?page_size=200")
    assert len(answer.content) < 200_000
    listed = {item["id"]: item for item in answer.data["results"]}
    assert listed[huge.pk]["cut"] == ["arguments", "preview"]
    assert set(listed[huge.pk]["arguments"]) == {"bytes", "sha256"}
    assert listed[huge.pk]["arguments_digest"] == huge.arguments_digest
    assert not any("cut" in listed[other.pk] for other in others)
    assert listed[others[0].pk]["arguments"] == others[0].arguments
    assert client.get(f"/api/approvals/{huge.pk}/").data["arguments"] == huge.arguments


def test_a_key_that_is_there_twice_is_refused(client, approval):
    body = '{"arguments": {"amount": 5, "amount": 6, "to": "acme"}}'
    answer = client.post(f"/api/approvals/{approval.pk}/approve/", body, content_type="application/json")
    assert answer.status_code == 400
    assert "'amount' is there twice" in answer.data["message"]
    assert_untouched(approval)


def test_adm_02_one_that_fails_for_a_reason_of_its_own_leaves_the_others_alone(client, owner, monkeypatch):
    first, broken, last = (make_approval(user=owner) for _ in range(3))
    copy = history.copy

    def fail_for_one(approval, *args, **kwargs):
        if approval.pk == broken.pk:
            raise RuntimeError("the disk is full")
        copy(approval, *args, **kwargs)

    monkeypatch.setattr(history, "copy", fail_for_one)
    wanted = [{"id": item.pk, "verdict": "approve"} for item in (first, broken, last)]
    answer = client.post("/api/approvals/decide/", {"decisions": wanted}, format="json")
    assert [item.get("status") or item["error"]["code"] for item in answer.data["results"]] == [
        "approved",
        "internal",
        "approved",
    ]
    assert "disk" not in answer.content.decode()
    assert status_of(broken) == "pending"
    assert_invariants()
