"""Moving about the reviewers' pages: what waits for whom, where a decision leads, and what is kept on the way."""

import json
from urllib.parse import parse_qs, urlsplit

import pytest

from agentcore import runtime
from agentcore.models import ApprovalDecision, ToolApproval
from agentcore.reviews import waiting
from agentcore.states import ApprovalStatus
from agentcore.testing import make_user
from agentcore.testing.agents import ledger
from tests.integration.review_pages import DECIDE, LIST, Reader, address, ask, decide, logged_in, status_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _clean_ledger():
    ledger.clear()


@pytest.fixture
def owner():
    return make_user("owner")


@pytest.fixture
def reviewer():
    return make_user("rita", permissions=(DECIDE,))


@pytest.fixture
def rita(reviewer):
    return logged_in(reviewer)


# Votes


def test_what_one_voted_on_waits_for_others_and_says_so(rita, reviewer, owner):
    approval = ask("launch", {"place": "moon"}, owner)
    assert "1 request waits for you." in Reader(rita.get(LIST)).text
    decide(rita, approval)
    reader = Reader(rita.get(LIST))
    assert "Nothing waits for you." in reader.text
    assert "You have voted; it waits for others." in reader.text
    assert address(approval, "approve") not in reader.forms()
    second = make_user("sam", permissions=(DECIDE,))
    assert (waiting.tally(reviewer).pending, waiting.tally(second).pending) == (0, 1)


def test_a_vote_on_an_earlier_version_does_not_keep_a_request_away(rita, reviewer, owner):
    approval = ask("launch", {"place": "moon"}, owner)
    decide(rita, approval)
    runtime.approve(approval.pk, make_user("sam", permissions=(DECIDE,)), arguments={"place": "mars"})
    assert waiting.tally(reviewer).pending == 1
    assert address(approval, "approve") in Reader(rita.get(LIST)).forms()


def test_before_the_vote_the_button_says_which_one_it_is(rita, owner):
    approval = ask("launch", {"place": "moon"}, owner)
    for path in (LIST, address(approval)):
        assert "Approve 1 of 2 approvals" in " ".join(Reader(rita.get(path)).text.split())
    decide(logged_in(make_user("sam", permissions=(DECIDE,))), approval)
    for path in (LIST, address(approval)):
        assert "Approve 2 of 2 approvals" in " ".join(Reader(rita.get(path)).text.split())
    assert "1 of 2 approvals given" in Reader(rita.get(LIST)).text


# The filter goes along


def test_the_filter_and_order_lead_to_a_request_and_on_and_back(rita, owner):
    first, other, last = (
        ask("send", {"to": "a"}, owner),
        ask("launch", {"place": "b"}, owner),
        ask("send", {"to": "c"}, owner),
    )
    links = [link["href"] for link in Reader(rita.get(f"{LIST}?tool=send&order=newest")).all("a")]
    carried = "?in=tool%3Dsend%26order%3Dnewest"
    assert address(last) + carried in links
    assert address(other) + carried not in links
    page = Reader(rita.get(address(last) + carried))
    assert [link["href"] for link in page.all("a") if link.get("rel") == "next"] == [address(first) + carried]
    assert not [link for link in page.all("a") if link.get("rel") == "prev"]
    assert [link["href"] for link in page.all("a") if "data-back" in link] == [f"{LIST}?tool=send&order=newest"]
    after = rita.post(address(last, "approve"), page.fields("approve"))
    assert after["Location"] == address(last) + carried
    again = Reader(rita.get(after["Location"]))
    assert address(first) + carried in [link["href"] for link in again.all("a") if "button" in link.get("class", "")]


def test_only_the_lists_own_parameters_are_carried(rita, owner):
    approval = ask("send", {"to": "a"}, owner)
    for given in ("//evil.example/", "https://evil.example", "next=//evil.example&tool=send&x=<script>"):
        page = rita.get(address(approval), {"in": given})
        assert "evil" not in page.content.decode()
        assert "script>&" not in page.content.decode()
    page = Reader(rita.get(address(approval), {"in": "next=//evil.example&tool=send"}))
    [back] = [link["href"] for link in page.all("a") if "data-back" in link]
    assert (urlsplit(back).netloc, parse_qs(urlsplit(back).query)) == ("", {"tool": ["send"]})
    sent = {**page.fields("reject"), "from": "request?next=//evil.example&tool=send"}
    assert rita.post(address(approval, "reject"), sent)["Location"] == f"{address(approval)}?in=tool%3Dsend"


