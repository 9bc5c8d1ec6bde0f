"""The edit form with a field for each argument: what goes in, what comes out, and what is said when it is wrong."""

import json

import pytest

from agentcore import canonical
from agentcore.models import ToolApproval
from agentcore.states import ApprovalStatus
from agentcore.testing import ScriptedProvider, make_user, run_turns
from agentcore.testing.agents import ledger
from tests.integration.review_pages import (
    DECIDE,
    ORDER,
    Reader,
    address,
    ask,
    ask_order,
    logged_in,
    status_of,
)

pytestmark = pytest.mark.django_db(transaction=True)

APPROVE = "approve"


@pytest.fixture(autouse=True)
def _clean_ledger():
    ledger.clear()


@pytest.fixture
def owner():
    return make_user("owner")


@pytest.fixture
def rita():
    return logged_in(make_user("rita", permissions=(DECIDE,)))


def edit(client, approval, **changes):
    """Send the typed form as a browser would, with some of its fields changed."""
    fields = Reader(client.get(address(approval))).fields()
    changes = {f"arguments.{name}": value for name, value in changes.items()}
    assert set(changes) <= set(fields)
    return client.post(address(approval, APPROVE), {**fields, **changes})


def approved(approval):
    return ToolApproval.objects.get(pk=approval.pk).approved_arguments


def test_a_field_for_each_argument_by_its_type(rita, owner):
    fields = Reader(rita.get(address(ask_order(owner)))).fields()
    # PostgreSQL keeps no order of keys.
    options = json.loads(fields.pop("arguments.options"))
    assert options == {"api_key": "********", "wrap": 1.25, "nested": {"password": "********"}}
    lines = json.loads(fields.pop("arguments.lines"))
    assert lines == [{"item": "lamp", "count": 2}]
    assert {name.removeprefix("arguments."): value for name, value in fields.items() if "." in name} == {
        "to": "acme\r\nBerlin ",
        "count": "3",
        "price": "49.90",
        "urgent": "true",
        "size": '"small"',
        "day": "2026-12-24",
        "at": "2026-12-24T10:00:00+01:00",
        "colour": '"red"',
        "note": "",
        "rate": "1.5",
        "either": "3",
        "pin": "********",
    }


def test_the_form_says_what_each_field_is(rita, owner):
    reader = Reader(rita.get(address(ask_order(owner))))
    inputs = {field.get("name"): field for field in [*reader.all("input"), *reader.all("textarea")]}
    assert inputs["arguments.day"]["type"] == "date"
    assert inputs["arguments.count"]["inputmode"] == "numeric"
    assert inputs["arguments.price"]["inputmode"] == "decimal"
    for said in ("Who gets it", "whole number", "yes or no", "Left empty: no value.", "required"):
        assert said in reader.text


def test_what_is_left_as_it_was_is_no_edit(rita, owner):
    approval = ask_order(owner)
    assert edit(rita, approval).status_code == 302
    approval.refresh_from_db()
    assert (approval.status, approval.version) == (ApprovalStatus.APPROVED, 1)
    assert canonical.digest(approval.approved_arguments) == approval.arguments_digest
    assert approval.approved_arguments["to"] == ORDER["to"]


@pytest.mark.parametrize(
    ("name", "typed", "stored"),
    [
        ("to", "a\r\nb", "a\nb"),
        ("to", " spaces stay ", " spaces stay "),
        ("count", " 7 ", 7),
        ("price", "50.00", "50.00"),
        ("price", "9999999999999999999.99", "9999999999999999999.99"),
        ("rate", "2", 2),
        ("rate", "0.25", 0.25),
        ("urgent", "false", False),
        ("size", '"large"', "large"),
        ("colour", '"blue"', "blue"),
        ("day", "2027-01-02", "2027-01-02"),
        ("lines", "[]", []),
        ("lines", "null", None),
        ("options", '{"a": {"b": [1, "x", null]}}', {"a": {"b": [1, "x", None]}}),
        ("options", '{"api_key": "********", "wrap": 2}', {"api_key": "k-9", "wrap": 2}),
        ("note", "hello", "hello"),
        ("either", '"seven"', "seven"),
        ("pin", "1234", "1234"),
    ],
)
def test_an_edit_is_the_json_that_the_tool_takes(rita, owner, name, typed, stored):
    approval = ask_order(owner)
    assert edit(rita, approval, **{name: typed}).status_code == 302
    kept = {**approval.arguments, name: stored}
    assert approved(approval) == kept
    assert type(approved(approval)[name]) is type(stored)


def test_an_edit_of_one_field_keeps_the_secrets_and_runs_with_them(rita, owner):
    approval = ask_order(owner)
    assert edit(rita, approval, count="4").status_code == 302
    with ScriptedProvider(["Done."]).installed():
        run_turns()
    assert [(entry[1], entry[2], entry[4]) for entry in ledger.entries] == [(ORDER["to"], 4, "p-4711")]


def test_an_empty_field_is_no_value_where_there_may_be_none(rita, owner):
    approval = ask_order(owner, note="something")
    edit(rita, approval, note="")
    assert approved(approval)["note"] is None


