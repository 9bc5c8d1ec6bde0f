"""Decisions in the admin: chosen, confirmed on a page that shows what will run, and taken by the one decision path."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections
from django.test import Client

from agentcore import runtime
from agentcore.admin import deciding
from agentcore.models import AgentContext, ApprovalDecision, ContextEntry, SessionEvent, ToolApproval
from agentcore.testing import make_approval, make_session, make_user
from agentcore.testing.agents import ledger
from tests.integration.admin_pages import (
    ADMIN_AGENT,
    DECIDE,
    TEAM,
    VIEW,
    VIEW_ALL,
    Page,
    act,
    choose,
    confirm,
    copy_story,
    list_url,
    logged_in,
    page_url,
    said,
    staff,
    statuses,
    superuser,
)

pytestmark = pytest.mark.django_db

LIST = "/admin/agentcore/toolapproval/"
OWN = "Nobody decides on their own request: this one is yours, or its requester is not known any more."


@pytest.fixture(autouse=True)
def _clean_ledger() -> None:
    ledger.clear()


@pytest.fixture
def reviewer() -> Client:
    return staff(VIEW, DECIDE)


def listed(client: Client, query: str = "") -> list[int]:
    """Return the ids in the list, in its order."""
    pages = Page(client.get(LIST + query)).pages
    return [int(page.split("/")[-3]) for page in pages if page.endswith("/change/")]


def press(client: Client, approval: ToolApproval, way: str, **text: str) -> Any:
    """Press a button of an approval's page, then the one of the confirmation page."""
    form = Page(client.get(page_url(approval))).sent_by(f"version_{approval.pk}")
    address = page_url(approval, way)
    return confirm(client, client.post(address, form), address, **text)


# The queue


def test_the_list_shows_what_is_pending_oldest_first_and_all_when_asked(reviewer: Client) -> None:
    first, second, third = (make_approval() for _ in range(3))
    runtime.reject(second.pk, make_user(permissions=(DECIDE,)))
    assert listed(reviewer) == [first.pk, third.pk]
    assert listed(reviewer, "?status=rejected") == [second.pk]
    assert listed(reviewer, "?status=all") == [third.pk, second.pk, first.pk]
    assert listed(reviewer, "?status=nonsense") == listed(reviewer, "?status=%00") == []


def test_the_list_tells_what_a_reviewer_must_know(reviewer: Client, clock: Any) -> None:
    make_approval("hurry", {"name": "x"}, session=make_session(ADMIN_AGENT), user=make_user("asker"))
    clock.advance(timedelta(minutes=20))
    text = Page(reviewer.get(LIST)).text.replace("\xa0", " ")
    for piece in ("hurry #", ADMIN_AGENT, "asker", 'name: "x"', "20 minutes", "39 minutes", "Pending"):
        assert piece in text
    clock.advance(timedelta(hours=1))
    assert "over" in Page(reviewer.get(LIST)).text


def test_who_may_only_decide_sees_what_they_may_decide() -> None:
    mine = make_approval()
    make_approval("team_pay", {"amount": 1}, session=make_session(ADMIN_AGENT))
    client = staff(DECIDE)
    make_approval(user=client.user)
    assert listed(client) == [mine.pk]
    assert client.get(page_url(mine)).status_code == 200


# Choosing and confirming


@pytest.mark.parametrize(
    ("action", "field", "status", "report"),
    [
        ("approve_selected", "note", "approved", "2 approved, 0 refused"),
        ("reject_selected", "reason", "rejected", "2 rejected, 0 refused"),
    ],
)
def test_an_action_decides_only_after_its_confirmation_page(
    reviewer: Client, action: str, field: str, status: str, report: str
) -> None:
    chosen = [make_approval(), make_approval("wipe", {"path": "/tmp/a"})]
    left = make_approval()
    page = choose(reviewer, action, chosen)
    shown = Page(page)
    assert statuses() == ["pending"] * 3
    for piece in (f"pay #{chosen[0].pk}", '"amount": 10', "Pays 10 to acme", f"wipe #{chosen[1].pk}", "/tmp/a"):
        assert piece in shown.text
    assert field in shown.sent_by("post")
    answer = confirm(reviewer, page, LIST, **{field: "all right"})
    assert report in said(answer)
    assert statuses() == [status, status, "pending"]
    for decision in ApprovalDecision.objects.all():
        assert (decision.actor, decision.channel, decision.note, decision.refusal) == (
            reviewer.user,
            "admin",
            "all right",
            "",
        )
    left.refresh_from_db()
    assert left.version == 1


