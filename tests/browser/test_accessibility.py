"""The reviewers' pages by axe-core's rules: no violation that is serious or critical."""

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Demo, MakePerson, Person
from tests.browser.reviewing import ask, each_page, forgive_refusals, make_second_reviewer, write

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python (dev)")

SEND_ALL_THE_SAME = """() => {
  const form = document.querySelector("[data-decision=approve]");
  form.querySelectorAll(":disabled").forEach((control) => (control.disabled = false));
  form.submit();
}"""

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_the_pages_have_no_serious_violation(demo: Demo, person: MakePerson, scheme: str) -> None:
    reviewer = person("reviewer", color_scheme=scheme)
    reviewer.open("/reviews/")
    found = {"empty": violations(reviewer)}
    found |= {name: violations(reviewer) for name in each_page(demo, reviewer)}
    assert {name: items for name, items in found.items() if items} == {}


def test_a_page_that_is_refused_and_the_help_have_none_either(demo: Demo, person: MakePerson) -> None:
    reviewer = person("reviewer")
    approval_id = ask(demo)
    write(demo, "UPDATE agentcore_toolapproval SET votes_needed = 2 WHERE id = ?", approval_id)
    make_second_reviewer(demo)
    page = reviewer.open(f"/reviews/{approval_id}/")
    page.keyboard.press("?")
    assert violations(reviewer) == []
    page.keyboard.press("Escape")
    edit = {"arguments": {"order_id": "12345", "amount": "9.00"}}
    demo.call("second", "POST", f"approvals/{approval_id}/approve/", edit)
    # The page hears of it and switches its buttons off; one that did not hear sends what it holds.
    expect(page.get_by_text("This request changed.")).to_be_visible()
    page.evaluate(SEND_ALL_THE_SAME)
    expect(page.get_by_role("heading", name="What changed since you looked")).to_be_visible()
    assert violations(reviewer) == []
    forgive_refusals(reviewer)


def violations(reviewer: Person) -> list[dict[str, Any]]:
    """Return what axe-core finds serious or critical, with where it is."""
    # Without the animations that lead from one colour to another.
    reviewer.page.emulate_media(reduced_motion="reduce")
    results = axe.Axe().run(reviewer.page)
    return [
        {
            "rule": item["id"],
            "where": [node["target"] for node in item["nodes"]],
            "what": item["nodes"][0]["html"][:200],
        }
        for item in results.response["violations"]
        if item["impact"] in ("serious", "critical")
    ]