@pytest.mark.parametrize(
    ("name", "typed", "problem"),
    [
        ("count", "three", "Give a whole number."),
        ("count", "", "This is required."),
        ("count", "-1", "greater than 0"),
        ("price", "49,90", "Give a number, with a point: 49.90."),
        ("price", "NaN", "Give a number, with a point: 49.90."),
        ("urgent", "maybe", "Choose one of the values offered."),
        ("size", '"huge"', "Choose one of the values offered."),
        ("day", "tomorrow", "Give a date: 2026-12-31."),
        ("at", "noon", "datetime"),
        ("lines", "[", "This is not valid JSON"),
        ("lines", '[{"item": 5}]', "0.item: "),
        ("options", '{"a": 1, "a": 2}', "This is not valid JSON"),
    ],
)
def test_apr_03_what_is_wrong_is_said_beside_its_field_and_the_rest_is_kept(rita, owner, name, typed, problem):
    approval = ask_order(owner)
    response = edit(rita, approval, **{name: typed, "to": "kept as typed"})
    assert response.status_code == 400
    reader = Reader(response)
    assert problem in reader.text
    fields = reader.fields()
    assert fields[f"arguments.{name}"] == typed or name in ("urgent", "size")
    assert fields["arguments.to"] == "kept as typed"
    [wrong] = [field for tag, field in reader.elements if tag == "div" and "field--wrong" in field.get("class", "")]
    assert wrong
    assert status_of(approval) == ApprovalStatus.PENDING


def test_a_field_that_the_tool_does_not_have_is_refused(rita, owner):
    approval = ask_order(owner)
    fields = Reader(rita.get(address(approval))).fields()
    response = rita.post(address(approval, APPROVE), {**fields, "arguments.admin": "true"})
    assert response.status_code == 400
    assert "There is no field arguments.admin in this decision." in Reader(response).text
    both = rita.post(address(approval, APPROVE), {**fields, "arguments": "{}"})
    assert both.status_code == 400
    assert status_of(approval) == ApprovalStatus.PENDING


def test_no_argument_is_taken_for_a_field_of_the_form(rita, owner):
    approval = ask_order(owner, note="of the order")
    fields = Reader(rita.get(address(approval))).fields()
    rita.post(address(approval, APPROVE), {**fields, "note": "of the decision"})
    approval.refresh_from_db()
    assert approval.approved_arguments["note"] == "of the order"
    assert approval.decisions.get().note == "of the decision"


def test_a_field_that_is_not_sent_stays_as_it_was(rita, owner):
    approval = ask_order(owner)
    assert rita.post(address(approval, APPROVE), {"version": 1, "arguments.count": "9"}).status_code == 302
    assert approved(approval) == {**approval.arguments, "count": 9}


def test_the_whole_as_json_goes_on_to_work(rita, owner):
    approval = ask_order(owner)
    whole = Reader(rita.get(address(approval))).fields("json")
    assert rita.post(address(approval, APPROVE), whole).status_code == 302
    assert approved(approval) == approval.arguments


def test_a_value_too_long_to_edit_stays_as_it_is(rita, owner):
    approval = ask("send", {"to": "acme", "body": "x" * 60_000}, owner)
    page = rita.get(address(approval))
    assert "60000 characters: too long to edit here, it stays as it is." in Reader(page).text
    assert "arguments.body" not in Reader(page).fields()
    assert edit(rita, approval, to="other").status_code == 302
    assert approved(approval) == {**approval.arguments, "to": "other"}


def test_what_hides_is_written_as_an_escape_in_the_fields(rita, owner):
    hidden = "49\u202e.90\u200b 漢\U000e0041"
    approval = ask_order(owner, to=hidden, options={hidden: hidden})
    page = Reader(rita.get(address(approval)))
    escaped = '"49\\u202e.90\\u200b 漢\\udb40\\udc41"'
    assert page.fields()["arguments.to"] == escaped
    assert page.fields()["arguments.options"] == f"{{\r\n  {escaped}: {escaped}\r\n}}"
    assert hidden not in page.fields("json")["arguments"]
    edit(rita, approval, count="4", options=f'{{"other": {escaped}}}')
    assert approved(approval) == {**approval.arguments, "count": 4, "options": {"other": hidden}}


def test_after_an_edit_the_page_shows_each_field_before_and_after(rita, owner):
    approval = ask_order(owner)
    edit(rita, approval, count="4", options='{"api_key": "k-10", "wrap": 2, "new": true}')
    page = rita.get(address(approval))
    text = Reader(page).text
    assert "Approved with these changes" in text
    for name, kind in (("count", "changed"), ("options.wrap", "changed"), ("options.new", "added")):
        assert f"{name} {kind}" in text
    assert "options.nested removed" in text
    assert "A secret: it is another one now." in text
    assert "3" in text
    assert not [secret for secret in ("k-9", "k-10", "p-1", "p-4711") if secret in page.content.decode()]


def test_apr_34_the_typed_form_holds_no_secret(rita, owner):
    approval = ask_order(owner)
    wrong = edit(rita, approval, count="three")
    for page in (rita.get(address(approval)), wrong):
        assert not [secret for secret in ("k-9", "p-1", "p-4711") if secret in page.content.decode()]


@pytest.mark.parametrize("text", ["", "  ", "null", "[]", "5", '{"to": 5}', "{to: 5}"])
def test_apr_03_raw_json_that_is_no_valid_edit_is_refused_and_the_request_stays(rita, owner, text):
    approval = ask_order(owner)
    response = rita.post(address(approval, APPROVE), {"version": "1", "arguments": text})
    assert response.status_code == 400
    assert status_of(approval) == ApprovalStatus.PENDING