def test_after_a_decision_the_list_is_filtered_as_before(reviewer: Client) -> None:
    query = "?status=all&kind__exact=call"
    page = choose(reviewer, "approve_selected", [make_approval()], query)
    answer = reviewer.post(LIST + query, Page(page).sent_by("post"))
    assert (answer.status_code, answer["Location"]) == (302, LIST + query)


def test_a_reason_reaches_the_model_word_for_word(reviewer: Client, scripted: Any, run_turns: Any) -> None:
    provider = scripted(["I see."])
    act(reviewer, "reject_selected", [make_approval()], reason="Too much.\r\nAsk again in May.")
    run_turns()
    assert "Too much.\nAsk again in May." in provider.requests[0].messages[-1].content
    assert ledger.entries == []


def test_adm_02_each_decision_goes_its_own_way_and_the_report_says_how(
    clock: Any, scripted: Any, run_turns: Any
) -> None:
    client = staff(VIEW, DECIDE)
    late = make_approval("hurry", {"name": "x"}, session=make_session(ADMIN_AGENT))
    clock.advance(timedelta(hours=2))
    rows = [
        make_approval(arguments={"amount": 1, "to": "a"}),
        make_approval(user=client.user),
        late,
        make_approval("team_pay", {"amount": 5}, session=make_session(ADMIN_AGENT)),
        make_approval(arguments={"amount": 2, "to": "b"}),
    ]
    page = choose(client, "approve_selected", rows)
    assert Page(page).text.count("This one will be refused:") == 3
    told = said(confirm(client, page, LIST, note="month's end"))
    assert told[0] == "2 approved, 3 refused"
    reasons = " ".join(told[1:])
    for row, reason in ((rows[1], "own request"), (rows[2], "expired"), (rows[3], "permission")):
        assert f"#{row.pk}: " in reasons
        assert reason in reasons
    scripted(lambda request: "Done.")
    run_turns()
    assert sorted(ledger.entries) == [("pay", 1, "a"), ("pay", 2, "b")]
    record = ApprovalDecision.objects.filter(channel="admin")
    assert record.filter(refusal="", verdict="approve", note="month's end").count() == 2
    assert record.exclude(refusal="").count() == 3


def test_adm_03_thirty_are_rejected_with_one_reason(reviewer: Client, scripted: Any, run_turns: Any) -> None:
    for _ in range(30):
        make_approval()
    first = ToolApproval.objects.order_by("pk")[:1]
    page = choose(reviewer, "reject_selected", first, "?tool=pay", select_across="1")
    assert "30 rejected, 0 refused" in said(confirm(reviewer, page, LIST, reason="Not today."))
    provider = scripted(lambda request: "I see.")
    run_turns()
    assert provider.call_count == 30
    assert all("Not today." in request.messages[-1].content for request in provider.requests)
    assert set(AgentContext.objects.values_list("state", flat=True)) == {"completed"}


def test_select_all_takes_what_the_filter_shows_and_no_more_than_the_bound(
    reviewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deciding, "MAX_AT_ONCE", 2)
    rows = [make_approval() for _ in range(3)]
    other = make_approval("wipe", {"path": "/"})
    page = choose(reviewer, "approve_selected", rows[:1], "?tool=pay", select_across="1")
    assert "More than 2 requests match" in Page(page).text
    assert "2 approved, 0 refused" in said(confirm(reviewer, page, LIST))
    assert statuses() == ["approved", "approved", "pending", "pending"]
    assert other.tool not in Page(page).text.split("More than 2")[1]