# Nothing written is lost


def test_what_was_written_is_kept_when_the_request_is_shown_as_it_is_now(rita, owner):
    approval = ask("deliver", {"place": "a", "count": 1}, owner)
    page = Reader(rita.get(address(approval)))
    written = {**page.fields("edit"), "arguments.count": "7", "reason": "why though", "result": "by hand"}
    runtime.approve(
        approval.pk, make_user("sam", permissions=(DECIDE,)), arguments={"place": "b", "count": 1, "key": None}
    )
    shown = rita.post(f"{address(approval)}renew/", written)
    assert shown.status_code == 200
    reader = Reader(shown)
    assert "You saw version 1; this is version 2." in reader.text
    assert (reader.fields("edit")["arguments.count"], reader.fields("edit")["arguments.place"]) == ("7", "b")
    assert reader.fields("reject")["reason"] == "why though"
    assert reader.fields("respond")["result"] == "by hand"
    assert reader.fields("reject")["version"] == "2"
    assert not ApprovalDecision.objects.filter(actor_name="rita").exists()
    assert status_of(approval) == ApprovalStatus.PENDING


def test_what_was_written_is_shown_when_another_decided_meanwhile(rita, owner):
    approval = ask("send", {"to": "a"}, owner)
    sent = {**Reader(rita.get(address(approval))).fields("reject"), "reason": "I had asked them"}
    runtime.approve(approval.pk, make_user("sam", permissions=(DECIDE,)))
    for response in (rita.post(f"{address(approval)}renew/", sent), rita.post(address(approval, "reject"), sent)):
        text = Reader(response).text
        assert "What you had written, and was not sent" in text
        assert "I had asked them" in text


def test_apr_25_renewing_tells_nothing_of_what_is_not_ones_own(owner, client):
    approval = ask("send", {"to": "a"}, owner)
    outsider = logged_in(make_user("outsider"))
    there, missing = outsider.post(f"{address(approval)}renew/"), outsider.post("/reviews/999999/renew/")
    assert (there.status_code, missing.status_code) == (404, 404)
    assert Reader(there).text == Reader(missing).text


# Answering with text that looks like JSON


@pytest.mark.parametrize("text", ['{"a": 1', "[1, 2", '"half', "  {a: 1}"])
def test_what_begins_like_json_and_is_none_is_refused_once(rita, owner, text):
    approval = ask("send", {"to": "a"}, owner)
    refused = decide(rita, approval, "respond", result=text)
    reader = Reader(refused)
    assert refused.status_code == 400
    assert "This begins like JSON and is not valid JSON" in reader.text
    assert status_of(approval) == ApprovalStatus.PENDING
    assert [field for field in reader.all("textarea") if "autofocus" in field] == [
        field for field in reader.all("textarea") if field["name"] == "result"
    ]
    assert decide(rita, approval, "respond", result=text, as_text="on").status_code == 302
    assert ToolApproval.objects.get().response == text


def test_text_can_be_meant_where_json_would_be_read(rita, owner):
    approval = ask("send", {"to": "a"}, owner)
    decide(rita, approval, "respond", result="42", as_text="on")
    assert ToolApproval.objects.get().response == "42"


# After a refusal


def test_the_first_wrong_field_has_the_focus(rita, owner):
    approval = ask("deliver", {"place": "a", "count": 1}, owner)
    sent = {**Reader(rita.get(address(approval))).fields("edit"), "arguments.count": "many"}
    focused = [
        attrs["name"]
        for _tag, attrs in Reader(rita.post(address(approval, "approve"), sent)).elements
        if "autofocus" in attrs
    ]
    assert focused == ["arguments.count"]
    too_long = decide(rita, approval, "reject", reason="x" * 20_000)
    focused = [attrs["name"] for _tag, attrs in Reader(too_long).elements if "autofocus" in attrs]
    assert focused == ["reason"]


