"""The queue's filters: what they keep, what they offer, what they cost."""

from datetime import timedelta

import pytest

from agentcore import clock as clocks
from agentcore.models import ToolApproval
from agentcore.reviews import filters, waiting
from agentcore.testing import make_user
from tests.integration.review_pages import (
    DECIDE,
    LIST,
    Reader,
    address,
    ask,
    ask_order,
    count_queries,
    ids_on,
    logged_in,
)

pytestmark = pytest.mark.django_db(transaction=True)

VIEW = "agentcore.view_toolapproval"


@pytest.fixture
def owner():
    return make_user("owner")


@pytest.fixture
def rita():
    return logged_in(make_user("rita", permissions=(DECIDE,)))


def options(response, field):
    """Return the values that a select of the filter offers."""
    found, inside = [], False
    for tag, attrs in Reader(response).elements:
        if tag == "select":
            inside = attrs["name"] == field
        elif tag == "option" and inside:
            found.append(attrs["value"])
    return found


def test_a_tool_and_an_agent_narrow_the_queue(rita, owner):
    small, send, order = ask("small", {"n": 1}, owner), ask("send", {"to": "acme"}, owner), ask_order(owner)
    assert ids_on(rita.get(LIST)) == [small.pk, send.pk, order.pk]
    assert ids_on(rita.get(f"{LIST}?tool=send")) == [send.pk]
    assert ids_on(rita.get(f"{LIST}?agent=typed-agent")) == [order.pk]
    assert ids_on(rita.get(f"{LIST}?agent=reviews-agent&tool=small")) == [small.pk]
    nothing = rita.get(f"{LIST}?tool=nothing")
    assert ids_on(nothing) == []
    assert "Nothing that waits fits this filter." in Reader(nothing).text


def test_only_what_waits_is_offered_and_what_is_chosen_stays(rita, owner):
    ask("small", {"n": 1}, owner)
    ask("audit", {"team": "red"}, owner)
    page = rita.get(f"{LIST}?tool=gone&age=day")
    assert options(page, "tool") == ["", "gone", "small"]
    assert options(page, "agent") == ["", "reviews-agent"]
    assert options(page, "mine") == ["", "decide", "own"]


def test_names_that_are_too_many_are_typed_and_not_chosen(rita, owner, monkeypatch):
    monkeypatch.setattr(filters, "MAX_CHOICES", 1)
    ask("small", {"n": 1}, owner)
    send = ask("send", {"to": "acme"}, owner)
    page = rita.get(f"{LIST}?tool=send")
    assert options(page, "tool") == []
    assert [field["value"] for field in Reader(page).all("input") if field.get("name") == "tool"] == ["send"]
    assert ids_on(page) == [send.pk]


@pytest.mark.parametrize(("age", "kept"), [("hour", 2), ("day", 1), ("week", 0), ("", 3), ("year", 0)])
def test_an_age_keeps_what_waits_for_longer(rita, owner, age, kept):
    approvals = [ask("small", {"n": number}, owner) for number in range(3)]
    for approval, waits in zip(approvals, (timedelta(days=2), timedelta(hours=2), timedelta(minutes=2)), strict=True):
        ToolApproval.objects.filter(pk=approval.pk).update(requested_at=clocks.now() - waits)
    assert ids_on(rita.get(f"{LIST}?age={age}")) == [approval.pk for approval in approvals[:kept]]


def test_mine_is_what_i_may_decide_or_what_i_asked_for_or_all_that_i_may_see(owner):
    user = make_user("both", permissions=(DECIDE, VIEW))
    own, others, teams = ask("send", {"to": "a"}, user), ask("send", {"to": "b"}, owner), ask("audit", {"team": "x"})
    client = logged_in(user)
    assert ids_on(client.get(LIST)) == [own.pk, others.pk]
    assert ids_on(client.get(f"{LIST}?mine=decide")) == [others.pk]
    assert ids_on(client.get(f"{LIST}?mine=own")) == [own.pk]
    everything = client.get(f"{LIST}?mine=all")
    assert ids_on(everything) == [own.pk, others.pk, teams.pk]
    assert "You may see this request, but not decide it." in Reader(everything).text
    assert address(teams, "approve") not in Reader(everything).forms()


def test_all_is_not_offered_to_whom_may_not_see_all(rita, owner):
    teams = ask("audit", {"team": "red"}, owner)
    page = rita.get(f"{LIST}?mine=all")
    assert ids_on(page) == []
    assert str(teams.pk) not in options(page, "mine")