@pytest.mark.slow
def test_a_list_that_matches_more_than_django_takes_fields_for_can_be_worked(reviewer: Client) -> None:
    story = make_approval()
    ApprovalDecision.objects.create(
        approval=story, approval_version=1, verdict="approve", refusal="x", channel="api", created_at=story.requested_at
    )
    ContextEntry.objects.create(
        turn=story.turn, kind="fact", key="k", value=1, created_at=story.requested_at, updated_at=story.requested_at
    )
    for _ in range(deciding.MAX_AT_ONCE):
        copy_story(story)
    page = choose(reviewer, "reject_selected", [story], select_across="1")
    answer = confirm(reviewer, page, LIST, reason="No.")
    assert said(answer)[0] == f"{deciding.MAX_AT_ONCE} rejected, 0 refused"


def test_nothing_selected_and_nothing_there_are_said(reviewer: Client) -> None:
    approval = make_approval()
    answer = reviewer.post(LIST, {"action": "approve_selected", "index": "0"}, follow=True)
    assert "Items must be selected" in said(answer)[0]
    answer = reviewer.post(LIST, {"action": "approve_selected", "index": "0", "_selected_action": "999"}, follow=True)
    assert "None of the selected requests" in said(answer)[0]
    assert statuses() == ["pending"]
    assert approval.version == 1


def test_a_request_that_needs_two_votes_says_that_it_still_waits() -> None:
    approval = make_approval("launch", {"name": "x"}, session=make_session(ADMIN_AGENT))
    told = act(staff(VIEW, DECIDE), "approve_selected", [approval])
    assert told == ["1 approved, 0 refused", f"More votes are needed for #{approval.pk}."]
    assert "1 of 2" in Page(superuser().get(page_url(approval))).text
    assert act(staff(VIEW, DECIDE), "approve_selected", [approval]) == ["1 approved, 0 refused"]
    assert statuses() == ["approved"]


def test_what_approving_an_unknown_outcome_means_is_said(reviewer: Client) -> None:
    approval = make_approval()
    ToolApproval.objects.update(kind="outcome")
    assert "Approving runs it again" in Page(choose(reviewer, "approve_selected", [approval])).text
    assert "Rejecting ends the turn" in Page(choose(reviewer, "reject_selected", [approval])).text


@pytest.mark.parametrize("value", ["1" * 5000, "9" * 30, "²", "-1", "1.5", "x", "\0", ""])
def test_hostile_numbers_are_refused_and_break_nothing(reviewer: Client, value: str) -> None:
    approval = make_approval()
    sent = {"action": "approve_selected", "post": "yes", "_selected_action": approval.pk}
    answer = reviewer.post(LIST, {**sent, f"version_{approval.pk}": value}, follow=True)
    assert "0 approved, 1 refused" in said(answer)
    address = page_url(approval, "approve")
    reviewer.post(address, {"post": "yes", f"version_{approval.pk}": value})
    assert statuses() == ["pending"]
    assert reviewer.get(f"{LIST}{value or 'x'}/approve/").status_code == 404
    assert reviewer.post(LIST, {**sent, "_selected_action": value}).status_code == 400


@pytest.mark.parametrize("note", ["x" * 10_001, "a\0b"])
def test_a_note_that_cannot_be_kept_is_refused(reviewer: Client, note: str) -> None:
    told = act(reviewer, "approve_selected", [make_approval()], note=note)
    assert told[0] == "0 approved, 1 refused"
    assert "note must be text" in told[1]
    assert statuses() == ["pending"]


# One approval's page


def test_the_page_of_an_approval_leads_to_its_confirmation_and_back(reviewer: Client) -> None:
    approval = make_approval()
    answer = press(reviewer, approval, "approve", note="fine")
    assert answer.redirect_chain == [(page_url(approval), 302)]
    assert "1 approved, 0 refused" in said(answer)
    page = Page(answer)
    for piece in ("Already approved.", "fine", reviewer.user.username):
        assert piece in page.text
    assert not page.forms or all(f"version_{approval.pk}" not in dict(form) for form in page.forms.values())


