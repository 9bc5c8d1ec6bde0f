"""The story in browsers: a customer asks for a refund, a reviewer decides, and the process dies in between."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Demo, MakePerson, Person

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

COMPLAINT = "My order 12345 arrived broken, I want my money back"
QUESTION = "What was my order status?"
WAITS = "Paused: waiting for approval"
PREVIEW = "Pays 49.90 back to customer for order 12345 (Desk lamp, delivered)."

# Keeps every word that the page shows of a turn or a call, also those that are soon replaced.
RECORD_WORDS = """
window.wordsShown = [];
new MutationObserver((records) => {
  for (const record of records) {
    for (const node of record.addedNodes) {
      if (["state", "status"].includes(record.target.dataset?.part)) {
        window.wordsShown.push(node.textContent);
      }
    }
  }
}).observe(document.querySelector("[data-log]"), { childList: true, subtree: true });
"""


def on_the_page(reviewer: Person, approval_id: int) -> None:
    page = reviewer.page
    page.locator(f'[data-request="{approval_id}"]').get_by_role("link", name="Details").click()
    expect(page).to_have_url(f"{reviewer.demo.url}/reviews/{approval_id}/")
    expect(page.get_by_text(PREVIEW)).to_be_visible()
    reviewer.shoot("reviewer-detail", whole=True)
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.get_by_text("Approved. process_refund runs next.")).to_be_visible()
    reviewer.shoot("reviewer-detail-approved", whole=True)


def in_the_admin(reviewer: Person, approval_id: int) -> None:
    page = reviewer.open("/admin/agentcore/toolapproval/")
    row = page.locator("#result_list tbody tr").filter(has_text=f"process_refund #{approval_id}")
    expect(row).to_contain_text("12345")
    reviewer.shoot("admin-list", whole=True)
    _choose_in_the_admin(page, "approve_selected")
    expect(page.get_by_text(PREVIEW)).to_be_visible()
    page.locator("textarea[name=note]").fill("Seen in the admin")
    reviewer.shoot("admin-confirmation", whole=True)
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("1 approved, 0 refused")).to_be_visible()
    reviewer.shoot("admin-report", whole=True)


def over_the_api(reviewer: Person, approval_id: int) -> None:
    reviewer.stay()
    decided = reviewer.demo.call("reviewer", "POST", f"approvals/{approval_id}/approve/", {"note": "By the API"})
    assert decided["status"] == "approved"
    # The page that is open hears of it.
    row = reviewer.page.locator(f'[data-request="{approval_id}"]')
    expect(row.locator('[data-part="status"]')).to_contain_text("approved by reviewer")
    assert reviewer.has_stayed()
    reviewer.shoot("reviewer-list-decided", whole=True)


@pytest.mark.parametrize("approve", [on_the_page, in_the_admin, over_the_api])
def test_a_refund_is_approved(demo: Demo, person: MakePerson, approve: Callable[[Person, int], None]) -> None:
    customer, reviewer = person("customer"), person("reviewer")
    reviewer.open("/reviews/")
    expect(reviewer.page.get_by_text("Nothing waits for you.")).to_be_visible()
    expect(reviewer.page.get_by_text("Live", exact=True)).to_be_visible()
    reviewer.stay()

    _ask_for_a_refund(customer)
    _see_each_step_until_it_waits(customer)
    approval_id = _see_it_arrive(reviewer)

    address = customer.page.url.removeprefix(demo.url)
    demo.kill()
    demo.start()
    reviewer.open("/reviews/")
    customer.open(address)
    for one in (customer, reviewer):
        one.forgive_lost_connections()
    expect(customer.page.get_by_text(WAITS)).to_be_visible()
    row = reviewer.page.locator(f'[data-request="{approval_id}"]')
    expect(row).to_contain_text(PREVIEW)
    expect(reviewer.page.get_by_text("Live", exact=True)).to_be_visible()
    expect(customer.page.get_by_text("Live", exact=True)).to_be_visible()
    customer.stay()
    assert _refunds(demo) == []

    approve(reviewer, approval_id)

    _see_the_refund(customer)
    _assert_refunded_as_shown(demo, customer, approval_id)
    _ask_about_the_order(customer)
    assert customer.has_stayed()
    assert len(_refunds(demo)) == 1


def test_a_rejection_reaches_the_customer_with_its_reason(demo: Demo, person: MakePerson) -> None:
    customer, reviewer = person("customer"), person("reviewer")
    _ask_for_a_refund(customer)
    expect(customer.page.get_by_text(WAITS)).to_be_visible()
    customer.stay()
    page = reviewer.open("/reviews/")
    page.locator("[data-request]").get_by_role("link", name="process_refund", exact=True).click()
    reason = "The order is older than 90 days"
    page.get_by_label("Reason, told to the agent").fill(reason)
    page.get_by_role("button", name="Reject", exact=True).click()
    expect(page.get_by_text("Rejected. process_refund does not run.")).to_be_visible()

    turn = customer.page.locator("[data-turn]").last
    expect(turn).to_have_attribute("data-state", "completed")
    expect(_call(turn, "process_refund")).to_contain_text("declined")
    expect(_call(turn, "process_refund")).to_contain_text(reason)
    expect(turn.locator(".bubble").last).to_contain_text(reason)
    assert customer.has_stayed()
    customer.shoot("chat-rejected")
    assert _refunds(demo) == []


def test_without_javascript_one_can_send_and_decide(demo: Demo, person: MakePerson) -> None:
    customer = person("customer", java_script_enabled=False)
    reviewer = person("reviewer", java_script_enabled=False)
    _ask_for_a_refund(customer)
    _reload_until_it_shows(customer.page, WAITS)
    customer.shoot("chat-without-script")

    page = reviewer.open("/reviews/")
    expect(page.locator("[data-queue] [data-request]")).to_have_count(1)
    reviewer.shoot("reviewer-list-without-script")
    page.locator("[data-queue]").get_by_role("button", name="Approve").click()
    expect(page.get_by_text("Approved. process_refund runs next.")).to_be_visible()

    _reload_until_it_shows(customer.page, "was made")
    customer.page.get_by_label("Message", exact=True).fill(QUESTION)
    customer.page.get_by_role("button", name="Send").click()
    _reload_until_it_shows(customer.page, "The status of order 12345 is delivered.")
    assert [amount for _, amount in _refunds(demo)] == [Decimal("49.90")]


def test_nothing_is_wider_than_a_small_phone(person: MakePerson) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "device_scale_factor": 2}
    customer, reviewer = person("customer", **phone), person("reviewer", **phone)
    customer.page.goto(f"{customer.demo.url}/accounts/login/")
    _assert_fits(customer, "login")
    customer.open("/")
    _assert_fits(customer, "chat-new")
    reviewer.open("/reviews/")
    _assert_fits(reviewer, "reviews-empty")
    _ask_for_a_refund(customer, f"{COMPLAINT}. {'Unbreakable' * 30}")
    expect(customer.page.get_by_text(WAITS)).to_be_visible()
    _assert_fits(customer, "chat-waits")
    # The row that the script made, then the one that the server makes.
    approval_id = int(reviewer.page.locator("[data-queue] [data-request]").get_attribute("data-request") or 0)
    _assert_fits(reviewer, "reviews-arrived")
    reviewer.open("/reviews/")
    _assert_fits(reviewer, "reviews")
    page = reviewer.open(f"/reviews/{approval_id}/")
    for summary in page.locator("summary").all():
        summary.click()
    _assert_fits(reviewer, "detail")
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.get_by_text("Approved. process_refund runs next.")).to_be_visible()
    _assert_fits(reviewer, "detail-approved")
    _see_the_refund(customer)
    _assert_fits(customer, "chat-done")


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_all_text_stands_out_from_what_is_behind_it(person: MakePerson, scheme: str) -> None:
    customer, reviewer = person("customer", color_scheme=scheme), person("reviewer", color_scheme=scheme)
    customer.page.goto(f"{customer.demo.url}/accounts/login/")
    _assert_readable(customer, scheme, "login")
    customer.open("/")
    _assert_readable(customer, scheme, "chat-new")
    reviewer.open("/reviews/")
    _assert_readable(reviewer, scheme, "reviews-empty")
    _ask_for_a_refund(customer)
    expect(customer.page.get_by_text(WAITS)).to_be_visible()
    _assert_readable(customer, scheme, "chat-waits")
    row = reviewer.page.locator("[data-queue] [data-request]")
    _assert_readable(reviewer, scheme, "reviews")
    row.get_by_role("link", name="Details").click()
    for summary in reviewer.page.locator("summary").all():
        summary.click()
    _assert_readable(reviewer, scheme, "detail")
    reviewer.page.get_by_role("button", name="Approve", exact=True).click()
    expect(reviewer.page.get_by_text("Approved. process_refund runs next.")).to_be_visible()
    _assert_readable(reviewer, scheme, "detail-approved")
    _see_the_refund(customer)
    _assert_readable(customer, scheme, "chat-done")


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_all_text_in_the_admin_stands_out_too(person: MakePerson, scheme: str) -> None:
    customer, reviewer = person("customer"), person("reviewer", color_scheme=scheme)
    _ask_for_a_refund(customer)
    expect(customer.page.get_by_text(WAITS)).to_be_visible()
    page = reviewer.open("/admin/agentcore/toolapproval/")
    page.locator("#result_list tbody a").first.click()
    expect(page.get_by_text(PREVIEW)).to_be_visible()
    _assert_readable(reviewer, scheme, "admin-request", place="#content-main")
    reviewer.open("/admin/agentcore/toolapproval/")
    _choose_in_the_admin(page, "reject_selected")
    expect(page.get_by_text(PREVIEW)).to_be_visible()
    _assert_readable(reviewer, scheme, "admin-confirmation", place="#content-main")


# The story's steps


def _ask_for_a_refund(customer: Person, message: str = COMPLAINT) -> None:
    page = customer.open("/")
    page.get_by_label("Agent", exact=True).select_option("support-agent")
    page.get_by_label("Message", exact=True).fill(message)
    if customer.runs_scripts:
        page.evaluate(RECORD_WORDS)
        customer.stay()
    page.get_by_role("button", name="Send").click()


def _see_each_step_until_it_waits(customer: Person) -> None:
    turn = customer.page.locator("[data-turn]").last
    expect(turn.get_by_text(WAITS)).to_be_visible()
    expect(turn.get_by_text(COMPLAINT)).to_be_visible()
    expect(_call(turn, "lookup_order")).to_contain_text("done")
    expect(_call(turn, "lookup_order")).to_contain_text("delivered")
    expect(_call(turn, "process_refund")).to_contain_text("12345")
    expect(_call(turn, "process_refund")).to_contain_text("a person decides")
    words = customer.page.evaluate("window.wordsShown")
    _assert_in_order(["Thinking…", "running…", "done", "a person decides", WAITS], words)
    assert customer.has_stayed()
    customer.shoot("chat-waits")


def _see_it_arrive(reviewer: Person) -> int:
    """Watch the request come to the page that is open, and return its number."""
    row = reviewer.page.locator("[data-queue] [data-request]")
    expect(row).to_have_count(1)
    for text in ("process_refund", "support-agent", "customer", "12345", "49.90", PREVIEW):
        expect(row).to_contain_text(text)
    expect(reviewer.page.get_by_text("1 request waits for you.")).to_be_visible()
    assert reviewer.has_stayed()
    reviewer.shoot("reviewer-list-arrived")
    return int(row.get_attribute("data-request") or 0)


def _choose_in_the_admin(page: Page, action: str) -> None:
    """Choose an action for the one request that waits."""
    [box] = page.locator("#result_list tbody input[type=checkbox]").all()
    box.check()
    page.locator("select[name=action]").select_option(action)
    page.locator("button[name=index]").click()


def _see_the_refund(customer: Person) -> None:
    turn = customer.page.locator("[data-turn]").last
    expect(turn).to_have_attribute("data-state", "completed")
    expect(_call(turn, "process_refund")).to_contain_text("done")
    expect(_call(turn, "process_refund")).to_contain_text("approved by reviewer")
    expect(turn.locator(".bubble").last).to_contain_text("The refund of 49.90 for order 12345 was made.")
    customer.shoot("chat-refunded")


def _ask_about_the_order(customer: Person) -> None:
    customer.page.get_by_label("Message", exact=True).fill(QUESTION)
    customer.page.get_by_label("Message", exact=True).press("Enter")
    turn = customer.page.locator("[data-turn]").nth(1)
    expect(turn).to_have_attribute("data-state", "completed")
    expect(turn).to_contain_text("The status of order 12345 is delivered.")
    expect(turn.locator("[data-call]")).to_have_count(0)
    customer.shoot("chat-remembered")


def _assert_refunded_as_shown(demo: Demo, customer: Person, approval_id: int) -> None:
    execution_id = customer.page.locator("[data-turn]").last.get_attribute("data-turn")
    turn = demo.call("customer", "GET", f"turns/{execution_id}/")
    approval = demo.call("reviewer", "GET", f"approvals/{approval_id}/")
    calls = [call for step in turn["steps"] for call in step["tool_calls"] if call["tool"] == "process_refund"]
    [refund] = calls
    assert (refund["status"], refund["attempts"]) == ("completed", 1)
    assert refund["arguments"] == approval["approved_arguments"] == {"order_id": "12345", "amount": "49.90"}
    assert _refunds(demo) == [(refund["call_id"], Decimal("49.90"))]


def _refunds(demo: Demo) -> list[tuple[str, Decimal]]:
    """Read the shop's own table: which call paid back how much."""
    with closing(sqlite3.connect(demo.folder / "db.sqlite3", timeout=20)) as database:
        rows = database.execute("SELECT call_id, CAST(amount AS TEXT) FROM project_refund").fetchall()
    return [(call_id, Decimal(amount).quantize(Decimal("0.01"))) for call_id, amount in rows]


