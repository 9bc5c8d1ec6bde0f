"""How did a call end? What is known is on the pages that ask, and what came late is the answer that is offered."""

from typing import Any

import pytest
from django.test import Client

from agentcore.models import ToolApproval, ToolCall
from agentcore.testing import make_approval
from tests.integration.admin_pages import DECIDE, VIEW, Page, confirm, list_url, page_url, said, staff, statuses

pytestmark = pytest.mark.django_db

LATE = {"paid": 5, "token": "t-1", "note": "came late"}


@pytest.fixture
def reviewer() -> Client:
    return staff(VIEW, DECIDE)


def doubtful(late: Any = None) -> ToolApproval:
    """A request that asks how a call ended, which timed out twice."""
    approval = make_approval()
    ToolApproval.objects.update(kind="outcome", allow_edit=False)
    error = {"code": "timeout", "message": "No answer in 30 s.", "details": {"password": "p-1"}}
    ToolCall.objects.update(status="unknown", attempts=2, error=error, late_result=late)
    return approval


@pytest.mark.parametrize("way", ["approve", "respond", "reject", "change"])
def test_what_is_known_is_on_each_page_that_asks_with_secrets_masked(reviewer: Client, way: str) -> None:
    page = Page(reviewer.get(page_url(doubtful(LATE), way)))
    for words in ("What is known", "No answer in 30 s.", "came late", '"paid": 5', "********", "2"):
        assert words in page.text
    assert not [secret for secret in ("p-1", "t-1") if secret in page.text]
    assert "will not run" not in page.text


def test_a_plain_call_has_nothing_that_is_known(reviewer: Client) -> None:
    assert "What is known" not in Page(reviewer.get(page_url(make_approval(), "approve"))).text


@pytest.mark.parametrize(
    ("late", "typed"),
    [
        ({"paid": 5}, '{\n  "paid": 5\n}'),
        ("Paid.", "Paid."),
        ('{"text": 1}', '"{\\"text\\": 1}"'),
        ("12", '"12"'),
        (12, "12"),
        (None, ""),
    ],
)
def test_the_late_result_is_the_answer_that_is_offered(reviewer: Client, late: Any, typed: str) -> None:
    approval = doubtful(late)
    page = reviewer.get(page_url(approval, "respond"))
    assert Page(page).areas["result"] == typed
    if late is not None:
        answer = confirm(reviewer, page, page_url(approval, "respond"), result=Page(page).areas["result"])
        assert said(answer) == ["1 answered, 0 refused"]
        assert ToolApproval.objects.get().response == late


def test_the_offered_answer_keeps_the_secret_that_it_masks(reviewer: Client) -> None:
    approval = doubtful(LATE)
    page = reviewer.get(page_url(approval, "respond"))
    offered = Page(page).areas["result"]
    assert "t-1" not in offered
    confirm(reviewer, page, page_url(approval, "respond"), result=offered.replace("5", "6"))
    assert ToolApproval.objects.get().response == {**LATE, "paid": 6}


def test_the_list_marks_it_beside_the_name(reviewer: Client) -> None:
    approval = doubtful()
    make_approval()
    page = Page(reviewer.get(list_url(ToolApproval)))
    assert f"pay #{approval.pk} how did it end?" in page.text
    assert page.text.count("how did it end?") == 1


# What looks like JSON


@pytest.mark.parametrize("text", ['{"refund": R-1}', "[1, 2", '"By hand.', ' {"a": NaN}', '{"a": 1, "a": 2}'])
def test_what_looks_like_json_and_is_none_is_text_only_when_somebody_says_so(reviewer: Client, text: str) -> None:
    approval = make_approval()
    page = reviewer.get(page_url(approval, "respond"))
    assert "Send it as text" not in Page(page).text
    answer = confirm(reviewer, page, page_url(approval, "respond"), result=text, note="kept")
    assert (answer.status_code, statuses()) == (400, ["pending"])
    for words in ("This looks like JSON and is none", "Send it as text"):
        assert words in Page(answer).text
    assert (Page(answer).areas["result"], Page(answer).areas["note"]) == (text, "kept")
    answer = confirm(reviewer, answer, page_url(approval, "respond"), result=text, as_text="on")
    assert said(answer) == ["1 answered, 0 refused"]
    assert ToolApproval.objects.get().response == text


def test_what_does_not_look_like_json_is_text_at_once(reviewer: Client) -> None:
    approval = make_approval()
    page = reviewer.get(page_url(approval, "respond"))
    confirm(reviewer, page, page_url(approval, "respond"), result="R-1 {done}")
    assert ToolApproval.objects.get().response == "R-1 {done}"