def test_the_page_of_an_approval_rejects_too(reviewer: Client) -> None:
    approval = make_approval()
    assert "1 rejected, 0 refused" in said(press(reviewer, approval, "reject", reason="no"))
    assert statuses() == ["rejected"]


def test_the_record_of_an_approval_shows_the_latest_entries_only(reviewer: Client) -> None:
    approval = make_approval()
    ApprovalDecision.objects.bulk_create(
        ApprovalDecision(
            approval=approval,
            approval_version=1,
            verdict="approve",
            refusal="permission_denied",
            actor_key="7",
            actor_name="pest",
            channel="api",
            note=f"attempt {number}.",
            created_at=approval.requested_at,
        )
        for number in range(120)
    )
    text = Page(superuser().get(page_url(approval))).text
    assert "attempt 119." in text
    assert "attempt 70." in text
    assert "attempt 69." not in text


# What is no longer true


def test_apr_04_a_request_that_changed_after_the_confirmation_page_is_refused(reviewer: Client) -> None:
    stale, fresh = make_approval(), make_approval()
    page = choose(reviewer, "approve_selected", [stale, fresh])
    ToolApproval.objects.filter(pk=stale.pk).update(version=2, arguments={"amount": 99, "to": "acme"})
    told = said(confirm(reviewer, page, LIST))
    assert told == ["1 approved, 1 refused", f"#{stale.pk}: The request changed, please look again."]
    assert statuses() == ["pending", "approved"]


def test_apr_04_an_old_page_of_an_approval_leads_to_what_is_there_now(reviewer: Client) -> None:
    approval = make_approval()
    form = Page(reviewer.get(page_url(approval))).sent_by(f"version_{approval.pk}")
    ToolApproval.objects.update(version=2, arguments={"amount": 99, "to": "acme"})
    shown = Page(reviewer.post(page_url(approval, "approve"), form))
    assert "The request changed, please look again." in shown.text
    assert '"amount": 99' in shown.text
    old = reviewer.post(page_url(approval, "approve"), {**form, "post": "yes"}, follow=True)
    assert said(old) == ["Not approved: The request changed, please look again."]
    assert statuses() == ["pending"]


def test_adm_10_what_was_decided_meanwhile_is_shown_as_that_and_refused(reviewer: Client) -> None:
    approval = make_approval()
    other = make_user("other", permissions=(DECIDE,))
    runtime.reject(approval.pk, other)
    page = choose(reviewer, "approve_selected", [approval])
    assert "Already rejected." in Page(page).text
    told = said(confirm(reviewer, page, LIST))
    assert told[0] == "0 approved, 1 refused"
    assert "already rejected, decided by other (reject)" in told[1]


