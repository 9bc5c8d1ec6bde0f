"""The reviewers' pages in Chromium: how requests come in, are read, changed and decided, by pointer and by keyboard."""

import json
import re
import unicodedata

import pytest
from playwright.sync_api import Page, expect

from agentcore.approvals.visible import made_visible
from tests.browser.conftest import Demo, MakePerson
from tests.browser.reviewing import (
    COMPLAINT,
    HIDDEN,
    ask,
    each_page,
    forgive_refusals,
    is_live,
    make_second_reviewer,
    refunds,
    row,
    status_of,
    write,
)
from tests.browser.test_story import _assert_fits, _assert_readable

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

PAYLOADS = {
    "<b>k</b>": "</pre><img src=x onerror=alert(1)>",
    "script": "</script><script>alert(2)</script>",
    "link": "[x](javascript:alert(3))",
    "svg": f'"><svg onload=alert(4)>{HIDDEN}',
}
TITLE = '"><svg onload=alert(5)>'
# Elements that only data could have brought, and attributes that run something.
FOREIGN = """() => ({
  elements: document.querySelectorAll("main :is(script, img, svg, iframe, style, b[onclick], object, embed)").length,
  handlers: [...document.querySelectorAll("*")].filter((element) =>
    [...element.attributes].some(({ name }) => name.startsWith("on"))).length,
  links: [...document.querySelectorAll("[href], [action]")].filter((element) =>
    /^\\s*javascript:/i.test(element.getAttribute("href") || element.getAttribute("action"))).length,
})"""


# Coming in


def test_a_request_arrives_while_the_list_is_open_and_a_filter_keeps_others_out(demo: Demo, person: MakePerson) -> None:
    everything, quotes = person("reviewer"), person("reviewer")
    for one, address in ((everything, "/reviews/"), (quotes, "/reviews/?tool=create_quote")):
        is_live(one.open(address))
        one.stay()
    approval_id = ask(demo)
    expect(row(everything.page, approval_id)).to_contain_text("49.90")
    expect(everything.page.locator("[data-announce]")).to_have_text("New request: process_refund")
    expect(quotes.page.get_by_text("1 request waits for you.")).to_be_visible()
    expect(quotes.page.locator("[data-queue] > [data-request]")).to_have_count(0)
    row(everything.page, approval_id).get_by_role("button", name="Approve").click()
    expect(everything.page.get_by_text("Approved. process_refund runs next.")).to_be_visible()
    expect(quotes.page.get_by_text("Nothing waits for you.")).to_be_visible()
    assert quotes.has_stayed()


def test_adm_10_a_row_that_another_decided_says_so_and_has_no_buttons(demo: Demo, person: MakePerson) -> None:
    reviewer = person("reviewer")
    first, second = ask(demo), ask(demo)
    page = reviewer.open("/reviews/")
    is_live(page)
    reviewer.stay()
    row(page, first).locator("input[name=chosen]").check()
    make_second_reviewer(demo)
    demo.call("second", "POST", f"approvals/{first}/reject/", {"reason": "no"})
    expect(row(page, first).locator('[data-part="status"]')).to_have_text("rejected by second")
    expect(row(page, first).get_by_role("button")).to_have_count(0)
    expect(row(page, first).locator("input[name=chosen]")).to_be_disabled()
    expect(page.get_by_role("button", name="Approve selected")).to_be_disabled()
    expect(row(page, second).get_by_role("button", name="Approve")).to_be_enabled()
    assert reviewer.has_stayed()


# Deciding


def test_an_edit_in_its_fields_runs_and_the_page_shows_what_came_of_it(demo: Demo, person: MakePerson) -> None:
    reviewer = person("reviewer")
    approval_id = ask(demo)
    page = reviewer.open(f"/reviews/{approval_id}/")
    page.locator("summary").get_by_text("Change the arguments").click()
    page.get_by_label("amount").fill("forty")
    page.get_by_role("button", name="Run it with these").click()
    expect(page.get_by_text("Give a number, with a point: 49.90.")).to_be_visible()
    expect(page.get_by_label("amount")).to_have_value("forty")
    reviewer.shoot("reviewer-edit-wrong", whole=True)
    page.get_by_label("amount").fill("20.00")
    page.get_by_role("button", name="Run it with these").click()
    expect(page.get_by_text("Approved. process_refund runs next.")).to_be_visible()
    reviewer.stay()
    expect(page.locator(".changes__old")).to_contain_text("49.90")
    expect(page.locator(".changes__new")).to_contain_text("20.00")
    expect(page.locator("[data-aftermath]")).to_contain_text("Done")
    expect(page.locator("[data-aftermath] pre")).to_contain_text('"amount": "20.00"')
    reviewer.shoot("reviewer-edited", whole=True)
    assert refunds(demo) == ["20.00"]
    assert reviewer.has_stayed()
    forgive_refusals(reviewer)


