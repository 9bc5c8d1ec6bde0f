"""The admin as a place to decide, in a browser: every verdict, without a script too, on a phone, and in the dark."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Demo, MakePerson, Person
from tests.browser.test_story import COMPLAINT, PREVIEW, _assert_fits, _assert_readable, _choose_in_the_admin

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

LIST = "/admin/agentcore/toolapproval/"
XSS = '</pre></textarea><img src=x onerror=alert(1)><script>alert(2)</script>"><svg onload=alert(3)>\u202edlog'
# Chromium tells of every answer that is an error; these are the right ones.
REFUSED = "Failed to load resource: the server responded with a status of 4"


@pytest.fixture
def approval_id(demo: Demo) -> int:
    """A refund that waits."""
    return ask(demo, COMPLAINT)


def ask(demo: Demo, message: str) -> int:
    before = demo.call("reviewer", "GET", "approvals/?status=pending")["results"]
    session = demo.call("customer", "POST", "sessions/", {"agent": "support-agent"})
    demo.call("customer", "POST", f"sessions/{session['session_id']}/turns/", {"message": message})
    for _ in range(200):
        now = demo.call("reviewer", "GET", "approvals/?status=pending")["results"]
        new = {one["id"] for one in now} - {one["id"] for one in before}
        if new:
            return int(new.pop())
    raise AssertionError("no request was made")


def write(demo: Demo, statement: str, *values: Any) -> None:
    """Change the demonstration's rows behind its back."""
    with closing(sqlite3.connect(demo.folder / "db.sqlite3", timeout=20)) as database, database:
        database.execute(statement, values)


def state_of(demo: Demo, approval_id: int) -> dict[str, Any]:
    return dict(demo.call("reviewer", "GET", f"approvals/{approval_id}/"))


def forgive_refusals(person: Person) -> None:
    person.problems = [problem for problem in person.problems if not problem.startswith(REFUSED)]


def open_way(person: Person, approval_id: int, button: str) -> Page:
    """Open a request from the front page's line, and press one of its buttons."""
    page = person.open("/admin/")
    page.get_by_role("link", name="waits for your decision").click()
    page.locator("#result_list tbody th a").first.click()
    expect(page).to_have_url(f"{person.demo.url}{LIST}{approval_id}/change/")
    page.get_by_role("button", name=button, exact=True).click()
    return page


def approve_from_the_list(person: Person, approval_id: int) -> None:
    page = person.open(LIST)
    _choose_in_the_admin(page, "approve_selected")
    expect(page.get_by_text(PREVIEW)).to_be_visible()
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.get_by_text("1 approved, 0 refused")).to_be_visible()


def change_the_arguments(person: Person, approval_id: int) -> None:
    page = open_way(person, approval_id, "Change and approve")
    box = page.get_by_label("Arguments as JSON")
    person.shoot("admin-edit", whole=True)
    box.fill('{"order_id": "12345", "amount": "many"}')
    page.get_by_label("Note").fill("Half of it")
    page.get_by_role("button", name="Change and approve").click()
    expect(page.locator("#id_arguments_error")).to_contain_text("amount")
    expect(box).to_have_value('{"order_id": "12345", "amount": "many"}')
    expect(page.get_by_label("Note")).to_have_value("Half of it")
    person.shoot("admin-edit-refused", whole=True)
    forgive_refusals(person)
    box.fill('{"order_id": "12345", "amount": "24.95"}')
    page.get_by_role("button", name="Change and approve").click()
    expect(page.get_by_text("1 approved, 0 refused")).to_be_visible()
    row = page.locator(".agentcore-difference tbody tr")
    expect(row.locator("del")).to_have_text("49.90")
    expect(row.locator("ins")).to_have_text("24.95")


def answer_in_its_place(person: Person, approval_id: int) -> None:
    page = open_way(person, approval_id, "Answer in its place")
    page.get_by_label("Result, as JSON or plain text").fill("Paid back by hand.")
    person.shoot("admin-respond", whole=True)
    page.get_by_role("button", name="Answer in its place").click()
    expect(page.get_by_text("1 answered, 0 refused")).to_be_visible()


def reject_with_a_reason(person: Person, approval_id: int) -> None:
    page = open_way(person, approval_id, "Reject")
    page.get_by_label("Reason").fill("Too late.")
    page.get_by_role("button", name="Reject", exact=True).click()
    expect(page.get_by_text("1 rejected, 0 refused")).to_be_visible()


