"""Every verdict in the admin: approve with edits, answer in the tool's place, and how a call ended."""

import json
from typing import Any

import pytest
from django.test import Client

from agentcore import ApprovalPolicy, agent, canonical, runtime, tool
from agentcore.agents.registry import registry
from agentcore.approvals import throttling
from agentcore.engine import loop
from agentcore.models import AgentContext, ApprovalDecision, ToolApproval, ToolCall, ToolOverride
from agentcore.testing import assert_invariants, calls, make_approval, make_session, make_turn, make_user
from agentcore.testing.agents import ledger
from agentcore.turns import steps
from tests.integration.admin_pages import (
    ADMIN_AGENT,
    DECIDE,
    VIEW,
    Page,
    act,
    choose,
    confirm,
    list_url,
    page_url,
    said,
    staff,
    statuses,
    superuser,
)

pytestmark = pytest.mark.django_db

SECRETS = {"url": "https://h", "headers": {"Authorization": "Bearer sk-123"}, "api_key": "k-9", "pin": "p-4711"}

CHANGED = {"amount": 99, "to": "acme"}


@pytest.fixture(autouse=True)
def _clean_ledger() -> None:
    ledger.clear()


@pytest.fixture
def reviewer() -> Client:
    return staff(VIEW, DECIDE)


def send(client: Client, approval: ToolApproval, way: str, *, version: int | None = 1, **data: str) -> Any:
    """Press the button of a decision's page."""
    shown = {} if version is None else {f"version_{approval.pk}": str(version)}
    return client.post(page_url(approval, way), {"post": "yes", **shown, **data}, follow=True)


def buttons(response: Any) -> list[str]:
    """Return the ways to decide that a page offers."""
    found = (given.get("formaction") or "" for _, given in Page(response).elements)
    return [address.rstrip("/").rpartition("/")[2] for address in found if address]


def area(response: Any, name: str) -> str:
    """Return what a text area of a page holds."""
    return Page(response).areas[name]


class Died(BaseException):
    """Stands for SIGKILL: nothing after it is written."""


def die(*args: Any, **kwargs: Any) -> None:
    raise Died


@pytest.fixture
def outcome(scripted: Any, monkeypatch: pytest.MonkeyPatch, clock: Any, run_turns: Any) -> ToolApproval:
    """A request that asks how a call ended: its worker died right after the effect."""
    scripted([calls(("charge", {"n": 5})), "Done."])
    turn = make_turn(user=make_user())
    with monkeypatch.context() as patch:
        patch.setattr(steps, "record_result", die)
        with pytest.raises(Died):
            loop.run(turn.execution_id)
    clock.advance(3_600)
    runtime.recover()
    run_turns()
    return ToolApproval.objects.get(kind="outcome")


# Approve with edits


def test_apr_02_an_edit_runs_the_new_arguments_and_the_record_keeps_both(
    reviewer: Client, scripted: Any, run_turns: Any
) -> None:
    approval = make_approval(arguments={"amount": 500, "to": "acme"})
    page = reviewer.get(page_url(approval, "edit"))
    assert json.loads(area(page, "arguments")) == {"amount": 500, "to": "acme"}
    answer = send(reviewer, approval, "edit", arguments='{"amount": 50, "to": "acme"}', note="a tenth")
    assert "1 approved, 0 refused" in said(answer)
    provider = scripted(["Done."])
    run_turns()
    assert ledger.entries == [("pay", 50, "acme")]
    assert "person" in provider.requests[0].messages[-1].content
    approval.refresh_from_db()
    assert (approval.arguments["amount"], approval.approved_arguments["amount"]) == (500, 50)
    decision = ApprovalDecision.objects.get()
    assert (decision.actor, decision.channel, decision.note) == (reviewer.user, "admin", "a tenth")
    assert_invariants()


