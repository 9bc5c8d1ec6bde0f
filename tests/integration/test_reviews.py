"""The reviewers' pages: who sees what, how a decision is made, and what a page never does."""

import json
import re
import threading
from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission
from django.db import connection, connections
from django.urls import reverse

from agentcore import runtime
from agentcore.models import ApprovalDecision, ToolApproval
from agentcore.reviews import waiting
from agentcore.states import ApprovalStatus, Channel
from agentcore.testing import ScriptedProvider, calls, make_approval, make_session, make_turn, make_user, run_turns
from agentcore.testing.agents import ledger
from tests.integration.review_pages import (
    DECIDE,
    LIST,
    VERDICTS,
    Reader,
    address,
    ask,
    count_queries,
    decide,
    ids_on,
    logged_in,
    status_of,
)

pytestmark = pytest.mark.django_db(transaction=True)


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
def second():
    return make_user("sam", permissions=(DECIDE,))


@pytest.fixture
def rita(reviewer):
    return logged_in(reviewer)


# Who sees what


def test_a_reviewer_finds_a_request_with_what_it_is_about(rita, owner):
    approval = ask("send", {"to": "acme", "body": "hello"}, owner)
    reader = Reader(rita.get(LIST))
    for said in (
        "send",
        "reviews-agent",
        "owner",
        "acme",
        "hello",
        "1 request waits for you.",
        "just now",
        "in 1 week",
    ):
        assert said in reader.text
    assert address(approval) in [link["href"] for link in reader.all("a")]


def test_the_addresses_are_those_of_the_contract():
    assert reverse("agentcore-reviews:list") == "/reviews/"
    assert reverse("agentcore-reviews:detail", args=[7]) == "/reviews/7/"
    assert [reverse(f"agentcore-reviews:{verdict}", args=[7]) for verdict in VERDICTS] == [
        f"/reviews/7/{verdict}/" for verdict in VERDICTS
    ]


@pytest.mark.parametrize("path", ["", "1/", "1/approve/"])
def test_a_stranger_is_sent_to_log_in(client, path, settings):
    settings.LOGIN_URL = "/accounts/login/"
    back = LIST if not path else "/reviews/1/"
    for response, page in (
        (client.get(LIST + path), LIST + path),
        (client.post(LIST + path), f"{back}%3Fundecided%3D1"),
    ):
        assert response.status_code == 302
        assert response["Location"] == f"/accounts/login/?next={page}"


def test_apr_25_without_the_permission_the_list_is_refused_and_a_request_does_not_exist(owner):
    approval = ask("send", {"to": "acme"}, owner)
    outsider = logged_in(make_user("nobody-special"))
    assert outsider.get(LIST).status_code == 403
    there, missing = outsider.get(address(approval)), outsider.get("/reviews/999999/")
    assert (there.status_code, missing.status_code) == (404, 404)
    assert Reader(there).text == Reader(missing).text


@pytest.mark.parametrize("verdict", VERDICTS)
def test_apr_25_without_the_permission_nothing_is_decided_and_the_attempt_is_recorded(owner, verdict):
    approval = ask("send", {"to": "acme"}, owner)
    for user in (make_user("outsider"), owner):
        assert decide(logged_in(user), approval, verdict).status_code == 404
    assert status_of(approval) == ApprovalStatus.PENDING
    record = ApprovalDecision.objects.filter(approval=approval)
    assert {(one.actor_name, one.refusal, one.channel) for one in record} == {
        ("outsider", "permission_denied", Channel.PAGE),
        ("owner", "permission_denied", Channel.PAGE),
    }
    assert ledger.entries == []


def test_apr_25_a_request_of_another_team_does_not_exist(rita, reviewer, owner):
    approval = ask("audit", {"team": "red"}, owner)
    assert "audit" not in Reader(rita.get(LIST)).text
    assert rita.get(address(approval)).status_code == 404
    assert decide(rita, approval).status_code == 404
    reviewer.user_permissions.add(Permission.objects.get(codename="change_group"))
    assert "audit" in Reader(rita.get(LIST)).text
    assert decide(rita, approval).status_code == 302