def test_apr_05_a_double_click_is_one_decision(reviewer: Client, scripted: Any, run_turns: Any) -> None:
    page = choose(reviewer, "approve_selected", [make_approval()])
    answers = [confirm(reviewer, page, LIST) for _ in range(2)]
    assert [said(answer) for answer in answers] == [["1 approved, 0 refused"]] * 2
    scripted(["Done."])
    run_turns()
    assert len(ledger.entries) == 1
    assert ApprovalDecision.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_apr_05_two_people_in_the_admin_at_once_are_one_decision(scripted: Any, run_turns: Any) -> None:
    approval = make_approval()
    clients = [staff(VIEW, DECIDE), staff(VIEW, DECIDE)]
    pages = [choose(client, "approve_selected", [approval]) for client in clients]
    gate, told = threading.Barrier(2), []

    def click(client: Client, page: Any) -> None:
        try:
            gate.wait()
            told.append(said(confirm(client, page, LIST)))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=click, args=pair) for pair in zip(clients, pages, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(first for first, *_ in told) == ["0 approved, 1 refused", "1 approved, 0 refused"]
    [refused] = [reasons for _, *reasons in told if reasons]
    assert "already approved, decided by" in refused[0]
    scripted(["Done."])
    run_turns()
    assert len(ledger.entries) == 1
    assert ApprovalDecision.objects.filter(refusal="").count() == 1


@pytest.mark.parametrize("version", [{}, {"version": ""}, {"version": " "}], ids=["none", "empty", "blank"])
@pytest.mark.parametrize("way", ["approve", "reject"])
def test_apr_04_a_confirmation_that_names_no_version_is_refused(reviewer: Client, way: str, version: Any) -> None:
    approval, other = make_approval(), make_approval()
    fields = {f"version_{approval.pk}": value for value in version.values()}
    missing = "The version you saw is missing, please look again."
    sent = {"action": f"{way}_selected", "post": "yes", "_selected_action": [approval.pk, other.pk], **fields}
    told = said(reviewer.post(LIST, {**sent, f"version_{other.pk}": "1"}, follow=True))
    assert told[0].startswith("1 ")
    assert told[1:] == [f"#{approval.pk}: {missing}"]
    assert f"Not {way.removesuffix('e')}ed: {missing}" in said(
        reviewer.post(page_url(approval, way), {"post": "yes", **fields}, follow=True)
    )
    assert statuses()[0] == "pending"


# Who may not


def refused_everywhere(client: Client, approval: ToolApproval) -> None:
    """Try every way of the admin; none may answer with a decision or an error of the server."""
    sent = {"action": "approve_selected", "_selected_action": approval.pk, "post": "yes", "index": "0"}
    version = {f"version_{approval.pk}": "1"}
    answers = [
        client.post(LIST, {**sent, **version}),
        client.post(LIST, sent),
        client.post(LIST, {**sent, "action": "reject_selected"}),
        client.post(LIST, {**sent, "select_across": "1"}),
        client.post(LIST, {**sent, "action": ["", "approve_selected"], "index": "1"}),
        client.post(page_url(approval, "approve"), {**version, "post": "yes"}),
        client.post(page_url(approval, "reject"), {**version, "post": "yes"}),
        client.post(page_url(approval, "approve"), version),
        client.get(page_url(approval, "approve")),
        client.post(page_url(approval), {"status": "approved", "_save": "Save"}),
    ]
    assert {answer.status_code for answer in answers} <= {302, 403, 404}
    assert set(statuses()) == {"pending"}
    assert ApprovalDecision.objects.filter(refusal="").count() == 0
    assert ledger.entries == []


NOT_ALLOWED = {
    "staff without rights": (),
    "staff who may view": (VIEW,),
    "staff who may view all": VIEW_ALL,
    "staff who may change": ("agentcore.change_toolapproval", VIEW),
    "staff with the team's permission only": (TEAM, VIEW),
}


@pytest.mark.parametrize("permissions", NOT_ALLOWED.values(), ids=NOT_ALLOWED.keys())
def test_ten_07_staff_is_not_reviewer(permissions: tuple[str, ...]) -> None:
    approval = make_approval()
    client = staff(*permissions)
    if permissions:
        page = client.get(LIST).content.decode()
        assert "approve_selected" not in page
        assert "formaction" not in client.get(page_url(approval)).content.decode()
    refused_everywhere(client, approval)


@pytest.mark.parametrize("permissions", [(VIEW, DECIDE), (DECIDE,)], ids=["sees all", "decides only"])
def test_ten_07_a_reviewer_of_another_team_is_refused_and_the_right_one_accepted(permissions: tuple[str, ...]) -> None:
    approval = make_approval("team_pay", {"amount": 5}, session=make_session(ADMIN_AGENT))
    client = staff(*permissions)
    refused_everywhere(client, approval)
    assert "formaction" not in client.get(page_url(approval)).content.decode()
    told = act(staff(*permissions, TEAM), "approve_selected", [approval])
    assert told == ["1 approved, 0 refused"]


def test_apr_25_who_is_no_staff_decides_nothing_here() -> None:
    approval = make_approval()
    refused_everywhere(Client(), approval)
    refused_everywhere(logged_in(make_user(permissions=(DECIDE, VIEW))), approval)
    refused_everywhere(staff(DECIDE, VIEW, is_active=False), approval)


def test_apr_25_what_one_may_not_see_does_not_exist() -> None:
    approval = make_approval("team_pay", {"amount": 5}, session=make_session(ADMIN_AGENT))
    client = staff(DECIDE)
    there, absent = [
        client.post(f"{LIST}{pk}/approve/", {"post": "yes", f"version_{pk}": "1"}) for pk in (approval.pk, 999_999)
    ]
    assert (there.status_code, there.content) == (404, absent.content)
    sent = {"action": "approve_selected", "post": "yes"}
    told = [said(client.post(LIST, {**sent, "_selected_action": pk}, follow=True))[1] for pk in (approval.pk, 999_999)]
    assert [text.partition(": ")[2] for text in told] == ["There is no such request."] * 2


@pytest.mark.parametrize("permissions", [(), (VIEW,), (VIEW, DECIDE)], ids=["none", "view", "other team"])
def test_apr_25_refused_attempts_are_on_record(permissions: tuple[str, ...]) -> None:
    approval = make_approval("team_pay", {"amount": 5}, session=make_session(ADMIN_AGENT))
    client = staff(*permissions)
    version = {f"version_{approval.pk}": "1"}
    client.post(LIST, {"action": "approve_selected", "_selected_action": approval.pk, "post": "yes", **version})
    client.post(page_url(approval, "reject"), {"post": "yes", **version})
    attempts = ApprovalDecision.objects.order_by("pk").values_list("actor_name", "channel", "refusal", "verdict")
    name = client.user.username
    assert list(attempts) == [
        (name, "admin", "permission_denied", "approve"),
        (name, "admin", "permission_denied", "reject"),
    ]


@pytest.mark.parametrize("kind", ["reviewer", "superuser"])
def test_apr_26_nobody_approves_their_own_request(kind: str) -> None:
    client = superuser() if kind == "superuser" else staff(VIEW, DECIDE)
    approval = make_approval(user=client.user)
    told = act(client, "approve_selected", [approval])
    assert told[0] == "0 approved, 1 refused"
    assert "own request" in told[1]
    page = Page(client.get(page_url(approval)))
    assert "Nobody decides on their own request" in page.text
    forced = client.post(page_url(approval, "approve"), {"post": "yes"}, follow=True)
    assert said(forced) == ["Not approved: " + OWN]
    assert statuses() == ["pending"]


def test_apr_26_who_may_only_decide_is_told_why_their_own_request_is_refused() -> None:
    client = staff(DECIDE)
    approval = make_approval(user=client.user)
    sent = {"action": "approve_selected", "_selected_action": approval.pk, f"version_{approval.pk}": "1"}
    answers = [
        client.post(LIST, {**sent, "index": "0"}, follow=True),
        client.post(LIST, {**sent, "post": "yes"}, follow=True),
        client.post(page_url(approval, "approve"), {**sent, "post": "yes"}, follow=True),
    ]
    for answer in answers:
        assert "Nobody decides on their own request" in said(answer)[-1]
    assert statuses() == ["pending"]


def test_apr_26_a_request_of_a_deleted_user_is_decided_by_nobody() -> None:
    owner = make_user()
    approval = make_approval(user=owner)
    owner.delete()
    assert act(superuser(), "approve_selected", [approval])[0] == "0 approved, 1 refused"
    assert statuses() == ["pending"]


def test_apr_26_without_four_eyes_ones_own_request_may_be_approved() -> None:
    client = staff(VIEW, DECIDE)
    approval = make_approval("tidy", {"name": "x"}, session=make_session(ADMIN_AGENT, user=client.user))
    assert act(client, "approve_selected", [approval]) == ["1 approved, 0 refused"]


def test_adm_05_the_record_names_who_was_logged_in_whatever_the_form_says(reviewer: Client) -> None:
    page = choose(reviewer, "approve_selected", [make_approval()])
    confirm(reviewer, page, LIST, approved_by="boss", by="boss", actor="1", channel="system", note="ok")
    decision = ApprovalDecision.objects.get()
    assert (decision.actor, decision.actor_name, decision.channel) == (reviewer.user, reviewer.user.username, "admin")
    assert len(decision.arguments_digest) == 64


@pytest.mark.django_db(transaction=True)
def test_adm_05_attempts_stay_on_record_when_each_request_is_one_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    approval, other = make_approval("team_pay", {"amount": 5}, session=make_session(ADMIN_AGENT)), make_approval()
    viewer, reviewer = staff(VIEW), staff(VIEW, DECIDE)
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    assert viewer.post(page_url(approval, "approve"), {"post": "yes"}).status_code == 403
    sent = {"action": "approve_selected", "_selected_action": approval.pk, "post": "yes"}
    assert viewer.post(LIST, sent).status_code == 403
    assert ApprovalDecision.objects.filter(refusal="permission_denied").count() == 2
    assert act(reviewer, "approve_selected", [approval, other])[0] == "1 approved, 1 refused"
    assert statuses() == ["pending", "approved"]


# The web


def test_apr_28_opening_pages_decides_nothing(reviewer: Client) -> None:
    approval = make_approval()
    seen, waiting = set(), ["/admin/", LIST, page_url(approval), page_url(approval, "approve")]
    while waiting:
        address = waiting.pop()
        seen.add(address)
        answer = reviewer.get(address)
        reviewer.head(address)
        Client().get(address)
        if answer.status_code == 200:
            page = Page(answer)
            found = [*page.links, *[given["formaction"] or "" for _, given in page.elements if "formaction" in given]]
            waiting += [link for link in found if link.startswith("/admin/") and link not in {*seen, *waiting}]
    assert {page_url(approval, "approve"), page_url(approval, "reject")} <= seen
    query = f"?action=approve_selected&_selected_action={approval.pk}&post=yes&version_{approval.pk}=1&index=0"
    for address in (LIST, page_url(approval, "approve")):
        reviewer.get(address + query)
        reviewer.head(address + query)
    assert reviewer.put(page_url(approval, "approve") + query).status_code == 405
    assert statuses() == ["pending"]
    assert not ApprovalDecision.objects.exists()


def test_apr_28_a_post_without_the_csrf_token_is_refused() -> None:
    approval = make_approval()
    client = logged_in(make_user(permissions=(VIEW, DECIDE), is_staff=True), enforce_csrf_checks=True)
    sent = {"action": "approve_selected", "_selected_action": approval.pk, "post": "yes", f"version_{approval.pk}": "1"}
    for address in (LIST, page_url(approval, "approve"), page_url(approval, "reject")):
        assert client.post(address, sent).status_code == 403
    assert statuses() == ["pending"]
    token = Page(client.get(page_url(approval, "approve"))).sent_by("post")
    assert client.post(page_url(approval, "approve"), token).status_code == 302
    assert statuses() == ["approved"]


def test_apr_29_pages_that_decide_may_not_be_framed(reviewer: Client) -> None:
    approval = make_approval()
    pages = [
        reviewer.get(LIST),
        reviewer.get(page_url(approval)),
        reviewer.get(page_url(approval, "approve")),
        choose(reviewer, "approve_selected", [approval]),
    ]
    assert [page.headers["X-Frame-Options"] for page in pages] == ["DENY"] * 4


def test_a_decision_in_the_admin_is_in_the_log_of_the_session(reviewer: Client) -> None:
    approval = make_approval()
    act(reviewer, "approve_selected", [approval], note="fine")
    event = SessionEvent.objects.get(type="tool.approval.granted")
    assert (event.data["by"], event.data["reason"]) == (reviewer.user.username, "fine")
    assert approval.pk in listed(reviewer, "?status=approved")
    assert list_url(ToolApproval) == LIST