@pytest.mark.parametrize(
    "arguments",
    [
        "[]",
        "null",
        '{"amount": "ten", "to": "acme"}',
        '{"amount": -1, "to": "acme"}',
        '{"amount": 5, "to": "acme", "admin": true}',
        "{amount: 5}",
        "",
        '{"amount": 5, "amount": 6, "to": "acme"}',
        '{"amount": 5, "to": "a\\u0000b"}',
    ],
)
def test_apr_03_a_wrong_edit_is_refused_beside_what_was_typed(reviewer: Client, arguments: str) -> None:
    approval = make_approval()
    answer = send(reviewer, approval, "edit", arguments=arguments, note="kept")
    assert answer.status_code == 400
    assert area(answer, "arguments") == arguments
    assert area(answer, "note") == "kept"
    [error] = [given for tag, given in Page(answer).elements if given.get("id") == "id_arguments_error"]
    [box] = [given for tag, given in Page(answer).elements if tag == "textarea" and given["name"] == "arguments"]
    assert error["id"] in (box["aria-describedby"] or "")
    assert statuses() == ["pending"]
    assert ToolApproval.objects.get().version == 1
    assert AgentContext.objects.get().state == "waiting_for_approval"
    assert ledger.entries == []


def test_apr_34_an_edit_starts_from_masked_secrets_and_keeps_them(
    reviewer: Client, scripted: Any, run_turns: Any
) -> None:
    approval = make_approval("fetch", {**SECRETS, "note": "hi"}, session=make_session(ADMIN_AGENT))
    page = reviewer.get(page_url(approval, "edit"))
    text = area(page, "arguments")
    assert not [secret for secret in ("sk-123", "k-9", "p-4711") if secret in page.content.decode()]
    answer = send(reviewer, approval, "edit", arguments=text.replace("hi", "hello"))
    assert said(answer) == ["1 approved, 0 refused"]
    assert "sk-123" not in answer.content.decode()
    scripted(["Done."])
    run_turns()
    assert ledger.entries == [("fetch", "Bearer sk-123", "k-9", "p-4711")]
    assert ToolCall.objects.get().arguments["note"] == "hello"


def test_hidden_characters_are_escapes_where_arguments_are_edited_and_survive(reviewer: Client) -> None:
    hidden = "a\u202eb\u200bc"
    approval = make_approval(arguments={"amount": 1, "to": hidden})
    text = area(reviewer.get(page_url(approval, "edit")), "arguments")
    assert "a\\u202eb\\u200bc" in text
    assert send(reviewer, approval, "edit", arguments=text).redirect_chain
    approval.refresh_from_db()
    assert approval.approved_arguments["to"] == hidden


def test_a_tool_that_allows_no_edit_offers_none_and_takes_none(reviewer: Client) -> None:
    @agent(name="rigid", model="scripted:any")
    class Rigid:
        @tool(requires_approval=True, approval=ApprovalPolicy(allow_edit=False))
        def pay(self, amount: int) -> str:
            """Pay"""
            return "paid"

    try:
        approval = make_approval("pay", {"amount": 1}, session=make_session("rigid"))
        assert buttons(reviewer.get(page_url(approval))) == ["approve", "respond", "reject"]
        shown = Page(reviewer.get(page_url(approval, "edit")))
        assert "may not be changed" in shown.text
        told = said(send(reviewer, approval, "edit", arguments='{"amount": 2}'))
        assert told[0].startswith("Not approved: The arguments of this tool may not be edited.")
        assert statuses() == ["pending"]
    finally:
        registry.unregister("rigid")


def test_who_has_voted_may_still_edit_and_the_others_see_the_difference() -> None:
    approval = make_approval("launch", {"name": "x"}, session=make_session(ADMIN_AGENT))
    first, second = staff(VIEW, DECIDE), staff(VIEW, DECIDE)
    assert act(first, "approve_selected", [approval])[0] == "1 approved, 0 refused"
    page = first.get(page_url(approval))
    assert buttons(page) == []
    assert "You have voted; it waits for others." in Page(page).text
    assert "You have voted" in Page(choose(first, "approve_selected", [approval])).text
    send(first, approval, "edit", arguments='{"name": "y"}')
    page = second.get(page_url(approval))
    assert buttons(page) == ["approve", "edit", "respond", "reject"]
    difference = Page(page)
    assert ("del", "ins") == tuple(tag for tag, _ in difference.elements if tag in ("del", "ins"))
    assert statuses() == ["pending"]


# Answer in the tool's place


