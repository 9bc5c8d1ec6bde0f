"""Many decisions at once: each by the one path, with its own version and its own result."""

from datetime import timedelta

import pytest
from django.db import connection

from agentcore import runtime
from agentcore.approvals import history
from agentcore.models import ApprovalDecision, ToolApproval
from agentcore.states import ApprovalStatus, Channel
from agentcore.testing import ScriptedProvider, make_user, run_turns
from agentcore.testing.agents import ledger
from tests.integration.review_pages import DECIDE, LIST, Reader, ask, logged_in, status_of

pytestmark = pytest.mark.django_db(transaction=True)

BULK = "/reviews/decide/"


@pytest.fixture(autouse=True)
def _clean_ledger():
    ledger.clear()


@pytest.fixture
def owner():
    return make_user("owner")


@pytest.fixture
def reviewer():
    return make_user("rita", permissions=(DECIDE,))


@pytest.fixture
def rita(reviewer):
    return logged_in(reviewer)


def chosen(*approvals):
    return [f"{approval.pk}:{approval.version}" for approval in approvals]


def decide(client, approvals, verdict="approve", **data):
    return client.post(BULK, {"chosen": chosen(*approvals), "verdict": verdict, "note": "", **data})


def statuses(approvals):
    return [status_of(approval) for approval in approvals]


def test_adm_03_thirty_are_rejected_in_one_step_with_one_reason(rita, owner):
    approvals = [ask("launch", {"place": str(number)}, owner) for number in range(30)]
    response = decide(rita, approvals, "reject", note="not\r\ntoday")
    assert "30 decided, 0 refused" in Reader(response).text
    assert statuses(approvals) == [ApprovalStatus.REJECTED] * 30
    record = ApprovalDecision.objects.order_by().values_list("note", "channel", "actor_name").distinct()
    assert list(record) == [("not\ntoday", Channel.PAGE, "rita")]


def test_adm_02_each_is_decided_for_itself_and_the_refused_are_told_why(reviewer, owner, clock):
    late = ask("small", {"n": 3}, owner)
    clock.advance(timedelta(days=8))
    good, other = ask("send", {"to": "a"}, owner), ask("send", {"to": "b"}, owner)
    own, teams = ask("send", {"to": "c"}, reviewer), ask("audit", {"team": "red"}, owner)
    # Logged in now: the clock moved on.
    response = decide(logged_in(reviewer), [good, own, late, teams, other], note="fine")
    text = Reader(response).text
    assert "2 decided, 3 refused" in text
    assert "Nobody decides on their own request" in text
    assert "This request expired before you decided." in text
    assert "There is no such request." in text
    assert "audit" not in text
    assert statuses([good, own, late, teams, other]) == ["approved", "pending", "expired", "pending", "approved"]
    refusals = ApprovalDecision.objects.exclude(refusal="").values_list("approval_id", "refusal")
    assert dict(refusals) == {own.pk: "permission_denied", late.pk: "conflict", teams.pk: "permission_denied"}
    with ScriptedProvider(["Sent.", "Sent.", "Late."]).installed():
        run_turns()
    assert sorted(entry[1] for entry in ledger.entries) == ["a", "b"]


def test_what_the_list_does_not_show_in_full_is_not_approved_from_it(rita, owner):
    long, short = ask("send", {"to": "acme", "body": "x" * 81}, owner), ask("send", {"to": "acme"}, owner)
    huge = ask("send", {"to": "acme", "body": "x" * 10_000}, owner)
    response = decide(rita, [long, short, huge])
    assert "Not approved: the list does not show all of it. Open it first." in Reader(response).text
    assert statuses([long, short, huge]) == ["pending", "approved", "pending"]
    decide(rita, [long, huge], "reject")
    assert statuses([long, huge]) == ["rejected", "rejected"]


def test_apr_04_a_row_of_an_old_list_is_refused(rita, owner):
    approval = ask("deliver", {"place": "moon"}, owner)
    old = chosen(approval)
    runtime.approve(approval.pk, make_user("sam", permissions=(DECIDE,)), arguments={"place": "mars"})
    response = rita.post(BULK, {"chosen": old, "verdict": "approve"})
    assert "The request changed, please look again." in Reader(response).text
    assert status_of(approval) == ApprovalStatus.PENDING