WAYS = {
    approve_from_the_list: "approved",
    change_the_arguments: "approved",
    answer_in_its_place: "responded",
    reject_with_a_reason: "rejected",
}


@pytest.mark.parametrize("scripts", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["scripts", "no scripts"])
@pytest.mark.parametrize("decide", WAYS)
def test_a_request_is_decided_in_the_admin(
    demo: Demo, person: MakePerson, approval_id: int, decide: Callable[[Person, int], None], scripts: bool
) -> None:
    # Without a script the list's button is pressed all the same: Django's own list works so.
    reviewer = person("reviewer", java_script_enabled=scripts)
    decide(reviewer, approval_id)
    assert state_of(demo, approval_id)["status"] == WAYS[decide]
    reviewer.open(f"{LIST}{approval_id}/change/")
    reviewer.shoot(f"admin-{WAYS[decide]}-{decide.__name__}", whole=True)


def test_how_a_call_ended_is_said_in_words_that_fit(demo: Demo, person: MakePerson, approval_id: int) -> None:
    write(demo, "UPDATE agentcore_toolapproval SET kind = 'outcome', allow_edit = 0")
    write(demo, "UPDATE agentcore_toolcall SET status = 'unknown', attempts = 1 WHERE needs_approval")
    reviewer = person("reviewer")
    page = reviewer.open(f"{LIST}{approval_id}/change/")
    expect(page.get_by_role("button", name="Change and approve")).to_have_count(0)
    for name in ("Run it again", "This is the result", "End the turn"):
        expect(page.get_by_role("button", name=name)).to_be_visible()
    expect(page.get_by_text("Approving runs it again")).to_be_visible()
    reviewer.shoot("admin-outcome", whole=True)
    page.get_by_role("button", name="This is the result").click()
    page.get_by_label("Result, as JSON or plain text").fill('{"refund_id": "R-1"}')
    page.get_by_role("button", name="This is the result").click()
    expect(page.get_by_text("1 answered, 0 refused")).to_be_visible()


def test_an_old_page_is_refused_and_shows_what_is_there_now(demo: Demo, person: MakePerson, approval_id: int) -> None:
    reviewer = person("reviewer")
    page = open_way(reviewer, approval_id, "Approve")
    page.get_by_label("Note").fill("Looks right")
    arguments = '{"amount": "1.00", "order_id": "12345"}'
    write(demo, "UPDATE agentcore_toolapproval SET version = 2, arguments = ?", arguments)
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.locator("#content-main").get_by_text("The request changed, please look again.")).to_be_visible()
    expect(page.get_by_text('"amount": "1.00"')).to_be_visible()
    expect(page.get_by_label("Note")).to_have_value("Looks right")
    reviewer.shoot("admin-stale", whole=True)
    forgive_refusals(reviewer)
    assert state_of(demo, approval_id)["status"] == "pending"


WORDS_IN_TWO = """(cells) => cells.filter((cell) => {
  const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  while (walker.nextNode()) {
    for (const word of walker.currentNode.data.matchAll(/\\S+/g)) {
      range.setStart(walker.currentNode, word.index);
      range.setEnd(walker.currentNode, word.index + word[0].length);
      if (range.getClientRects().length > 1) return true;
    }
  }
  return false;
}).length"""


@pytest.mark.parametrize("width", [1200, pytest.param(1700, marks=pytest.mark.slow)])
def test_the_list_shows_the_status_and_whole_words(
    demo: Demo, person: MakePerson, approval_id: int, width: int
) -> None:
    outcome_id = ask(demo, f"{COMPLAINT}. {'Unbreakable' * 30}")
    write(demo, "UPDATE agentcore_toolapproval SET votes_needed = 2 WHERE id = ?", approval_id)
    write(demo, "UPDATE agentcore_toolapproval SET kind = 'outcome', allow_edit = 0 WHERE id = ?", outcome_id)
    reviewer = person("reviewer", viewport={"width": width, "height": 860})
    demo.call("reviewer", "POST", f"approvals/{approval_id}/approve/", {})
    page = reviewer.open(LIST)
    reviewer.shoot(f"admin-list-{width}")
    for place in ("thead th.column-state", "tbody td.field-state"):
        cell = page.locator(f"#result_list {place}").first
        box, frame = cell.bounding_box(), page.locator("#changelist-form .results").bounding_box()
        assert box is not None
        assert frame is not None
        assert box["x"] >= frame["x"]
        assert box["x"] + box["width"] <= frame["x"] + frame["width"]
    for words in ("1 of 2 approvals", "You have voted; it waits for others.", "how did it end?"):
        expect(page.get_by_text(words)).to_be_visible()
    agents = page.locator("#result_list td[class*=field-agent]")
    assert (agents.count(), agents.evaluate_all(WORDS_IN_TWO)) == (2, 0)