@pytest.mark.parametrize(
    ("typed", "result", "told"),
    [
        ('{"refund_id": "R-1"}', {"refund_id": "R-1"}, '{"refund_id":"R-1"}'),
        ("By hand.\r\nOK", "By hand.\nOK", "By hand."),
        ("NaN", "NaN", "NaN"),
    ],
)
def test_an_answer_reaches_the_model_and_the_tool_does_not_run(
    reviewer: Client, scripted: Any, run_turns: Any, typed: str, result: Any, told: str
) -> None:
    approval = make_approval()
    assert said(send(reviewer, approval, "respond", result=typed, note="n")) == ["1 answered, 0 refused"]
    provider = scripted(["I see."])
    run_turns()
    assert ledger.entries == []
    assert told in provider.requests[0].messages[-1].content
    approval.refresh_from_db()
    assert (approval.status, approval.response) == ("responded", result)
    shown = Page(reviewer.get(page_url(approval))).text
    assert "Already responded." in shown


def test_an_empty_answer_is_refused_beside_the_field(reviewer: Client) -> None:
    approval = make_approval()
    answer = send(reviewer, approval, "respond", result="  ", note="kept")
    assert answer.status_code == 400
    assert "Give the result that the agent is told." in Page(answer).text
    assert area(answer, "note") == "kept"
    assert statuses() == ["pending"]


def test_an_answer_that_is_too_large_is_refused_beside_the_field(reviewer: Client, settings: Any) -> None:
    settings.AGENTCORE = {**settings.AGENTCORE, "MAX_ARGUMENT_BYTES": 100}
    answer = send(reviewer, make_approval(), "respond", result="x" * 200)
    assert answer.status_code == 413
    assert "over 100 bytes" in Page(answer).text
    assert area(answer, "result") == "x" * 200


# How a call ended


@pytest.mark.django_db(transaction=True)
def test_the_words_of_an_unknown_outcome_say_what_each_does(reviewer: Client, outcome: ToolApproval) -> None:
    page = reviewer.get(page_url(outcome))
    assert buttons(page) == ["approve", "respond", "reject"]
    values = [given.get("value") for _, given in Page(page).elements if given.get("formaction")]
    assert values == ["Run it again", "This is the result", "End the turn"]
    for words in ("nobody knows how it ended", "Approving runs it again", "taken as its result", "ends the turn"):
        assert words in Page(page).text
    for way, value in zip(("approve", "respond", "reject"), values, strict=True):
        shown = Page(reviewer.get(page_url(outcome, way)))
        assert value in [given.get("value") for tag, given in shown.elements if given.get("type") == "submit"]
        assert "nobody knows how it ended" in shown.text


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("way", "data", "state", "runs"),
    [
        ("approve", {}, "completed", 2),
        ("respond", {"result": '{"charged": 5}'}, "completed", 1),
        ("reject", {"reason": "Give up."}, "failed", 1),
    ],
)
def test_an_unknown_outcome_is_decided_in_each_way(
    reviewer: Client, outcome: ToolApproval, run_turns: Any, way: str, data: dict[str, str], state: str, runs: int
) -> None:
    assert said(send(reviewer, outcome, way, **data))[0].endswith(", 0 refused")
    run_turns()
    assert len(ledger.entries) == runs
    assert AgentContext.objects.get().state == state


# What is no longer true


@pytest.mark.parametrize("version", [1, None], ids=["old", "none"])
@pytest.mark.parametrize(
    ("way", "typed"),
    [
        ("approve", {"note": "my note"}),
        ("reject", {"reason": "my reason"}),
        ("respond", {"result": "my result", "note": "my note"}),
        ("edit", {"arguments": '{"amount": 7, "to": "me"}', "note": "my note"}),
    ],
)
def test_apr_04_an_old_page_is_refused_and_shows_what_is_there_now(
    reviewer: Client, way: str, typed: dict[str, str], version: int | None
) -> None:
    approval = make_approval()
    ToolApproval.objects.update(version=2, arguments=CHANGED, arguments_digest=canonical.digest(CHANGED))
    answer = send(reviewer, approval, way, version=version, **typed)
    shown = Page(answer)
    assert answer.status_code == 409
    assert "please look again" in " ".join(said(answer))
    assert '"amount": 99' in shown.text
    assert {name: area(answer, name) for name in typed} == typed
    assert (statuses(), ledger.entries) == (["pending"], [])
    again = reviewer.post(page_url(approval, way), {**shown.sent_by("post"), **typed}, follow=True)
    assert said(again)[0].endswith(", 0 refused") if way != "edit" else again.redirect_chain
    assert statuses() != ["pending"]