@pytest.mark.parametrize("is_superuser", [False, True])
def test_apr_26_ones_own_request_is_shown_with_the_reason_in_place_of_buttons(is_superuser):
    user = make_user("both", permissions=(DECIDE,), is_superuser=is_superuser)
    approval = ask("send", {"to": "acme"}, user)
    client = logged_in(user)
    for response in (client.get(LIST), client.get(address(approval))):
        reader = Reader(response)
        assert "This is your own request." in reader.text
        assert address(approval, "approve") not in reader.forms()
    refused = decide(client, approval)
    assert refused.status_code == 403
    assert "Nobody decides on their own request" in Reader(refused).text
    assert status_of(approval) == ApprovalStatus.PENDING


def test_apr_26_a_request_of_a_deleted_user_is_decided_by_nobody(rita, owner):
    approval = ask("send", {"to": "acme"}, owner)
    owner.delete()
    assert "does not exist any more" in Reader(rita.get(address(approval))).text
    assert decide(rita, approval).status_code == 403
    assert status_of(approval) == ApprovalStatus.PENDING


def test_apr_26_without_four_eyes_ones_own_decision_is_marked():
    user = make_user("both", permissions=(DECIDE,))
    approval = ask("small", {"n": 1}, user)
    assert decide(logged_in(user), approval).status_code == 302
    assert "own request" in Reader(logged_in(user).get(address(approval))).text


def test_who_may_only_view_reads_a_request_but_has_no_buttons(owner):
    approval = ask("send", {"to": "acme"}, owner)
    client = logged_in(make_user("auditor", permissions=("agentcore.view_toolapproval",)))
    reader = Reader(client.get(address(approval)))
    assert "You may see this request, but not decide it." in reader.text
    assert address(approval, "approve") not in reader.forms()
    assert decide(client, approval).status_code == 403


# Deciding


def test_approving_runs_the_tool_and_says_so(rita, owner, scripted, run_turns):
    approval = ask("send", {"to": "acme"}, owner)
    response = rita.post(address(approval, "approve"), {"version": 1, "note": "fine\r\nby me"}, follow=True)
    assert response.redirect_chain == [(address(approval), 302)]
    reader = Reader(response)
    assert "Approved. send runs next." in reader.text
    assert "Approved by rita." in reader.text
    [vote] = ApprovalDecision.objects.filter(approval=approval)
    assert (vote.note, vote.channel) == ("fine\nby me", Channel.PAGE)
    scripted(["Sent."])
    run_turns()
    assert ledger.entries == [("send", "acme", "", None, "")]


def test_rejecting_tells_the_agent_the_reason(rita, owner, scripted, run_turns):
    approval = ask("send", {"to": "acme"}, owner)
    assert (
        "Rejected. send does not run."
        in Reader(rita.post(address(approval, "reject"), {"version": 1, "reason": "not\r\ntoday"}, follow=True)).text
    )
    provider = scripted(["All right."])
    run_turns()
    assert "Their reason: not\ntoday" in provider.requests[0].messages[-1].content
    assert ledger.entries == []


@pytest.mark.parametrize(
    ("written", "given"), [('{"sent": 2}', {"sent": 2}), ("12", 12), ("by hand", "by hand"), ("NaN", "NaN")]
)
def test_responding_gives_json_or_text_in_the_tools_place(rita, owner, written, given):
    approval = ask("send", {"to": "acme"}, owner)
    decide(rita, approval, "respond", result=written, note="known")
    approval.refresh_from_db()
    assert (approval.status, approval.response) == (ApprovalStatus.RESPONDED, given)
    assert "The result that was given" in Reader(rita.get(address(approval))).text


def test_an_edit_keeps_the_secrets_it_was_not_shown(rita, owner, scripted, run_turns):
    approval = ask("send", {"to": "acme", "body": "old", "pin": "1234"}, owner)
    edit = '{"to": "acme", "body": "new", "pin": "********"}'
    assert decide(rita, approval, arguments=edit).status_code == 302
    scripted(["Sent."])
    run_turns()
    assert ledger.entries == [("send", "acme", "new", None, "1234")]
    shown = Reader(rita.get(address(approval))).text
    assert "Approved with these changes" in shown
    assert "1234" not in shown