def test_the_page_follows_what_comes_of_a_request_that_another_decides(demo: Demo, person: MakePerson) -> None:
    reviewer = person("reviewer")
    approval_id = ask(demo)
    page = reviewer.open(f"/reviews/{approval_id}/")
    is_live(page)
    reviewer.stay()
    make_second_reviewer(demo)
    demo.call("second", "POST", f"approvals/{approval_id}/approve/", {})
    expect(page.get_by_text("This request is not pending any more: approved by second.")).to_be_visible()
    expect(page.locator("[data-aftermath]")).to_contain_text("Done")
    expect(page.get_by_role("button", name="Approve", exact=True)).to_be_hidden()
    assert reviewer.has_stayed()


def test_an_answer_in_the_tools_place(demo: Demo, person: MakePerson) -> None:
    reviewer = person("reviewer")
    page = reviewer.open(f"/reviews/{ask(demo)}/")
    page.locator("summary").get_by_text("Answer in its place").click()
    page.get_by_label("Result, as JSON or plain text").fill('{"refund": "done by hand"}')
    page.get_by_role("button", name="Give this result").click()
    expect(page.get_by_text("Answered. The agent is told your result")).to_be_visible()
    expect(page.get_by_text("Not run: the agent was told the result that was given.")).to_be_visible()
    assert refunds(demo) == []


def test_many_are_rejected_at_once_with_one_reason(demo: Demo, person: MakePerson) -> None:
    reviewer = person("reviewer")
    approvals = [ask(demo) for _ in range(3)]
    page = reviewer.open("/reviews/?tool=process_refund")
    page.get_by_label("Select all on this page").check()
    expect(page.get_by_text("3 requests are selected.")).to_be_visible()
    row(page, approvals[0]).locator("input[name=chosen]").uncheck()
    expect(page.get_by_text("2 requests are selected.")).to_be_visible()
    page.get_by_label("Note; of a rejection, the reason").fill("Not this week")
    reviewer.shoot("reviewer-bulk")
    page.get_by_role("button", name="Reject selected").click()
    expect(page.get_by_role("heading", name="2 decided, 0 refused")).to_be_visible()
    reviewer.shoot("reviewer-bulk-report")
    assert [status_of(demo, one) for one in approvals] == ["pending", "rejected", "rejected"]
    page.get_by_role("link", name="Back to the requests").click()
    expect(page).to_have_url(f"{demo.url}/reviews/?tool=process_refund")
    expect(page.locator("[data-queue] > [data-request]")).to_have_count(1)


def test_apr_04_an_old_page_is_refused_and_shows_what_changed(demo: Demo, person: MakePerson) -> None:
    reviewer = person("reviewer", java_script_enabled=False)
    approval_id = ask(demo)
    write(demo, "UPDATE agentcore_toolapproval SET votes_needed = 2 WHERE id = ?", approval_id)
    page = reviewer.open(f"/reviews/{approval_id}/")
    page.locator("summary").get_by_text("Change the arguments").click()
    page.get_by_label("order_id").fill("12345 ")
    make_second_reviewer(demo)
    edit = {"arguments": {"order_id": "12345", "amount": "9.00"}}
    demo.call("second", "POST", f"approvals/{approval_id}/approve/", edit)
    page.get_by_role("button", name="Run it with these").click()
    stale = page.get_by_role("region", name="What changed since you looked")
    expect(stale).to_contain_text("You saw version 1; this is version 2.")
    expect(stale.locator(".changes__old")).to_contain_text("49.90")
    expect(stale.locator(".changes__new")).to_contain_text("9.00")
    # What was typed is kept, what was not touched follows the request.
    expect(page.get_by_label("order_id")).to_have_value("12345 ")
    expect(page.get_by_label("amount")).to_have_value("9.00")
    reviewer.shoot("reviewer-stale", whole=True)
    assert status_of(demo, approval_id) == "pending"
    assert refunds(demo) == []
    forgive_refusals(reviewer)


# By keyboard alone