def test_who_was_logged_out_is_told_that_nothing_was_decided(client, reviewer, owner):
    approval = ask("send", {"to": "a"}, owner)
    for path, data in (
        (address(approval, "approve"), {"version": 1, "from": "request?tool=send"}),
        ("/reviews/decide/", {"verdict": "approve", "chosen": f"{approval.pk}:1", "from": "list?tool=send"}),
    ):
        sent = client.post(path, data)
        [back] = parse_qs(urlsplit(sent["Location"]).query)["next"]
        page = Reader(logged_in(reviewer).get(back))
        assert "Nothing was decided. Please decide again." in page.text
        assert "tool=send" in back.replace("%3D", "=")
    assert status_of(approval) == ApprovalStatus.PENDING


# What the list shows


def test_a_row_shows_line_ends_and_says_why_it_has_no_buttons(rita, owner):
    approval = ask("send", {"to": "acme\nBerlin", "body": "two  spaces"}, owner)
    reader = Reader(rita.get(LIST))
    assert "acme⏎Berlin" in reader.text
    assert "two  spaces" in reader.text
    assert "Too long to decide here: open it." in reader.text
    assert address(approval, "approve") not in reader.forms()
    refused = rita.post("/reviews/decide/", {"chosen": f"{approval.pk}:1", "verdict": "approve", "note": ""})
    assert "Not approved: the list does not show all of it." in Reader(refused).text


def test_a_row_says_how_many_arguments_it_leaves_out(rita, owner):
    ask("send", {"to": "a", "options": {"x": 1}}, owner)
    ToolApproval.objects.update(arguments={f"name{number}": number for number in range(9)})
    assert "and 3 more" in Reader(rita.get(LIST)).text


@pytest.mark.parametrize("text", ["null", "true", "12", "-1.5e3", "[1]", '{"a": 1}', '"quoted"', " null "])
def test_text_and_json_do_not_look_the_same(rita, owner, text):
    approval = ask("send", {"to": text, "body": "plain"}, owner)
    for path in (LIST, address(approval)):
        content = Reader(rita.get(path)).text
        assert json.dumps(text) in content
        assert "plain" in content


def test_a_long_text_that_reads_as_json_is_called_text(rita, owner):
    approval = ask("send", {"to": "[\n1\n]"}, owner)
    assert "text:[\n1\n]" in Reader(rita.get(address(approval))).text


def test_the_report_repeats_the_reason(rita, owner):
    approval = ask("send", {"to": "a"}, owner)
    sent = {"chosen": f"{approval.pk}:1", "verdict": "reject", "note": "not today"}
    text = Reader(rita.post("/reviews/decide/", sent)).text
    assert "The reason you gave" in text
    assert "not today" in text


# What the list and the record say


def test_who_may_only_view_is_not_told_that_nothing_waits(owner):
    ask("send", {"to": "a"}, owner)
    text = Reader(logged_in(make_user("auditor", permissions=("agentcore.view_toolapproval",))).get(LIST)).text
    assert "You may see 1 request here, and decide none." in text
    assert "Nothing waits for you." not in text


def test_what_fits_the_filter_is_counted_beside_what_waits(rita, owner):
    for name in ("a", "b"):
        ask("send", {"to": name}, owner)
    ask("launch", {"place": "moon"}, owner)
    text = Reader(rita.get(f"{LIST}?tool=send")).text
    assert "3 requests wait for you. 2 fit the filter." in text
    assert "fits the filter." not in Reader(rita.get(LIST)).text


def test_an_edit_reads_as_one_in_the_record_and_the_arguments_as_proposed(rita, owner):
    approval = ask("send", {"to": "a"}, owner)
    sent = {**Reader(rita.get(address(approval))).fields("edit"), "arguments.to": "b"}
    text = Reader(rita.post(address(approval, "approve"), sent, follow=True)).text
    assert "changed and approved" in text
    assert "Proposed arguments" in text
    plain = ask("send", {"to": "a"}, owner)
    decide(rita, plain)
    text = Reader(rita.get(address(plain))).text
    assert "changed and approved" not in text
    assert "Proposed arguments" not in text


def test_of_two_votes_only_the_edit_reads_as_one(rita, owner):
    approval = ask("launch", {"place": "moon"}, owner)
    second = make_user("sam", permissions=(DECIDE,))
    runtime.approve(approval.pk, second, arguments={"place": "mars"})
    approval.refresh_from_db()
    decide(rita, approval)
    assert Reader(rita.get(address(approval))).text.count("changed and approved") == 1
