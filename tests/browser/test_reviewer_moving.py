"""The reviewers' pages in Chromium, while things change: nothing written is lost, and every key leads where it says."""

import json
import re

import pytest
from playwright.sync_api import Page, Route, expect

from agentcore.reviews import reading
from tests.browser.conftest import Demo, MakePerson
from tests.browser.reviewing import ask, forgive_refusals, is_live, make_second_reviewer, row, status_of, write
from tests.browser.test_story import _assert_fits

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

EDIT = {"arguments": {"order_id": "12345", "amount": "9.00"}}


def _change(demo: Demo, approval_id: int) -> None:
    demo.call("second", "POST", f"approvals/{approval_id}/approve/", EDIT)


def test_what_somebody_writes_is_kept_when_the_request_changes(demo: Demo, person: MakePerson) -> None:
    reviewer = person("reviewer")
    approval_id = ask(demo)
    write(demo, "UPDATE agentcore_toolapproval SET votes_needed = 2 WHERE id = ?", approval_id)
    make_second_reviewer(demo)
    page = reviewer.open(f"/reviews/{approval_id}/?in=tool%3Dprocess_refund")
    is_live(page)
    reason = page.get_by_label("Reason, told to the agent")
    reason.focus()
    page.keyboard.type("They never ")
    _change(demo, approval_id)
    expect(page.get_by_text("This request changed. Look at it again before you decide.")).to_be_visible()
    expect(reason).to_be_focused()
    page.keyboard.type("sent it back")
    reviewer.shoot("reviewer-changed-while-writing", whole=True)
    # What would have sent the form shows the request as it is now.
    page.keyboard.press("Control+Enter")
    changed = page.get_by_role("region", name="What changed since you looked")
    expect(changed.locator(".changes__old")).to_contain_text("49.90")
    expect(changed.locator(".changes__new")).to_contain_text("9.00")
    expect(page.get_by_label("Reason, told to the agent")).to_have_value("They never sent it back")
    expect(page.get_by_role("link", name="All requests")).to_have_attribute("href", re.compile("tool=process_refund$"))
    assert status_of(demo, approval_id) == "pending"
    page.get_by_role("button", name="Reject", exact=True).click()
    expect(page.get_by_text("Rejected. process_refund does not run.")).to_be_visible()
    expect(page.get_by_text("They never sent it back", exact=True)).to_be_visible()