def test_apr_04_many_at_once_show_again_those_that_changed_and_keep_the_note(reviewer: Client) -> None:
    stale, fresh, decided = make_approval(), make_approval(), make_approval()
    page = choose(reviewer, "approve_selected", [stale, fresh, decided])
    ToolApproval.objects.filter(pk=stale.pk).update(
        version=2, arguments=CHANGED, arguments_digest=canonical.digest(CHANGED)
    )
    runtime.reject(decided.pk, make_user(permissions=(DECIDE,)))
    answer = confirm(reviewer, page, list_url(ToolApproval), note="month's end")
    shown = Page(answer)
    assert said(answer)[0] == "1 approved, 2 refused"
    assert (area(answer, "note"), '"amount": 99' in shown.text) == ("month's end", True)
    assert shown.sent_by("post")["_selected_action"] == [str(stale.pk)]
    assert said(confirm(reviewer, answer, list_url(ToolApproval), note="ok")) == ["1 approved, 0 refused"]


def test_apr_35_a_tool_that_changed_asks_again_on_the_same_page(reviewer: Client) -> None:
    approval = make_approval()
    ToolApproval.objects.update(fingerprint="0" * 64)
    answer = send(reviewer, approval, "approve", note="fine")
    assert "The tool changed since this was asked for" in said(answer)[0]
    assert area(answer, "note") == "fine"
    assert Page(answer).sent_by("post")[f"version_{approval.pk}"] == ["2"]
    assert ledger.entries == []


def test_a_throttled_attempt_is_a_message_and_keeps_what_was_typed(
    reviewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttling, "MAX_REFUSED", 2)
    approval = make_approval()
    answers = [send(reviewer, approval, "approve", version=9, note="kept") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [409, 409, 429]
    assert any("Too many of your attempts were refused" in text for text in said(answers[-1]))
    assert area(answers[-1], "note") == "kept"
    assert said(send(reviewer, approval, "approve")) == ["1 approved, 0 refused"]


# Who may not


@pytest.mark.parametrize("way", ["edit", "respond"])
@pytest.mark.parametrize("permissions", [(), (VIEW,), ("agentcore.change_toolapproval", VIEW)])
def test_apr_25_who_may_not_decide_cannot_edit_or_answer(permissions: tuple[str, ...], way: str) -> None:
    approval = make_approval()
    client = staff(*permissions)
    data = {"arguments": '{"amount": 1, "to": "me"}', "result": "x"}
    assert client.get(page_url(approval, way)).status_code in (302, 403, 404)
    assert send(client, approval, way, **data).status_code in (302, 403, 404)
    assert statuses() == ["pending"]
    refused = ApprovalDecision.objects.get()
    assert (refused.refusal, refused.channel) == ("permission_denied", "admin")


@pytest.mark.parametrize("way", ["approve", "edit", "respond", "reject"])
def test_apr_26_nobody_decides_their_own_request_in_any_way(way: str) -> None:
    client = superuser()
    approval = make_approval(user=client.user)
    told = said(send(client, approval, way, arguments='{"amount": 1, "to": "me"}', result="x"))
    assert "own request" in told[0]
    assert buttons(client.get(page_url(approval))) == []
    assert statuses() == ["pending"]


@pytest.mark.parametrize("way", ["edit", "respond"])
def test_apr_28_opening_the_page_of_a_decision_decides_nothing(reviewer: Client, way: str) -> None:
    approval = make_approval()
    query = f"?post=yes&version_{approval.pk}=1&result=x&arguments=%7B%7D"
    for address in (page_url(approval, way), page_url(approval, way) + query):
        assert reviewer.get(address).status_code == 200
        assert reviewer.head(address).status_code == 200
    assert not ApprovalDecision.objects.exists()


@pytest.mark.parametrize("way", ["approve", "edit", "respond", "reject", "history"])
def test_apr_29_no_page_of_a_request_may_be_framed(reviewer: Client, way: str) -> None:
    assert reviewer.get(page_url(make_approval(), way)).headers["X-Frame-Options"] == "DENY"


@pytest.mark.parametrize("model", [ToolOverride, ApprovalDecision, AgentContext])
def test_apr_29_no_page_of_ours_may_be_framed_whatever_middleware_there_is(settings: Any, model: Any) -> None:
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if "XFrameOptions" not in name]
    boss = Client()
    boss.force_login(make_user("boss", is_staff=True, is_superuser=True))
    assert boss.get(list_url(model)).headers["X-Frame-Options"] == "DENY"