def test_what_is_known_is_on_the_page_that_asks_how_a_call_ended(
    demo: Demo, person: MakePerson, approval_id: int
) -> None:
    write(demo, "UPDATE agentcore_toolapproval SET kind = 'outcome', allow_edit = 0")
    late = '{"refund_id": "R-7", "token": "t-1"}'
    error = '{"code": "timeout", "message": "No answer in 30 s."}'
    statement = "UPDATE agentcore_toolcall SET status = 'unknown', attempts = 1, late_result = ?, error = ?"
    write(demo, f"{statement} WHERE needs_approval", late, error)
    reviewer = person("reviewer")
    page = reviewer.open(f"{LIST}{approval_id}/respond/")
    expect(page.locator(".agentcore-known")).to_contain_text("No answer in 30 s.")
    box = page.get_by_label("Result, as JSON or plain text")
    expect(box).to_have_value('{\n  "refund_id": "R-7",\n  "token": "********"\n}')
    reviewer.shoot("admin-known", whole=True)
    box.fill('{"refund_id": R-7}')
    page.get_by_role("button", name="This is the result").click()
    expect(page.locator("#id_result_error")).to_contain_text("looks like JSON")
    reviewer.shoot("admin-not-json", whole=True)
    page.get_by_label("Send it as text").check()
    page.get_by_role("button", name="This is the result").click()
    expect(page.get_by_text("1 answered, 0 refused")).to_be_visible()
    forgive_refusals(reviewer)


def test_what_others_wrote_stays_text(demo: Demo, person: MakePerson) -> None:
    approval_id = ask(demo, f"{COMPLAINT} {XSS}")
    write(demo, "UPDATE agentcore_toolapproval SET preview = ?, reason = ?, requester_name = ?", XSS, XSS, XSS)
    write(demo, "UPDATE agentcore_approvallink SET label = ?", XSS)
    write(demo, "UPDATE agentcore_agentsession SET title = ?", XSS)
    reviewer = person("reviewer")
    dialogs: list[str] = []
    reviewer.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    here = f"{LIST}{approval_id}"
    for path in ("/admin/", LIST, f"{here}/change/", f"{here}/edit/", f"{here}/respond/", f"{here}/history/"):
        page = reviewer.open(path)
        assert page.locator("#content img[src=x], #content svg[onload], #content script:not([src])").count() == 0
    page = reviewer.open(f"{here}/change/")
    expect(page.locator("mark").first).to_have_text("⟨U+202E⟩")
    reviewer.shoot("admin-xss", whole=True)
    assert dialogs == []


def test_the_admin_fits_a_small_phone(demo: Demo, person: MakePerson) -> None:
    approval_id = ask(demo, f"{COMPLAINT}. {'Unbreakable' * 30}")
    reviewer = person("reviewer", viewport={"width": 360, "height": 740}, device_scale_factor=2)
    for path, name in pages_of(approval_id).items():
        reviewer.open(path)
        _assert_fits(reviewer, f"admin-{name}")


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_the_admins_own_parts_stand_out(demo: Demo, person: MakePerson, approval_id: int, scheme: str) -> None:
    write(demo, "UPDATE agentcore_toolapproval SET is_unroutable = 1, preview = ?", "a\u202eb")
    reviewer = person("reviewer", color_scheme=scheme)
    for path, name in pages_of(approval_id).items():
        reviewer.open(path)
        place = ".agentcore-waiting" if name == "front" else "#content-main"
        _assert_readable(reviewer, scheme, f"admin-{name}", place=place)


def pages_of(approval_id: int) -> dict[str, str]:
    here = f"{LIST}{approval_id}"
    return {
        "/admin/": "front",
        f"{here}/change/": "request",
        f"{here}/edit/": "edit",
        f"{here}/respond/": "respond",
        f"{here}/reject/": "reject",
    }
