"""The chat page while a model writes: the text on its way, what voids it, and a question that the customer answers."""

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Demo, MakePerson

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

TURN = "0f0e0d0c-0000-4000-8000-000000000001"
# In place of the socket: the test itself says which frames come.
FEED = "window.agentcore = {connect: ({onFrame}) => { window.feed = onFrame; }, showState: () => {}};"


def test_text_is_shown_as_it_comes_and_a_question_is_answered(demo: Demo, person: MakePerson) -> None:
    customer = person("customer")
    session = demo.call("customer", "POST", "sessions/", {"agent": "support-agent"})["session_id"]
    customer.page.route("**/agentcore/live.js", lambda route: route.fulfill(body=FEED, content_type="text/javascript"))
    page = customer.open(f"/?session={session}")
    number = int(page.locator("[data-chat]").get_attribute("data-after") or 0)

    def event(type: str, **data: Any) -> None:
        nonlocal number
        number += 1
        frame = {"kind": "event", "sequence": number, "type": type, "execution_id": TURN, "data": data}
        page.evaluate("(frame) => window.feed(frame)", frame)

    def token(text: str, offset: int, *, step: int = 1, attempt: int = 1) -> None:
        frame = {"kind": "token", "execution_id": TURN, "step": step, "attempt": attempt}
        page.evaluate("(frame) => window.feed(frame)", {**frame, "offset": offset, "text": text})

    bubbles = page.locator("[data-log] .turn__parts > p")
    event("turn.input", message={"role": "user", "content": "hi"})
    token("The answer ", 0)
    token("is 4", 11)
    expect(bubbles).to_have_text(["The answer is 4"])
    # A copy of a frame, and a gap.
    token("is 4", 11)
    token("!", 20)
    expect(bubbles).to_have_text(["The answer is 4… !"])
    token("The 😀 ", 0, attempt=2)
    token("late", 21)
    token("is 42", 6, attempt=2)
    expect(bubbles).to_have_text(["The 😀 is 42"])
    event("message", step=1, message={"role": "assistant", "content": "The 😀 is 42."})
    expect(bubbles).to_have_text(["The 😀 is 42."])

    event("agent.input.requested", call_id="c1", question="Which <b>colour</b>?")
    event("agent.state.changed", new="waiting_for_input")
    expect(bubbles).to_have_text(["The 😀 is 42.", "Which <b>colour</b>?"])
    expect(page.get_by_placeholder("Write your answer…")).to_be_visible()
    answers: list[Any] = []

    def take(route: Any) -> None:
        answers.append(route.request.post_data_json)
        route.fulfill(status=202, json={"execution_id": TURN})

    page.route(f"**/api/turns/{TURN}/resume/", take)
    page.locator("[name=message]").fill("blue")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("[name=message]")).to_have_value("")
    assert answers == [{"message": "blue"}]
    event("agent.input.received", call_id="c1", answer="blue")
    event("tool.execution.completed", call_id="c1", tool="ask_user", result="blue")
    event("agent.state.changed", new="queued")
    token("Bl", 0, step=2, attempt=1001)
    event("agent.step.failed", step=2)
    event("turn.failed", error={"message": "busy"})
    token("ue", 2, step=2, attempt=1001)
    expect(bubbles).to_have_text(["The 😀 is 42.", "Which <b>colour</b>?", "blue", "Bl (broken off)"])
    expect(page.get_by_text("Failed: busy")).to_be_visible()
    customer.shoot("chat-streaming")