@pytest.mark.parametrize(
    ("verdict", "data", "problem"),
    [
        ("approve", {"arguments": "{"}, "The arguments are not valid JSON"),
        ("approve", {"arguments": '{"to": 5}'}, "to"),
        *((verdict, {"version": "x"}, "whole number") for verdict in VERDICTS),
        *((verdict, {"version": ""}, "The version you saw is missing") for verdict in VERDICTS),
        *((verdict, {"argument": "{}"}, "no field argument in") for verdict in VERDICTS),
        ("reject", {"arguments": '{"to": "x"}'}, "no field arguments in"),
        ("approve", {"reason": "a\0b", "x\0": "1"}, "no field reason, x⟨U+0000⟩ in"),
        ("approve", {"note": "x" * 10_001}, "10000"),
        ("approve", {"note": "a\0b"}, "Null characters"),
        ("respond", {"result": "  "}, "Give the result"),
    ],
)
def test_a_bad_decision_is_refused_with_the_reason(rita, owner, verdict, data, problem):
    approval = ask("send", {"to": "acme"}, owner)
    response = decide(rita, approval, verdict, **data)
    assert response.status_code == 400
    assert problem in Reader(response).text
    assert status_of(approval) == ApprovalStatus.PENDING


@pytest.mark.parametrize("verdict", VERDICTS)
def test_a_decision_that_names_no_version_decides_nothing(rita, owner, verdict):
    approval = ask("send", {"to": "acme"}, owner)
    response = rita.post(address(approval, verdict), {"result": "done"} if verdict == "respond" else {})
    assert response.status_code == 400
    assert "The version you saw is missing, please look again." in Reader(response).text
    assert status_of(approval) == ApprovalStatus.PENDING
    assert not ApprovalDecision.objects.exists()


@pytest.mark.parametrize("query", ["?order=%00", "?after=%00", "?order=newest&before=%00", "?x=%00"])
def test_a_nul_in_the_address_is_an_unknown_value(rita, owner, query):
    approval = ask("send", {"to": "acme"}, owner)
    assert "acme" in Reader(rita.get(LIST + query)).text
    assert rita.get(address(approval) + query).status_code == 200


def test_the_script_is_told_where_to_log_in_again(rita, owner, settings):
    settings.LOGIN_URL = "/accounts/login/"
    approval = ask("send", {"to": "acme"}, owner)
    reader = Reader(decide(rita, approval, version=""))
    words = json.loads(next(part["data-words"] for part in reader.all("div") if "data-words" in part))
    assert (words["logged_out"], words["log_in"]) == ("You are logged out.", "Log in again.")
    assert words["log_in_page"] == "/accounts/login/"
    # Not the address of the decision, which answers no GET.
    assert address(approval) in [part.get("data-next") for part in reader.all("p")]


def test_arguments_that_may_not_be_edited_offer_no_edit(rita, owner):
    approval = ask("fixed", {"n": 1}, owner)
    assert "arguments" not in [field.get("name") for field in Reader(rita.get(address(approval))).all("textarea")]
    assert decide(rita, approval, arguments='{"n": 2}').status_code == 409
    assert status_of(approval) == ApprovalStatus.PENDING


def test_a_decision_from_the_list_goes_back_to_the_list(rita, owner):
    approval = ask("small", {"n": 1}, owner)
    assert address(approval, "approve") in Reader(rita.get(LIST)).forms()
    response = rita.post(address(approval, "approve"), {"version": 1, "from": "list"}, follow=True)
    assert response.redirect_chain == [(LIST, 302)]
    assert "Nothing waits for you." in Reader(response).text


def test_the_list_offers_a_decision_only_where_it_shows_everything(rita, owner):
    approval = ask("send", {"to": "acme", "body": "x" * 81}, owner)
    reader = Reader(rita.get(LIST))
    assert address(approval, "approve") not in reader.forms()
    assert "81 characters" in reader.text
    assert address(approval, "approve") in Reader(rita.get(address(approval))).forms()