def test_a_request_that_does_not_exist_is_answered_like_one_of_another_team(rita, owner):
    teams = ask("audit", {"team": "red"}, owner)
    there = decide(rita, [teams], "reject")
    missing = rita.post(BULK, {"chosen": "999999:1", "verdict": "reject", "note": ""})
    assert Reader(there).text.replace(str(teams.pk), "#") == Reader(missing).text.replace("999999", "#")
    assert ApprovalDecision.objects.get().refusal == "permission_denied"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"verdict": "approve"}, "Select the requests first."),
        ({"verdict": "approve", "chosen": "1"}, "The version you saw is missing"),
        ({"verdict": "approve", "chosen": "1:1\n"}, "The version you saw is missing"),
        ({"verdict": "respond", "chosen": "1:1"}, "respond is not one of"),
        ({"chosen": "1:1"}, "required"),
        ({"verdict": "approve", "chosen": "1:1", "note": "x" * 10_001}, "10000"),
        ({"verdict": "approve", "chosen": "1:1", "arguments": "{}"}, "There is no field arguments"),
        (
            {"verdict": "approve", "chosen": [f"{number}:1" for number in range(1, 202)]},
            "At most 200 requests at once.",
        ),
    ],
)
def test_a_bad_form_decides_nothing(rita, owner, data, problem):
    approval = ask("small", {"n": 1}, owner)
    response = rita.post(BULK, data)
    assert response.status_code == 400
    assert problem in Reader(response).text
    assert "Nothing was decided" in Reader(response).text
    assert status_of(approval) == ApprovalStatus.PENDING
    assert not ApprovalDecision.objects.exists()


def test_the_same_form_sent_twice_decides_once(rita, owner):
    approvals = [ask("send", {"to": str(number)}, owner) for number in range(2)]
    for _ in range(2):
        assert "2 decided, 0 refused" in Reader(decide(rita, approvals)).text
    assert ApprovalDecision.objects.count() == 2


def test_a_refusal_undoes_no_other_decision_under_atomic_requests(rita, owner, reviewer, monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    good, own = ask("send", {"to": "a"}, owner), ask("send", {"to": "c"}, reviewer)
    decide(rita, [own, good])
    assert statuses([good, own]) == ["approved", "pending"]
    assert ApprovalDecision.objects.filter(refusal="permission_denied").count() == 1


def test_apr_28_29_it_takes_a_post_with_a_token(reviewer, owner, client):
    approval = ask("small", {"n": 1}, owner)
    strict = logged_in(reviewer, enforce_csrf_checks=True)
    led = strict.get(BULK, {"chosen": chosen(approval), "verdict": "approve"})
    assert (led.status_code, led["Location"]) == (302, LIST)
    assert logged_in(reviewer).put(BULK, {"chosen": chosen(approval), "verdict": "approve"}).status_code == 405
    assert decide(strict, [approval]).status_code == 403
    assert decide(client, [approval]).status_code == 302
    assert status_of(approval) == ApprovalStatus.PENDING


def test_apr_29_the_report_has_the_headers_of_the_other_pages(rita, owner):
    response = decide(rita, [ask("small", {"n": 1}, owner)])
    assert response["X-Frame-Options"] == "DENY"
    assert "no-store" in response["Cache-Control"]
    assert "default-src 'self';" in response["Content-Security-Policy"]


def test_the_list_has_a_box_for_each_request_and_the_report_leads_back(rita, owner):
    approval = ask("small", {"n": 1}, owner)
    page = Reader(rita.get(f"{LIST}?tool=small"))
    boxes = [field for field in page.all("input") if field.get("name") == "chosen"]
    assert [(box["value"], box["form"]) for box in boxes] == [(f"{approval.pk}:1", "bulk"), ("0:1", "bulk")]
    assert "bulk" in [form.get("id") for form in page.all("form")]
    back = next(field["value"] for field in page.all("input") if field.get("name") == "from")
    report = Reader(decide(rita, [approval], **{"from": back}))
    assert f"{LIST}?tool=small" in [link["href"] for link in report.all("a")]


def test_a_vote_of_two_counts_and_is_told(rita, owner):
    approval = ask("launch", {"place": "moon"}, owner)
    assert "Your vote counts; it waits for others." in Reader(decide(rita, [approval])).text
    assert ToolApproval.objects.get(pk=approval.pk).status == ApprovalStatus.PENDING


def test_adm_02_one_that_fails_for_a_reason_of_its_own_leaves_the_others_alone(rita, owner, monkeypatch):
    first, broken, last = (ask("small", {"n": number}, owner) for number in range(3))
    copy = history.copy

    def fail_for_one(approval, *args, **kwargs):
        if approval.pk == broken.pk:
            raise RuntimeError("the disk is full")
        copy(approval, *args, **kwargs)

    monkeypatch.setattr(history, "copy", fail_for_one)
    text = Reader(decide(rita, [first, broken, last])).text
    assert statuses([first, broken, last]) == ["approved", "pending", "approved"]
    assert "Something went wrong with this one; nothing was decided." in text
    assert "disk" not in text


def test_apr_33_a_list_of_hidden_characters_stays_small(rita, owner):
    for number in range(20):
        ask("send", {"to": "\u202e" * 500 + str(number)}, owner)
    response = rita.get(LIST)
    assert len(response.content) < 100_000
    assert "⟨U+202E⟩" in Reader(response).text


def test_apr_20_the_reason_reaches_the_model_with_its_spaces(rita, owner):
    approval = ask("small", {"n": 1}, owner)
    rita.post(f"{LIST}{approval.pk}/reject/", {"version": "1", "reason": "  lead\r\n line2  "})
    assert ApprovalDecision.objects.get(approval=approval, verdict="reject").note == "  lead\n line2  "