def test_who_may_only_view_finds_what_waits_and_no_buttons(owner):
    approval = ask("small", {"n": 1}, owner)
    page = logged_in(make_user("auditor", permissions=(VIEW,))).get(LIST)
    assert ids_on(page) == [approval.pk]
    assert address(approval, "approve") not in Reader(page).forms()


def test_a_filter_survives_paging_order_and_a_decision(rita, owner, monkeypatch):
    monkeypatch.setattr(waiting, "PAGE_SIZE", 2)
    approvals = [ask("small", {"n": number}, owner) for number in range(3)]
    ask("send", {"to": "acme"}, owner)
    page = rita.get(f"{LIST}?tool=small&order=newest")
    assert ids_on(page) == [approvals[2].pk, approvals[1].pk]
    links = [link.get("href") for link in Reader(page).all("a")]
    assert f"?tool=small&order=newest&before={approvals[1].pk}" in links
    assert {"?tool=small", "?tool=small&order=newest", "?order=newest"} <= set(links)
    back = next(field["value"] for field in Reader(page).all("input") if field.get("name") == "from")
    decided = rita.post(address(approvals[2], "approve"), {"version": 1, "from": back})
    assert decided["Location"] == f"{LIST}?tool=small&order=newest"


@pytest.mark.parametrize(
    "back", ["list?next=//evil.example", "list?//evil.example", "list?tool=a%0d%0aSet-Cookie: x=1"]
)
def test_the_way_back_leads_nowhere_else(rita, owner, back):
    approval = ask("small", {"n": 1}, owner)
    location = rita.post(address(approval, "approve"), {"version": 1, "from": back})["Location"]
    assert location.partition("?")[0] == LIST
    assert "evil" not in location
    assert "\n" not in location


@pytest.mark.parametrize("query", ["tool=%00", "agent=%00", "mine=%00", "age=%00", "tool=" + "x" * 300])
def test_what_no_filter_can_be_is_not_asked(rita, owner, query):
    approval = ask("small", {"n": 1}, owner)
    assert ids_on(rita.get(f"{LIST}?{query}")) == [approval.pk]


def test_the_script_is_told_the_filter(rita):
    reader = Reader(rita.get(f"{LIST}?tool=small&agent=x&age=hour&mine=own"))
    [root] = [attrs for attrs in reader.all("div") if "data-reviews" in attrs]
    told = [root[f"data-filter-{name}"] for name in ("tool", "agent", "age", "whose")]
    assert (told, root["data-me"]) == (["small", "x", "3600", "own"], "rita")


def test_a_request_that_nobody_may_decide_is_told_on_the_list_and_on_its_page(rita, owner):
    approval = ask("small", {"n": 1}, owner)
    assert "waits in vain" not in Reader(rita.get(LIST)).text
    ToolApproval.objects.filter(pk=approval.pk).update(is_unroutable=True)
    assert "Nobody active may decide 1 request, or too few may" in Reader(rita.get(LIST)).text
    assert "Nobody active may decide this request, or too few may" in Reader(rita.get(address(approval))).text


@pytest.mark.parametrize("query", ["", "?tool=small&agent=reviews-agent&age=hour&mine=decide", "?order=newest"])
def test_adm_01_the_list_costs_the_same_for_10_and_for_10_000_requests(rita, owner, query):
    first = ask("small", {"n": 0}, owner)
    ToolApproval.objects.filter(pk=first.pk).update(requested_at=clocks.now() - timedelta(days=1))
    first.refresh_from_db()
    counts, sizes = [], []
    for wanted in (10, 1_000, 10_000):
        copy_until(first, wanted)
        counts.append(count_queries(rita, LIST + query))
        sizes.append(len(rita.get(LIST + query).content))
    assert counts[0] == counts[1] == counts[2] <= 14
    assert max(sizes) < 200_000


@pytest.mark.parametrize("wanted", [10, 1_000])
def test_adm_01_the_page_of_one_request_costs_the_same_among_many(rita, owner, wanted):
    first = ask("small", {"n": 0}, owner)
    copy_until(first, wanted)
    assert count_queries(rita, address(first)) <= 30


def copy_until(approval, wanted):
    """Have so many requests wait, all like this one: what a list costs does not depend on their turns."""
    missing = wanted - ToolApproval.objects.pending().count()
    fields = {field.attname: getattr(approval, field.attname) for field in approval._meta.concrete_fields}
    del fields["id"]
    ToolApproval.objects.bulk_create([ToolApproval(**fields) for _ in range(missing)], batch_size=500)
