"""The page of one's memories in a browser: without JavaScript, and by axe-core's rules."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Demo, MakePerson
from tests.browser.test_accessibility import violations

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_was_said_is_seen_corrected_and_erased(demo: Demo, person: MakePerson, scheme: str) -> None:
    session = demo.call("customer", "POST", "sessions/", {"agent": "support-agent"})
    demo.call("customer", "POST", f"sessions/{session['session_id']}/turns/", {"message": "What is order 12345?"})
    customer = person("customer", color_scheme=scheme)
    page = customer.open("/memory/")
    for _ in range(30):
        if page.get_by_text("What is order 12345?").count():
            break
        page.wait_for_timeout(500)
        page.reload()
    found = {"list": violations(customer)}
    page.get_by_role("listitem").filter(has_text="What is order 12345?").get_by_role("link").click()
    found["one"] = violations(customer)
    page.get_by_label("What it says").fill("It was about order 12345.")
    page.get_by_role("button", name="Correct").click()
    expect(page.get_by_text("It is corrected.")).to_be_visible()
    expect(page.get_by_text("It was about order 12345.", exact=True)).to_be_visible()
    page.get_by_role("link", name="Erase all").click()
    found["erase"] = violations(customer)
    page.get_by_role("button", name="Erase all").click()
    expect(page.get_by_text("Nothing is remembered of you.")).to_be_visible()
    found["empty"] = violations(customer)
    assert {name: items for name, items in found.items() if items} == {}