def test_a_vote_of_two_counts_and_waits(rita, second, owner):
    approval = ask("launch", {"place": "moon"}, owner)
    assert "Your vote counts." in Reader(rita.post(address(approval, "approve"), {"version": 1}, follow=True)).text
    reader = Reader(rita.get(address(approval)))
    assert "You have voted on this request." in reader.text
    assert "1 of 2" in reader.text
    assert decide(logged_in(second), approval).status_code == 302
    assert status_of(approval) == ApprovalStatus.APPROVED


def test_apr_04_an_old_page_decides_nothing_and_shows_what_is_there_now(rita, second, owner):
    approval = ask("launch", {"place": "moon"}, owner)
    decide(logged_in(second), approval, arguments='{"place": "mars"}')
    for verdict in VERDICTS:
        response = decide(rita, approval, verdict, **{"reason" if verdict == "reject" else "note": "kept"})
        assert response.status_code == 409
        reader = Reader(response)
        assert "The request changed, please look again." in reader.text
        assert "mars" in reader.text
        assert {field["value"] for field in reader.all("input") if field.get("name") == "version"} == {"2"}
        assert "kept" in reader.text
    assert status_of(approval) == ApprovalStatus.PENDING
    assert ledger.entries == []


def test_apr_05_a_second_decision_is_told_who_was_first(rita, second, owner):
    approval = ask("send", {"to": "acme"}, owner)
    assert decide(rita, approval).status_code == 302
    assert decide(rita, approval).status_code == 302
    for verdict in VERDICTS:
        late = decide(logged_in(second), approval, verdict)
        assert late.status_code == 409
        assert "already approved, decided by rita (approve)" in Reader(late).text
    changed_mind = decide(rita, approval, "reject")
    assert changed_mind.status_code == 409
    assert ApprovalDecision.objects.filter(approval=approval).exclude(counted_key=None).count() == 1