def _call(turn: Locator, tool: str) -> Locator:
    return turn.locator("[data-call]").filter(has=turn.page.get_by_text(tool, exact=True))


def _assert_in_order(wanted: list[str], shown: list[str]) -> None:
    """Check that each word begins some word shown after the one before."""
    rest = iter(shown)
    missing = [word for word in wanted if not any(text.startswith(word) for text in rest)]
    assert not missing, f"{missing[0]!r} is not shown in its place: {shown}"


def _reload_until_it_shows(page: Page, text: str) -> None:
    for _ in range(100):
        if page.get_by_text(text).count():
            return
        page.wait_for_timeout(100)
        page.goto(page.url)
    raise AssertionError(f"{text!r} does not show: {page.locator('main').inner_text()}")


# What a page looks like

WIDTHS = """() => ({
  page: document.documentElement.scrollWidth,
  window: document.documentElement.clientWidth,
  wide: [...document.querySelectorAll("body *")]
    .filter((element) => element.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
    .map((element) => element.outerHTML.slice(0, 100)),
})"""

# Text that has less contrast than WCAG's level AA asks for (4.5, large text 3), with the colours as they come to lie
# on each other. Disabled controls are exempt there, too.
FAINT_TEXT = """(place) => {
  const parse = (colour) => {
    const [red, green, blue, alpha = 1] = colour.match(/[\\d.]+/g).map(Number);
    return { red, green, blue, alpha };
  };
  const over = (top, below) => {
    const mix = (name) => top[name] * top.alpha + below[name] * (1 - top.alpha);
    return { red: mix("red"), green: mix("green"), blue: mix("blue"), alpha: 1 };
  };
  const behind = (element) => {
    if (!element) {
      return { red: 255, green: 255, blue: 255, alpha: 1 };
    }
    const own = parse(getComputedStyle(element).backgroundColor);
    return own.alpha === 1 ? own : over(own, behind(element.parentElement));
  };
  const light = ({ red, green, blue }) => {
    const [r, g, b] = [red, green, blue].map((part) => part / 255)
      .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const faint = [];
  const walker = document.createTreeWalker(document.querySelector(place), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent.trim();
    const isExempt = element.closest("template, script, :disabled, .visually-hidden");
    if (text && element.checkVisibility() && !isExempt) {
      const style = getComputedStyle(element);
      const ground = behind(element);
      const [a, b] = [light(over(parse(style.color), ground)), light(ground)].sort((x, y) => y - x);
      const contrast = (a + 0.05) / (b + 0.05);
      if (contrast < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5)) {
        faint.push(`${contrast.toFixed(2)}: ${text.slice(0, 60)}`);
      }
    }
  }
  return { faint, ground: light(behind(document.body)) };
}"""


def _assert_fits(person: Person, name: str) -> None:
    person.shoot(f"phone-{name}", whole=True)
    widths: dict[str, Any] = person.page.evaluate(WIDTHS)
    assert widths["page"] <= widths["window"] == 360, f"{name}: {json.dumps(widths, indent=1)}"


def _assert_readable(person: Person, scheme: str, name: str, *, place: str = "body") -> None:
    person.shoot(f"{scheme}-{name}", whole=True)
    found: dict[str, Any] = person.page.evaluate(FAINT_TEXT, place)
    assert found["faint"] == [], name
    assert (found["ground"] < 0.1) == (scheme == "dark"), name