def test_a_key_shows_the_request_as_it_is_now_with_the_edit_begun(demo: Demo, person: MakePerson) -> None:
    reviewer = person("reviewer")
    approval_id = ask(demo)
    write(demo, "UPDATE agentcore_toolapproval SET votes_needed = 2 WHERE id = ?", approval_id)
    make_second_reviewer(demo)
    page = reviewer.open(f"/reviews/{approval_id}/")
    is_live(page)
    page.keyboard.press("s")
    expect(page.locator("[data-announce]")).to_have_text("The request has not changed.")
    page.keyboard.press("e")
    page.get_by_label("order_id").fill("12345-b")
    _change(demo, approval_id)
    expect(page.locator("[data-changed]")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("s")
    expect(page.get_by_role("region", name="What changed since you looked")).to_be_visible()
    expect(page.get_by_label("order_id")).to_have_value("12345-b")
    expect(page.get_by_label("amount")).to_have_value("9.00")


def test_many_are_rejected_by_keyboard_alone(demo: Demo, person: MakePerson) -> None:
    reviewer = person("reviewer")
    approvals = [ask(demo) for _ in range(3)]
    page = reviewer.open("/reviews/?tool=process_refund")
    is_live(page)
    press = page.keyboard.press
    press("b")
    expect(page.locator("[data-announce]")).to_have_text("Nothing is selected.")
    for key in ("j", "x", "j", "x", "b"):
        press(key)
    expect(page.get_by_label("Note; of a rejection, the reason")).to_be_focused()
    page.keyboard.type("Not this week, b")
    press("Control+Enter")
    confirm = page.locator("[data-bulk] [data-part=confirm]")
    expect(confirm).to_contain_text("Press Enter to reject the 2 selected requests")
    reviewer.shoot("reviewer-bulk-asks")
    press("Escape")
    expect(confirm).to_be_hidden()
    assert [status_of(demo, one) for one in approvals] == ["pending"] * 3
    for key in ("b", "Control+Enter", "Enter"):
        press(key)
    expect(page.get_by_role("heading", name="2 decided, 0 refused")).to_be_visible()
    expect(page.get_by_text("Not this week, b", exact=True)).to_be_visible()
    reviewer.shoot("reviewer-bulk-reason")
    press("u")
    expect(page).to_have_url(f"{demo.url}/reviews/?tool=process_refund")
    assert [status_of(demo, one) for one in approvals] == ["rejected", "rejected", "pending"]
    is_live(page)
    press("j")
    press("i")
    expect(page.get_by_label("Result, as JSON or plain text")).to_be_focused()
    expect(page).to_have_url(re.compile(r"/reviews/\d+/\?in=tool%3Dprocess_refund"))


def test_a_key_pressed_before_the_script_is_there_counts(demo: Demo, person: MakePerson) -> None:
    reviewer = person("reviewer")
    approval_id = ask(demo)
    page = reviewer.open("/reviews/")
    is_live(page)
    held: list[Route] = []
    page.route("**/reviews/keys.js", lambda route: held.append(route))
    page.reload(wait_until="commit")
    expect(row(page, approval_id)).to_be_visible()
    for key in ("j", "x", "Enter"):
        page.keyboard.press(key)
    expect(row(page, approval_id)).not_to_be_focused()
    held[0].continue_()
    expect(row(page, approval_id)).to_be_focused()
    expect(row(page, approval_id).locator("input[name=chosen]")).to_be_checked()
    expect(page).to_have_url(f"{demo.url}/reviews/")


def test_a_row_that_arrives_shows_its_values_as_they_are(demo: Demo, person: MakePerson) -> None:
    reviewer = person("reviewer")
    given = {"lines": "one\ntwo", "word": "null", "nothing": None, "room": "a   b", **{f"n{n}": n for n in range(4)}}
    write(
        demo,
        "CREATE TRIGGER given AFTER INSERT ON agentcore_toolapproval BEGIN UPDATE agentcore_toolapproval SET "
        f"votes_needed = 2, arguments = '{json.dumps(given)}' WHERE id = NEW.id; END",
    )
    page = reviewer.open("/reviews/")
    is_live(page)
    reviewer.stay()
    approval_id = ask(demo)
    _shows_given(page, approval_id)
    assert reviewer.has_stayed()
    page.reload()
    _shows_given(page, approval_id)
    reviewer.shoot("reviewer-row-as-it-is")


def _shows_given(page: Page, approval_id: int) -> None:
    found = row(page, approval_id)
    expect(found.locator("dd")).to_contain_text(["one⏎two", '"null"', "null", "a   b", "0", "1"])
    expect(found.get_by_text("and 2 more")).to_be_visible()
    expect(found.get_by_text("Too long to decide here: open it.")).to_be_visible()
    expect(found.get_by_text("0 of 2 approvals given")).to_be_visible()
    expect(found.get_by_role("button")).to_have_count(0)


def test_the_script_writes_values_as_the_server_does(person: MakePerson) -> None:
    page = person("reviewer").open("/reviews/")
    values = [
        "null",
        "tRue",
        "12",
        "1e5",
        "01",
        "-",
        "{}",
        "[1",
        "NaN",
        '"a"',
        " 1 ",
        "a\nb",
        "",
        " ",
        None,
        True,
        "x" * 90,
    ]
    shown = page.evaluate(
        "(values) => values.map((value) => agentcore.text.short(agentcore.text.textOf(value)))", values
    )
    assert shown == [reading.short("", value).text for value in values]


def test_a_vote_is_seen_by_the_others_and_leaves_ones_own_queue(demo: Demo, person: MakePerson) -> None:
    approval_id = ask(demo)
    write(demo, "UPDATE agentcore_toolapproval SET votes_needed = 2 WHERE id = ?", approval_id)
    make_second_reviewer(demo)
    first, second = person("reviewer"), person("second")
    for one in (first, second):
        is_live(one.open("/reviews/"))
    expect(row(first.page, approval_id).get_by_role("button", name="Approve 1 of 2 approvals")).to_be_visible()
    demo.call("second", "POST", f"approvals/{approval_id}/approve/", {})
    expect(row(first.page, approval_id).get_by_role("button", name="Approve 2 of 2 approvals")).to_be_visible()
    expect(row(second.page, approval_id).get_by_text("You have voted; it waits for others.")).to_be_visible()
    expect(second.page.get_by_text("Nothing waits for you.")).to_be_visible()
    expect(first.page.get_by_text("1 request waits for you.")).to_be_visible()


@pytest.mark.parametrize("width", [360, pytest.param(1280, marks=pytest.mark.slow)])
def test_a_call_in_doubt_says_what_is_known_and_what_each_verdict_does(
    demo: Demo, person: MakePerson, width: int
) -> None:
    reviewer = person("reviewer", viewport={"width": width, "height": 860})
    approval_id = ask(demo)
    write(demo, "UPDATE agentcore_toolapproval SET kind = 'outcome', allow_edit = 0 WHERE id = ?", approval_id)
    late = json.dumps({"refund": 7, "amount": "49.90"})
    write(demo, "UPDATE agentcore_toolcall SET late_result = ?, attempts = 1, status = 'unknown'", late)
    page = reviewer.open("/reviews/")
    is_live(page)
    page.keyboard.press("j")
    page.keyboard.press("a")
    expect(page.locator("[data-announce]")).to_have_text("Decide it on its own page.")
    reviewer.shoot(f"reviewer-doubt-row-{width}")
    page.keyboard.press("Enter")
    is_live(page)
    expect(page.get_by_role("region", name="What is known")).to_contain_text('"refund": 7')
    page.keyboard.press("a")
    expect(page.locator("[data-announce]")).to_have_text("Press Enter to run process_refund again, Escape to go back.")
    page.keyboard.press("Escape")
    if width == 360:
        _assert_fits(reviewer, "reviewer-doubt")
    reviewer.shoot(f"reviewer-doubt-{width}", whole=True)
    assert status_of(demo, approval_id) == "pending"


def test_a_wrong_field_has_the_focus_without_javascript_too(demo: Demo, person: MakePerson) -> None:
    reviewer = person("reviewer", java_script_enabled=False)
    page = reviewer.open(f"/reviews/{ask(demo)}/")
    page.locator("summary").get_by_text("Change the arguments").click()
    page.get_by_label("amount").fill("forty")
    page.get_by_role("button", name="Run it with these").click()
    expect(page.get_by_label("amount")).to_be_focused()
    page.locator("summary").get_by_text("Answer in its place").click()
    page.get_by_label("Result, as JSON or plain text").fill("{half")
    page.get_by_role("button", name="Give this result").click()
    expect(page.get_by_label("Result, as JSON or plain text")).to_be_focused()
    reviewer.shoot("reviewer-half-json", whole=True)
    page.get_by_label("It is text, also if it looks like JSON").check()
    page.get_by_role("button", name="Give this result").click()
    expect(page.get_by_text("Answered. The agent is told your result")).to_be_visible()
    forgive_refusals(reviewer)
