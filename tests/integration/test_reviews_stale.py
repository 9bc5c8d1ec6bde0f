"""A page that is no longer true: nothing is decided, and the person sees what changed and keeps what they wrote."""

import pytest

from agentcore import runtime
from agentcore.agents.registry import registry
from agentcore.models import ApprovalDecision, ToolApproval
from agentcore.reviews import seen
from agentcore.states import ApprovalStatus
from agentcore.testing import make_user
from agentcore.testing.agents import ledger
from tests.integration.review_pages import DECIDE, Reader, address, ask, logged_in, status_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def owner():
    return make_user("owner")


@pytest.fixture
def second():
    return make_user("sam", permissions=(DECIDE,))


@pytest.fixture
def rita():
    return logged_in(make_user("rita", permissions=(DECIDE,)))


@pytest.fixture
def approval(owner):
    return ask("deliver", {"place": "moon", "count": 1, "key": {"token": "first-secret"}}, owner)


def form(client, approval, name="approve"):
    return Reader(client.get(address(approval))).fields(name)


def test_apr_04_a_refusal_of_an_old_page_shows_what_changed(rita, second, approval):
    old = form(rita, approval)
    runtime.approve(approval.pk, second, arguments={"place": "mars", "count": 1, "key": {"token": "other-secret"}})
    response = rita.post(address(approval, "approve"), {**old, "note": "kept"})
    text = Reader(response).text
    assert response.status_code == 409
    assert "You saw version 1; this is version 2." in text
    assert "place changed" in text
    assert "moon" in text
    assert "count changed" not in text
    assert "kept" in text
    assert "first-secret" not in response.content.decode()
    assert "other-secret" not in response.content.decode()
    assert status_of(approval) == ApprovalStatus.PENDING
    assert ledger.entries == []


def test_a_change_of_a_secret_alone_is_told_without_it(rita, second, approval):
    old = form(rita, approval)
    runtime.approve(approval.pk, second, arguments={"place": "moon", "count": 1, "key": {"token": "other-secret"}})
    response = rita.post(address(approval, "approve"), old)
    assert "A value that is hidden from you changed." in Reader(response).text
    assert "other-secret" not in response.content.decode()


@pytest.mark.parametrize("sent", ["", "forged", "of another request"])
def test_what_an_old_page_showed_is_not_made_up(rita, second, owner, approval, sent):
    other = ask("deliver", {"place": "venus", "count": 5}, owner)
    told = seen.pack(other) if sent == "of another request" else sent
    runtime.approve(approval.pk, second, arguments={"place": "mars", "count": 1, "key": {"token": "first-secret"}})
    response = rita.post(address(approval, "approve"), {"version": 1, "seen": told})
    text = Reader(response).text
    assert response.status_code == 409
    assert "What that version held is not known here" in text
    assert "mars" in text
    assert "venus" not in text


def test_a_long_value_is_told_to_have_changed_though_it_was_not_kept(rita, second, owner):
    approval = ask("deliver", {"place": "x" * 5_000, "count": 1}, owner)
    old = form(rita, approval)
    runtime.approve(approval.pk, second, arguments={"place": "y" * 5_000, "count": 1})
    text = Reader(rita.post(address(approval, "approve"), old)).text
    assert "place changed" in text
    assert "a long value, not kept" in text


def test_an_edit_on_an_old_page_keeps_what_was_typed_and_takes_the_rest_from_the_request(rita, second, approval):
    old = form(rita, approval, "edit")
    runtime.approve(approval.pk, second, arguments={"place": "mars", "count": 1, "key": None})
    response = rita.post(address(approval, "approve"), {**old, "arguments.count": "7", "note": "mine"})
    assert response.status_code == 409
    again = Reader(response).fields("edit")
    # The next click would otherwise undo what the other person changed.
    assert again["arguments.place"] == "mars"
    assert (again["arguments.count"], again["note"], again["version"]) == ("7", "mine", "2")
    rita.post(address(approval, "approve"), again)
    assert ToolApproval.objects.get(pk=approval.pk).arguments == {"place": "mars", "count": 7, "key": None}


def test_json_typed_on_an_old_page_is_kept(rita, second, approval):
    old = form(rita, approval, "json")
    runtime.approve(approval.pk, second, arguments={"place": "mars", "count": 1})
    typed = '{"place": "venus", "count": 1}'
    response = rita.post(address(approval, "approve"), {**old, "arguments": typed})
    assert Reader(response).fields("json")["arguments"] == typed


def test_a_tool_that_changed_is_named_as_what_changed(rita, approval, monkeypatch):
    old = form(rita, approval)
    definition = registry.find("reviews-agent").tools["deliver"]
    monkeypatch.setitem(definition.__dict__, "fingerprint", "another")
    response = rita.post(address(approval, "approve"), old)
    text = Reader(response).text
    assert response.status_code == 409
    assert "The tool changed: its name, description, arguments or version." in text


def test_an_old_page_of_a_decided_request_says_who_decided(rita, second, approval):
    old = form(rita, approval)
    runtime.reject(approval.pk, second, reason="no")
    response = rita.post(address(approval, "approve"), old)
    assert response.status_code == 409
    assert "decided by sam" in Reader(response).text
    assert ApprovalDecision.objects.filter(approval=approval, refusal="conflict").count() == 1


def test_adm_10_a_decided_request_has_no_buttons_on_any_page(rita, second, approval):
    runtime.reject(approval.pk, second, reason="no")
    assert Reader(rita.get(address(approval))).forms() == []
    assert Reader(rita.get("/reviews/")).forms() == ["/reviews/0/approve/", "/reviews/0/reject/"]