def test_apr_05_two_clicks_at_once_decide_once(reviewer, second, owner, run_turns):
    approval = ask("send", {"to": "acme"}, owner)
    clients = [logged_in(reviewer), logged_in(second)]
    barrier, statuses = threading.Barrier(2), []

    def click(client):
        barrier.wait()
        statuses.append(decide(client, approval).status_code)
        connections.close_all()

    threads = [threading.Thread(target=click, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [302, 409]
    with ScriptedProvider(["Sent."]).installed():
        run_turns()
    assert len(ledger.entries) == 1


def test_an_expired_request_says_so_and_is_not_decided(rita, owner, clock):
    approval = ask("send", {"to": "acme"}, owner)
    clock.advance(timedelta(days=8))
    logged = logged_in(make_user("late", permissions=(DECIDE,)))
    assert "The time to decide this request is over." in Reader(logged.get(address(approval))).text
    response = decide(logged, approval)
    assert response.status_code == 409
    assert "This request expired before you decided." in Reader(response).text
    assert status_of(approval) == ApprovalStatus.EXPIRED


def test_a_refused_attempt_stays_recorded_under_atomic_requests(owner, monkeypatch):
    approval = ask("send", {"to": "acme"}, owner)
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    assert decide(logged_in(make_user("outsider")), approval).status_code == 404
    assert ApprovalDecision.objects.filter(approval=approval, refusal="permission_denied").count() == 1


# What a page never does


@pytest.mark.parametrize("method", ["get", "head"])
def test_apr_28_nothing_changes_by_get_or_head(rita, client, owner, method):
    approval = ask("send", {"to": "acme"}, owner)
    query = "?version=1&note=x&result=1"
    for verdict in VERDICTS:
        led = getattr(rita, method)(address(approval, verdict) + query)
        assert (led.status_code, led["Location"]) == (302, address(approval))
        assert rita.put(address(approval, verdict)).status_code == 405
        assert getattr(client, method)(address(approval, verdict) + query).status_code == 302
    for path in (LIST, address(approval)):
        assert getattr(rita, method)(path + query).status_code == 200
        assert getattr(client, method)(path + query).status_code == 302
    assert status_of(approval) == ApprovalStatus.PENDING
    assert not ApprovalDecision.objects.exists()


@pytest.mark.parametrize("with_middleware", [True, False])
def test_apr_29_a_post_without_a_token_is_refused(reviewer, owner, settings, with_middleware):
    if not with_middleware:
        settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if "csrf" not in name]
    approval = ask("send", {"to": "acme"}, owner)
    client = logged_in(reviewer, enforce_csrf_checks=True)
    for verdict in VERDICTS:
        assert decide(client, approval, verdict).status_code == 403
    assert status_of(approval) == ApprovalStatus.PENDING
    token = next(
        field["value"]
        for field in Reader(client.get(address(approval))).all("input")
        if field.get("name") == "csrfmiddlewaretoken"
    )
    assert decide(client, approval, csrfmiddlewaretoken=token).status_code == 302


def test_apr_29_every_answer_forbids_framing_storing_and_foreign_scripts(rita, client, owner):
    approval = ask("send", {"to": "acme"}, owner)
    answers = [
        rita.get(LIST),
        rita.get(address(approval)),
        rita.get("/reviews/999999/"),
        rita.get(address(approval, "approve")),
        decide(rita, approval, version=9),
        decide(rita, approval),
        client.get(LIST),
    ]
    for response in answers:
        assert response["X-Frame-Options"] == "DENY"
        assert "no-store" in response["Cache-Control"]
        policy = response["Content-Security-Policy"]
        assert "default-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy


def test_static_files_of_another_host_are_let_through(rita, settings):
    settings.STATIC_URL = "https://static.example.org/files/"
    assert "default-src 'self' https://static.example.org;" in rita.get(LIST)["Content-Security-Policy"]


ATTACKS = {
    "to": "</pre><img src=x onerror=alert(1)>",
    "body": "<script>alert(2)</script>\n[x](javascript:alert(3))",
    "options": {"<b>k</b>": "</script><script>alert(5)</script>", "javascript:alert(6)": ["<svg onload=alert(7)>"]},
}
TITLE = '"><svg onload=alert(4)>'


def test_apr_30_what_models_and_users_write_stays_text(rita, owner):
    session = make_session("reviews-agent", user=owner, title=TITLE)
    script = [calls(("send", ATTACKS), content="<img src=y> javascript:alert(8)")]
    turn = make_turn(session, "<script>alert(9)</script>", user=owner)
    with ScriptedProvider(script).installed():
        run_turns()
    approval = ToolApproval.objects.get(turn=turn)
    shown, listed = rita.get(address(approval)), rita.get(LIST)
    refused = decide(rita, approval, "reject", version=9, reason="</textarea><script>alert(10)</script>")
    decide(rita, approval, "reject", reason="<svg/onload=alert(11)>")
    for response in (shown, listed, refused, rita.get(address(approval))):
        assert_harmless(Reader(response))
    text = Reader(shown).text
    for written in (ATTACKS["to"], ATTACKS["body"], TITLE, "<b>k</b>", "<img src=y>", "<script>alert(9)</script>"):
        assert written in text
    assert ATTACKS["to"] in Reader(listed).text


def assert_harmless(reader):
    assert all({"src"} <= set(attrs) <= {"src", "defer"} for attrs in reader.all("script"))
    assert not [name for name, _ in reader.elements if name in ("img", "svg", "iframe", "style")]
    for _, attrs in reader.elements:
        assert not [name for name in attrs if name.startswith("on") or name == "style"]
        assert not re.match(r"\s*javascript:", attrs.get("href") or attrs.get("action") or "")


def test_apr_33_huge_arguments_leave_the_list_small(rita, owner, settings):
    settings.AGENTCORE = {**settings.AGENTCORE, "MAX_ARGUMENT_BYTES": 4 * 2**20}
    huge = ask("send", {"to": "acme", "body": "x" * 2 * 2**20}, owner)
    for number in range(50):
        ask("small", {"n": number}, owner)
    response = rita.get(LIST)
    assert len(response.content) < 200_000
    assert re.search(r"Arguments of 2097\d{3} characters: open the request to read them", Reader(response).text)
    shown = rita.get(address(huge))
    assert "2097152 characters" in Reader(shown).text
    # Once to read, and not again in a form.
    assert len(shown.content) < 2.2 * 2**20
    assert decide(rita, huge).status_code == 302
    with ScriptedProvider(["Sent."]).installed():
        run_turns()
    assert [len(entry[2]) for entry in ledger.entries if entry[0] == "send"] == [2 * 2**20]


def test_apr_34_secrets_are_masked_and_the_rest_is_shown(rita, owner):
    secrets = {
        "to": "acme",
        "options": {"url": "https://h", "headers": {"Authorization": "Bearer sk-123"}, "API_KEY": "k-9", "note": "hi"},
        "pin": "p-4711",
    }
    approval = ask("send", secrets, owner)
    pages = [rita.get(LIST), rita.get(address(approval)), decide(rita, approval, version=9)]
    decide(rita, approval, arguments='{"to": "acme", "options": {"api_key": "k-10"}, "pin": "********"}')
    for response in [*pages, rita.get(address(approval))]:
        content = response.content.decode()
        assert not [secret for secret in ("sk-123", "k-9", "p-4711", "k-10") if secret in content]
    assert "********" in Reader(pages[1]).text
    assert "hi" in Reader(pages[1]).text


# The list


def test_the_list_is_read_a_page_at_a_time(rita, owner, monkeypatch):
    monkeypatch.setattr(waiting, "PAGE_SIZE", 2)
    ids = [ask("small", {"n": number}, owner).pk for number in range(3)]
    assert ids_on(rita.get(LIST)) == ids[:2]
    assert ids_on(rita.get(f"{LIST}?after={ids[1]}")) == ids[2:]
    assert ids_on(rita.get(f"{LIST}?order=newest")) == [ids[2], ids[1]]
    assert ids_on(rita.get(f"{LIST}?order=newest&before={ids[1]}")) == ids[:1]
    assert f"?after={ids[1]}" in [link["href"] for link in Reader(rita.get(LIST)).all("a")]


@pytest.mark.parametrize("query", ["after=x", "after=-1", "after=" + "9" * 40, "after=²", "order=sideways"])
def test_a_bad_place_in_the_list_is_its_beginning(rita, owner, query):
    approval = ask("small", {"n": 1}, owner)
    assert ids_on(rita.get(f"{LIST}?{query}")) == [approval.pk]


def test_the_list_makes_the_same_queries_for_one_request_and_for_many(rita, owner):
    ask("small", {"n": 0}, owner)
    few = count_queries(rita, LIST)
    for number in range(8):
        ask("small", {"n": number}, make_user())
    assert count_queries(rita, LIST) == few <= 14


def test_a_request_makes_the_same_queries_after_a_long_conversation(rita, owner):
    session = make_session("reviews-agent", user=owner)
    first = make_approval("small", {"n": 0}, session=session, user=owner)
    few = count_queries(rita, address(first))
    for number in range(4):
        runtime.cancel(session.session_id)
        latest = make_approval("small", {"n": number}, session=session, user=owner)
    assert count_queries(rita, address(latest)) == few <= 30


def test_a_decided_request_leaves_the_list_and_keeps_its_page(rita, second, owner):
    approval = ask("send", {"to": "acme"}, owner)
    decide(logged_in(second), approval, "reject", reason="no")
    assert ids_on(rita.get(LIST)) == []
    reader = Reader(rita.get(address(approval)))
    assert "Rejected by sam." in reader.text
    assert reader.forms() == []


def test_the_blank_row_for_the_script_holds_no_request(rita):
    reader = Reader(rita.get(LIST))
    assert reader.forms() == ["/reviews/0/approve/", "/reviews/0/reject/"]
    [root] = [attrs for tag, attrs in reader.elements if tag == "div" and "data-reviews" in attrs]
    assert root["data-socket"] == "/ws/agentcore/approvals/"