def test_a_queue_is_worked_by_keyboard_alone(demo: Demo, person: MakePerson) -> None:
    reviewer = person("reviewer")
    approvals = [ask(demo) for _ in range(4)]
    page = reviewer.open("/reviews/")
    is_live(page)
    press = page.keyboard.press
    for key in ("j", "j", "k"):
        press(key)
    expect(row(page, approvals[0])).to_be_focused()
    press("x")
    expect(row(page, approvals[0]).locator("input[name=chosen]")).to_be_checked()
    press("x")
    # One key decides nothing; going back takes the question away.
    press("a")
    confirm = row(page, approvals[0]).locator('[data-part="confirm"]')
    expect(confirm).to_have_text(f"Press Enter to approve process_refund {approvals[0]}, Escape to go back.")
    expect(page.locator("[data-announce]")).to_contain_text("Press Enter to approve")
    press("Escape")
    expect(confirm).to_be_hidden()
    expect(row(page, approvals[0])).to_be_focused()
    assert status_of(demo, approvals[0]) == "pending"
    press("a")
    press("Enter")
    expect(page.get_by_text("Approved. process_refund runs next.")).to_be_visible()
    is_live(page)
    # Rejecting begins with the reason, on the page of the request.
    press("j")
    press("r")
    expect(page.get_by_label("Reason, told to the agent")).to_be_focused()
    page.keyboard.type("jar? I will ask x")
    press("Control+Enter")
    expect(page.get_by_text("Rejected. process_refund does not run.")).to_be_visible()
    expect(page.get_by_text("jar? I will ask x", exact=True)).to_be_visible()
    is_live(page)
    press("j")
    expect(page).to_have_url(f"{demo.url}/reviews/{approvals[2]}/")
    is_live(page)
    press("e")
    expect(page.get_by_label("order_id")).to_be_focused()
    press("Tab")
    press("Control+a")
    page.keyboard.type("1.00")
    press("Control+Enter")
    expect(page.get_by_text("Approved. process_refund runs next.")).to_be_visible()
    is_live(page)
    press("u")
    expect(page).to_have_url(f"{demo.url}/reviews/")
    is_live(page)
    press("j")
    press("Enter")
    expect(page).to_have_url(f"{demo.url}/reviews/{approvals[3]}/")
    is_live(page)
    press("a")
    press("Enter")
    expect(page.get_by_text("Approved. process_refund runs next.")).to_be_visible()
    states = [status_of(demo, one) for one in approvals]
    assert states == ["approved", "rejected", "approved", "approved"]


def test_the_keys_are_told_and_can_be_switched_off(demo: Demo, person: MakePerson) -> None:
    reviewer = person("reviewer")
    approval_id = ask(demo)
    page = reviewer.open("/reviews/")
    is_live(page)
    page.keyboard.press("?")
    help_box = page.get_by_role("dialog", name="Keys")
    expect(help_box).to_be_visible()
    reviewer.shoot("reviewer-keys")
    # The keys of the page behind it are silent.
    page.keyboard.press("j")
    page.get_by_label("Use keys of one letter").uncheck()
    page.keyboard.press("Escape")
    expect(help_box).to_be_hidden()
    page.reload()
    is_live(page)
    for key in ("j", "a", "x", "?"):
        page.keyboard.press(key)
    expect(row(page, approval_id)).not_to_be_focused()
    expect(help_box).to_be_hidden()
    page.get_by_role("button", name="Keys").click()
    page.get_by_label("Use keys of one letter").check()
    page.get_by_role("button", name="Close").click()
    page.keyboard.press("j")
    expect(row(page, approval_id)).to_be_focused()


def test_no_key_does_anything_while_somebody_types(demo: Demo, person: MakePerson) -> None:
    reviewer = person("reviewer")
    approval_id = ask(demo)
    page = reviewer.open(f"/reviews/{approval_id}/")
    is_live(page)
    note = page.locator("#approve-note")
    note.focus()
    page.keyboard.type("a rejected jar, eh?")
    expect(note).to_have_value("a rejected jar, eh?")
    expect(note).to_be_focused()
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(note).not_to_be_focused()
    assert status_of(demo, approval_id) == "pending"


# Without JavaScript


def test_everything_can_be_done_without_javascript(demo: Demo, person: MakePerson) -> None:
    reviewer = person("reviewer", java_script_enabled=False)
    approvals = [ask(demo) for _ in range(3)]
    page = reviewer.open("/reviews/")
    page.get_by_label("Tool").select_option("process_refund")
    page.get_by_role("button", name="Filter").click()
    expect(page).to_have_url(re.compile(r"/reviews/\?.*tool=process_refund"))
    reviewer.shoot("reviewer-list-filtered-without-script", whole=True)
    for one in approvals[:2]:
        row(page, one).locator("input[name=chosen]").check()
    page.get_by_role("button", name="Reject selected").click()
    expect(page.get_by_role("heading", name="2 decided, 0 refused")).to_be_visible()
    page.goto(f"{demo.url}/reviews/{approvals[2]}/")
    page.locator("summary").get_by_text("Change the arguments").click()
    page.get_by_label("amount").fill("12.50")
    page.get_by_role("button", name="Run it with these").click()
    expect(page.get_by_text("Approved. process_refund runs next.")).to_be_visible()
    assert [status_of(demo, one) for one in approvals] == ["rejected", "rejected", "approved"]


