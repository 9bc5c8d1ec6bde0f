"""What the tests of the reviewers' pages do: ask, decide elsewhere, and go through the pages and their states."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from playwright.sync_api import Page, expect

from tests.browser.conftest import REPOSITORY, Demo, Person

COMPLAINT = "My order 12345 arrived broken, I want my money back"
HIDDEN = "\u202e"
MAKE_REVIEWER = """
import json
from dataclasses import asdict
import django
django.setup()
from django.contrib.auth.models import Permission
from project.users import make_user
may = Permission.objects.filter(codename="decide_toolapproval")
print(json.dumps(asdict(make_user("second", role="second", permissions=may))))
"""


def ask(demo: Demo, message: str = COMPLAINT, *, title: str = "") -> int:
    """Have the customer ask for a refund over the API; return the request's number once it waits."""
    session = demo.call("customer", "POST", "sessions/", {"agent": "support-agent", "title": title})
    body = {"message": message}
    turn = demo.call("customer", "POST", f"sessions/{session['session_id']}/turns/", body)
    for _ in range(200):
        found = demo.call("customer", "GET", f"turns/{turn['execution_id']}/")
        if found["pending_approvals"]:
            return int(found["pending_approvals"][0]["id"])
        # The worker is a process of its own: it is asked, not waited for.
    raise AssertionError(f"No request came: {found}")


def make_second_reviewer(demo: Demo) -> None:
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "project.settings", "AGENTCORE_DEMO_DIR": str(demo.folder)}
    made = subprocess.run(
        [sys.executable, "-c", MAKE_REVIEWER], cwd=REPOSITORY, env=env, capture_output=True, text=True, check=True
    )
    demo.users["second"] = json.loads(made.stdout.splitlines()[-1])


def write(demo: Demo, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(demo.folder / "db.sqlite3", timeout=20)) as database:
        database.execute(statement, values)
        database.commit()


def refunds(demo: Demo) -> list[str]:
    with closing(sqlite3.connect(demo.folder / "db.sqlite3", timeout=20)) as database:
        return [f"{amount:.2f}" for (amount,) in database.execute("SELECT amount FROM project_refund ORDER BY id")]


def status_of(demo: Demo, approval_id: int) -> str:
    return str(demo.call("reviewer", "GET", f"approvals/{approval_id}/")["status"])


def row(page: Page, approval_id: int) -> Any:
    return page.locator(f'[data-queue] > [data-request="{approval_id}"]')


def forgive_refusals(reviewer: Person) -> None:
    """Chromium complains of each answer that is an error, also of one that is meant."""
    meant = ("status of 400", "status of 404", "status of 409")
    reviewer.problems = [problem for problem in reviewer.problems if not any(text in problem for text in meant)]


def is_live(page: Page) -> None:
    expect(page.get_by_text("Live", exact=True)).to_be_visible()


def each_page(demo: Demo, reviewer: Person) -> Iterator[str]:
    """Go through the pages and their states, and yield a name for each."""
    first, second, third = ask(demo), ask(demo), ask(demo)
    write(demo, "UPDATE agentcore_toolapproval SET is_unroutable = 1 WHERE id = ?", second)
    # The table is left alone: the rows are those that the page shows, with text that tries to be wide and to hide.
    wide = json.dumps({"order_id": "W" * 70, "amount": f"49{HIDDEN}.90"})
    write(demo, "UPDATE agentcore_toolapproval SET arguments = ? WHERE id = ?", wide, third)
    page = reviewer.open("/reviews/?tool=process_refund")
    is_live(page)
    page.get_by_label("Select all on this page").check()
    yield "reviewer-queue"
    page.goto(f"{demo.url}/reviews/?tool=nothing")
    yield "reviewer-queue-filtered"
    page.goto(f"{demo.url}/reviews/{third}/")
    for summary in page.locator("summary").all():
        summary.click()
    yield "reviewer-hidden"
    page.goto(f"{demo.url}/reviews/{first}/")
    page.locator("summary").get_by_text("Change the arguments").click()
    page.get_by_label("amount").fill("-1")
    page.get_by_role("button", name="Run it with these").click()
    expect(page.locator(".field__problem")).to_be_visible()
    yield "reviewer-wrong"
    page.get_by_label("amount").fill("1.00")
    page.get_by_role("button", name="Run it with these").click()
    expect(page.locator("[data-aftermath]")).to_contain_text("Done")
    yield "reviewer-done"
    page.goto(f"{demo.url}/reviews/")
    for one in (second, third):
        row(page, one).locator("input[name=chosen]").check()
    page.get_by_role("button", name="Reject selected").click()
    yield "reviewer-report"
    page.goto(f"{demo.url}/reviews/999999/")
    forgive_refusals(reviewer)
    yield "reviewer-notice"