# Who else looks


def test_two_reviewers_see_that_they_look_at_the_same_request(demo: Demo, person: MakePerson) -> None:
    approval_id = ask(demo)
    make_second_reviewer(demo)
    first, second = person("reviewer"), person("second")
    path = f"/reviews/{approval_id}/"
    first.open(path)
    second.open(path)
    expect(first.page.get_by_text("second is looking at this request too.")).to_be_visible()
    expect(second.page.get_by_text("reviewer is looking at this request too.")).to_be_visible()
    first.shoot("reviewer-presence")
    second.page.close()
    expect(first.page.locator("[data-looking]")).to_be_hidden()


# What data cannot do


def test_apr_30_nothing_that_models_and_users_write_becomes_an_element(demo: Demo, person: MakePerson) -> None:
    reviewer = person("reviewer")
    # Whatever the next request holds, it holds this: also in what the socket tells.
    write(
        demo,
        "CREATE TRIGGER attack AFTER INSERT ON agentcore_toolapproval BEGIN UPDATE agentcore_toolapproval SET "
        f"arguments = {_sql(json.dumps(PAYLOADS))}, preview = {_sql(PAYLOADS['svg'])}, reason = {_sql(TITLE)}, "
        f"tool = 'process_<i>refund</i>', requester_name = {_sql(TITLE)} WHERE id = NEW.id; END",
    )
    page = reviewer.open("/reviews/")
    is_live(page)
    reviewer.stay()
    approval_id = ask(demo, f"{COMPLAINT} {TITLE} <script>alert(6)</script>{HIDDEN}", title=TITLE)
    for text in (*PAYLOADS, *PAYLOADS.values(), TITLE, "process_<i>refund</i>"):
        expect(row(page, approval_id)).to_contain_text(text.replace(HIDDEN, "⟨U+202E⟩"))
    expect(row(page, approval_id).get_by_text("It holds characters that do not show.")).to_be_visible()
    expect(row(page, approval_id).locator("mark").first).to_have_attribute("title", "Hidden character U+202E")
    assert reviewer.has_stayed()
    _assert_nothing_foreign(page)
    reviewer.shoot("reviewer-attack-list", whole=True)
    for path in ("/reviews/", f"/reviews/{approval_id}/"):
        page.goto(demo.url + path)
        expect(page.get_by_text(PAYLOADS["link"]).first).to_be_visible()
        _assert_nothing_foreign(page)
    reviewer.shoot("reviewer-attack", whole=True)
    page.get_by_label("Reason, told to the agent").fill("</textarea><script>alert(7)</script>")
    page.get_by_role("button", name="Reject", exact=True).click()
    expect(page.get_by_text("</textarea><script>alert(7)</script>", exact=True)).to_be_visible()
    _assert_nothing_foreign(page)


def test_the_script_marks_the_same_characters_as_the_server(person: MakePerson) -> None:
    page = person("reviewer").open("/reviews/")
    # Every character of the first plane that both know, each between two letters; and what joins pictures.
    letters = [chr(code) for code in range(0x10000) if unicodedata.category(chr(code)) not in ("Cn", "Cs")]
    joined = [
        "\U0001f469\u200d\U0001f680",
        "\u200d",
        "a\u200db",
        "\u2764\ufe0f\u200d\U0001f525",
        "\U000e0041",
        "\U0001f680",
    ]
    texts = [*(f"a{letter}b" for letter in letters), *joined]
    shown = page.evaluate("(texts) => texts.map(window.agentcore.text.plain)", texts)
    wrong = [(ascii(text), ascii(got)) for text, got in zip(texts, shown, strict=True) if got != made_visible(text)]
    assert wrong == []


def _sql(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _assert_nothing_foreign(page: Page) -> None:
    assert page.evaluate(FOREIGN) == {"elements": 0, "handlers": 0, "links": 0}


# What it looks like


def test_the_new_parts_fit_a_small_phone(demo: Demo, person: MakePerson) -> None:
    reviewer = person("reviewer", viewport={"width": 360, "height": 740}, device_scale_factor=2)
    for page_name in each_page(demo, reviewer):
        _assert_fits(reviewer, page_name)


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_the_new_parts_are_readable(demo: Demo, person: MakePerson, scheme: str) -> None:
    reviewer = person("reviewer", color_scheme=scheme)
    for page_name in each_page(demo, reviewer):
        _assert_readable(reviewer, scheme, page_name)
