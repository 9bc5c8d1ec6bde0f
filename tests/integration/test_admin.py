"""The admin of the record: everything can be looked at, by few queries and safely, and nothing can be changed."""

import json
import logging
import re
from typing import Any

import pytest
from django.contrib.admin import site
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agentcore import TurnState, runtime
from agentcore.admin import deciding
from agentcore.memory import Item, Owner, Source, current
from agentcore.models import (
    Agent,
    AgentContext,
    AgentSession,
    AgentStep,
    ApprovalDecision,
    ContextEntry,
    Memory,
    SessionEvent,
    ToolApproval,
    ToolCall,
    UserQuestion,
)
from agentcore.testing import calls, make_approval, make_session, make_turn, make_user
from agentcore.testing.agents import ledger
from tests.integration.admin_pages import (
    ADMIN_AGENT,
    DECIDE,
    MODELS,
    VIEW,
    VIEW_ALL,
    Page,
    choose,
    confirm,
    copy_story,
    list_url,
    page_url,
    staff,
    superuser,
)

pytestmark = pytest.mark.django_db

by_model = pytest.mark.parametrize("model", MODELS, ids=[model.__name__ for model in MODELS])


@pytest.fixture(autouse=True)
def _clean_ledger() -> None:
    ledger.clear()


@pytest.fixture
def story() -> ToolApproval:
    """One row of every model."""
    approval = make_approval(user=make_user("asker"))
    ContextEntry.objects.create(
        turn=approval.turn,
        kind="fact",
        key="city",
        key_digest="0" * 64,
        value={"name": "Bern"},
        created_at=approval.requested_at,
        updated_at=approval.requested_at,
    )
    ApprovalDecision.objects.create(
        approval=approval,
        approval_version=1,
        verdict="approve",
        refusal="conflict",
        actor_key="77",
        actor_name="somebody",
        channel="api",
        note="too late",
        created_at=approval.requested_at,
    )
    UserQuestion.objects.create(
        turn=approval.turn,
        call=approval.call,
        question="Where to?",
        answer="asker's home",
        answered_by="asker",
        asked_at=approval.requested_at,
    )
    current().remember(Owner.of_session(approval.session), [Item(kind="fact", text="asker likes tea")], source=Source())
    return approval


def everything(model: Any) -> str:
    """Return the address of a list that shows rows of every status."""
    return list_url(model) + ("?status=all" if model is ToolApproval else "")


# Looking


@by_model
@pytest.mark.parametrize("kind", ["superuser", "viewer"])
def test_every_list_and_page_opens(model: Any, kind: str, story: ToolApproval) -> None:
    client = superuser() if kind == "superuser" else staff(*VIEW_ALL)
    record = model.objects.order_by("pk").last()
    listed = client.get(everything(model))
    assert listed.status_code == 200
    assert page_url(record) in Page(listed).pages
    assert client.get(page_url(record)).status_code == 200
    assert client.get(list_url(model) + "?q=something").status_code == 200


@by_model
def test_without_the_permission_to_view_there_is_nothing(model: Any, story: ToolApproval) -> None:
    client = staff()
    assert client.get(list_url(model)).status_code == 403
    answer = client.get(page_url(model.objects.order_by("pk").last()))
    assert answer.status_code in (302, 403)
    assert "asker" not in answer.content.decode()


def test_pages_lead_from_one_record_to_the_next(story: ToolApproval) -> None:
    client = superuser()
    call, turn = story.call, story.turn
    ways = [
        (story.session, turn, list_url(AgentContext)),
        (story.session, SessionEvent.objects.last(), list_url(SessionEvent)),
        (story.session, story, list_url(ToolApproval)),
        (turn, call, list_url(ToolCall)),
        (turn, story, list_url(ToolApproval)),
        (turn, SessionEvent.objects.last(), list_url(SessionEvent)),
        (turn, ContextEntry.objects.last(), list_url(ContextEntry)),
        (turn, UserQuestion.objects.last(), list_url(UserQuestion)),
        (call, story, list_url(ToolApproval)),
        (story, ApprovalDecision.objects.last(), list_url(ApprovalDecision)),
        (story.agent, story.session, list_url(AgentSession)),
    ]
    for record, target, listing in ways:
        [address] = [link for link in Page(client.get(page_url(record))).links if link.startswith(f"{listing}?")]
        assert page_url(target) in Page(client.get(address)).pages, f"{record!r} to {target!r}"
    for record, target in [(turn, call.step), (call.step, call), (call.step, turn), (story, call), (story, turn)]:
        assert page_url(target) in Page(client.get(page_url(record))).links


def test_links_lead_only_to_lists_that_one_may_see(story: ToolApproval) -> None:
    links = Page(staff("agentcore.view_agentsession").get(page_url(story.session))).links
    assert not [link for link in links if link.startswith(list_url(SessionEvent))]


def test_search_finds_a_turn_and_what_belongs_to_it_by_execution_id(story: ToolApproval) -> None:
    copy_story(story)
    client = superuser()
    for model, record in [
        (AgentContext, story.turn),
        (AgentStep, story.call.step),
        (ToolCall, story.call),
        (ToolApproval, story),
    ]:
        found = Page(client.get(list_url(model), {"q": str(story.turn.execution_id)})).pages
        assert [link for link in found if link.startswith(list_url(model)) and link.endswith("/change/")] == [
            page_url(record)
        ]


def test_search_finds_a_session_and_an_approval_by_their_ids(story: ToolApproval) -> None:
    copy_story(story)
    client = superuser()
    assert "1 agent session" in Page(client.get(list_url(AgentSession), {"q": story.session.session_id})).text
    for query in (story.session.session_id, story.call.call_id):
        assert "1 tool approval" in Page(client.get(list_url(ToolApproval), {"q": query})).text


def test_a_deleted_user_is_still_named(story: ToolApproval) -> None:
    client = superuser()
    story.requester.delete()
    for record in (story, story.turn, story.session):
        assert "asker (deleted)" in Page(client.get(page_url(record))).text
    assert "asker (deleted)" in Page(client.get(list_url(ToolApproval))).text


def test_what_the_model_wrote_that_is_no_json_is_shown_unless_it_may_hold_secrets(scripted: Any) -> None:
    scripted([calls(("pay", '{"amount": oops'), ("lookup", '{"password": oops')), "Sorry."])
    session = make_session()
    runtime.execute("testing-agent", "pay", session_id=session.session_id)
    plain, secret = ToolCall.objects.order_by("position")
    client = superuser()
    assert '{"amount": oops' in Page(client.get(page_url(plain))).text
    assert "oops" not in Page(client.get(page_url(secret))).text


@by_model
def test_a_list_is_not_asked_for_what_its_pages_may_mask(model: Any, story: ToolApproval) -> None:
    client = superuser()
    shown = site.get_model_admin(model)
    offered = {item[0] if isinstance(item, tuple) else item for item in shown.list_filter}
    offered |= {name.lstrip("^=") for name in shown.search_fields}
    for field in model._meta.concrete_fields:
        if not field.is_relation and not field.primary_key and field.name not in offered:
            for lookup in ("startswith", "icontains", "regex", "gt"):
                answer = client.get(list_url(model), {f"{field.name}__{lookup}": "a"})
                assert answer.status_code == 400, (field.name, lookup)


@by_model
def test_the_links_between_records_and_the_filters_of_a_list_are_answered(model: Any, story: ToolApproval) -> None:
    client = superuser()
    record = model.objects.order_by("pk").last()
    found = Page(client.get(page_url(record))).links + Page(client.get(everything(model))).links
    lists = [link for link in found if link.startswith(("/admin/agentcore/", "?")) and "?" in link]
    for link in lists:
        answer = client.get(link if link.startswith("/") else list_url(model) + link)
        assert answer.status_code == 200, link


# Nothing is changed


@by_model
def test_not_even_a_superuser_adds_changes_or_deletes(model: Any, story: ToolApproval) -> None:
    client = superuser()
    record = model.objects.order_by("pk").last()
    before = model.objects.filter(pk=record.pk).values().get()
    assert client.get(list_url(model) + "add/").status_code == 403
    assert client.post(list_url(model) + "add/", {"name": "x"}).status_code == 403
    assert client.post(page_url(record), {"status": "approved", "_save": "Save"}).status_code == 403
    assert client.post(page_url(record), {"_saveasnew": "1"}).status_code == 403
    assert client.get(page_url(record, "delete")).status_code == 403
    assert client.post(page_url(record, "delete"), {"post": "yes"}).status_code == 403
    chosen = {"action": "delete_selected", "_selected_action": record.pk, "post": "yes"}
    client.post(everything(model), chosen)
    assert model.objects.filter(pk=record.pk).values().get() == before


def test_dur_26_an_old_form_cannot_overwrite_a_turn_that_moved_on() -> None:
    turn = make_turn()
    AgentContext.objects.filter(pk=turn.pk).update(state=TurnState.THINKING)
    client = superuser()
    form = Page(client.get(page_url(turn)))
    assert not [name for fields in form.forms.values() for name, _ in fields if name in ("state", "step_count")]
    AgentContext.objects.filter(pk=turn.pk).update(state=TurnState.COMPLETED, active_session=None, step_count=3)
    sent = {"state": "thinking", "step_count": "0", "metadata": '{"note": "changed"}', "_save": "Save"}
    assert client.post(page_url(turn), sent).status_code == 403
    turn.refresh_from_db()
    assert (turn.state, turn.step_count, turn.metadata) == (TurnState.COMPLETED, 3, {})


# Size and speed


@by_model
def test_adm_01_a_list_of_100_rows_makes_as_many_queries_as_one_of_10(model: Any, story: ToolApproval) -> None:
    client = staff(*VIEW_ALL, DECIDE)
    for _ in range(10):
        copy_story(story)
    few = queries(client, everything(model))
    for _ in range(90):
        copy_story(story)
    many = queries(client, everything(model))
    assert few == many <= 20
    assert queries(client, everything(model) + ("&" if "?" in everything(model) else "?") + "q=s-") <= 20
    assert queries(client, page_url(model.objects.order_by("pk").last())) <= 20
    assert len(client.get(everything(model)).content) < 500_000


def queries(client: Any, url: str) -> int:
    with CaptureQueriesContext(
        connection,
    ) as captured:
        assert client.get(url).status_code == 200
    return len(captured)


def test_adm_01_confirming_100_makes_as_many_queries_as_confirming_10(story: ToolApproval) -> None:
    client = staff(VIEW, DECIDE)
    counts = []
    for number in (10, 90):
        for _ in range(number):
            copy_story(story)
        with CaptureQueriesContext(connection) as captured:
            page = choose(client, "approve_selected", ToolApproval.objects.all())
        assert page.status_code == 200
        counts.append(len(captured))
    assert counts[0] == counts[1] <= 20


@by_model
def test_adm_01_no_filter_lists_sessions_or_users(model: Any, story: ToolApproval) -> None:
    copies = [copy_story(story) for _ in range(3)]
    page = superuser().get(everything(model)).content.decode()
    filters = "".join(re.findall(r'<(?:nav|search) id="changelist-filter".*?</(?:nav|search)>', page, re.DOTALL))
    assert filters
    for copy in copies:
        assert copy.requester_name not in filters
        assert copy.session.session_id not in filters
    # The only drop-down is that of the actions.
    assert page.count("<select") == (1 if model in (AgentSession, ToolApproval, ApprovalDecision) else 0)


@by_model
def test_adm_01_lists_load_no_large_values(model: Any, story: ToolApproval) -> None:
    with CaptureQueriesContext(connection) as captured:
        superuser().get(everything(model))
    large = (
        "definition",
        "metadata",
        "input",
        "response",
        "result",
        "late_result",
        "message",
        "data",
        "value",
        "preview",
    )
    # Data of a memory is small, and says whether its text is a secret.
    small = {(Memory, "data")}
    table = model._meta.db_table
    for query in captured:
        loaded = re.findall(r'[`"](\w+)[`"]\.[`"](\w+)[`"]', query["sql"].split(" FROM ")[0])
        assert not [name for owner, name in loaded if owner == table and name in large and (model, name) not in small]


def test_apr_33_huge_arguments_keep_lists_small_and_run_whole(settings: Any, scripted: Any, run_turns: Any) -> None:
    settings.AGENTCORE = {**settings.AGENTCORE, "MAX_ARGUMENT_BYTES": 4 * 2**20}
    huge = make_approval("say", {"body": "x" * 2 * 2**20}, session=make_session(ADMIN_AGENT))
    small = [make_approval(arguments={"amount": n + 1, "to": "acme"}) for n in range(3)]
    client = staff(*VIEW_ALL, DECIDE)
    for model in MODELS:
        assert len(client.get(everything(model)).content) < 200_000
    listed = Page(client.get(list_url(ToolApproval))).text
    assert "2,097,1" in listed
    assert "amount: 3" in listed
    page = client.get(page_url(huge)).content
    assert page.index(b"formaction") < page.index(b"xxxx")
    assert page.count(b"x") > 2 * 2**20
    asked = choose(client, "approve_selected", [huge, *small])
    assert len(asked.content) < 200_000
    scripted(lambda request: "Done.")
    confirm(client, asked, list_url(ToolApproval))
    alone = client.get(page_url(huge, "approve"))
    assert alone.content.count(b"x") > 2 * 2**20
    confirm(client, alone, page_url(huge, "approve"))
    run_turns()
    assert ("say", 2 * 2**20 + 2) in ledger.entries
    assert len(ledger.entries) == 4


# What it shows is safe

BAD = '</pre><x-data><img src=x onerror=alert(1)><script>alert(2)</script>"><svg onload=alert(4)>'


def test_apr_30_no_element_is_made_from_data(story: ToolApproval) -> None:
    poison(story)
    client = staff(*VIEW_ALL, DECIDE, username=f"{BAD}me"[:140])
    pages = [client.get(everything(model)) for model in MODELS]
    pages += [client.get(page_url(model.objects.order_by("pk").first())) for model in MODELS]
    pages += [client.get(page_url(model.objects.order_by("pk").last())) for model in MODELS]
    pages += [client.get(page_url(story, page)) for page in ("approve", "reject", "history")]
    asked = choose(client, "approve_selected", [story])
    ToolApproval.objects.filter(pk=story.pk).update(version=9)
    told = confirm(client, asked, list_url(ToolApproval), note=BAD)
    assert "0 approved, 1 refused" in Page(told).text
    for response in [*pages, asked, told]:
        assert response.status_code == 200
        assert_only_ours(Page(response))
    detail = Page(client.get(page_url(story))).text
    assert json.dumps(BAD, ensure_ascii=False) in detail
    assert f"{BAD}preview" in detail
    assert f"{BAD}title" in Page(client.get(page_url(story.session))).text
    assert f"{BAD}response" in Page(client.get(page_url(story.turn))).text


def poison(story: ToolApproval) -> None:
    """Put markup wherever a model, a tool or a user can put text."""
    both = {BAD: BAD, "list": [BAD]}
    error = {"code": BAD, "message": BAD, "details": both}
    Agent.objects.filter(pk=story.agent_id).update(name=BAD[:64])
    AgentSession.objects.filter(pk=story.session_id).update(title=f"{BAD}title", metadata=both, user_name=BAD)
    AgentContext.objects.filter(pk=story.turn_id).update(
        input={"role": "user", "content": BAD},
        response=f"{BAD}response",
        error=error,
        question=BAD,
        metadata=both,
        user_name=BAD,
        idempotency_key=BAD,
    )
    AgentStep.objects.filter(turn=story.turn).update(message={"content": BAD}, error=error, model=BAD)
    ToolCall.objects.filter(pk=story.call_id).update(
        tool=BAD,
        arguments=both,
        proposed_arguments=both,
        result=both,
        error=error,
        late_result=BAD,
        provider_call_id=BAD,
    )
    ToolApproval.objects.filter(pk=story.pk).update(
        tool=BAD,
        arguments=both,
        approved_arguments=both,
        response=BAD,
        preview=f"{BAD}preview",
        reason=BAD,
        requester_name=BAD,
    )
    ApprovalDecision.objects.update(actor_name=BAD, note=BAD)
    SessionEvent.objects.update(data=both)
    SessionEvent.objects.filter(sequence=2).update(type=BAD[:64])
    ContextEntry.objects.update(key=BAD, value=both)
    Memory.objects.update(text=BAD, data=both, user_name=BAD, told_in=BAD[:64])


def assert_only_ours(page: Page) -> None:
    for tag, attributes in page.elements:
        assert tag != "x-data"
        assert not [name for name in attributes if name.startswith("on")]
        assert "style" not in attributes or tag == "div"
        assert tag not in ("img", "script") or attributes.get("src", "").startswith(("/static/", "/admin/"))
        assert not (attributes.get("href") or "").lower().startswith("javascript:")


def test_pages_work_under_a_policy_without_inline_script_and_style(story: ToolApproval) -> None:
    client = superuser()
    asked = choose(client, "approve_selected", [story])
    for response in (client.get(page_url(story)), asked, client.get("/admin/agentcore/")):
        own = response.content.decode()
        assert "<style" not in own
        assert " style=" not in own
        assert not re.search(r"<script(?![^>]*\bsrc=)", own)


SECRETS = ("sk-123", "k-9", "p-4711", "t-77")


def test_apr_34_secrets_are_masked_on_every_page(
    scripted: Any, run_turns: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    arguments = {
        "url": "https://h",
        "headers": {"Authorization": "Bearer sk-123"},
        "api_key": "k-9",
        "pin": "p-4711",
        "note": "hi",
    }
    approval = make_approval("fetch", arguments, session=make_session(ADMIN_AGENT))
    client = staff(*VIEW_ALL, DECIDE)
    asked = choose(client, "approve_selected", [approval])
    pages = [asked, client.get(list_url(ToolApproval)), client.get(page_url(approval)), client.get("/admin/agentcore/")]
    for page in pages[:3]:
        text = Page(page).text
        assert "hi" in text
        assert "********" in text
    pages.append(confirm(client, asked, list_url(ToolApproval)))
    scripted(["Done."])
    run_turns()
    assert ledger.entries == [("fetch", "Bearer sk-123", "k-9", "p-4711")]
    for model in MODELS:
        pages.append(client.get(everything(model)))
        pages.extend(client.get(page_url(record)) for record in model.objects.all())
    for page in pages:
        assert page.status_code == 200
        assert not [secret for secret in SECRETS if secret in page.content.decode()]
    assert not [secret for secret in SECRETS if secret in caplog.text]


def test_apr_34_an_entry_whose_key_is_a_secret_is_masked(story: ToolApproval) -> None:
    ContextEntry.objects.update(key="db_password", value="p-4711")
    text = Page(superuser().get(page_url(ContextEntry.objects.get()))).text
    assert "p-4711" not in text
    ContextEntry.objects.update(kind="recalled", key="1", value={"text": "The PIN is p-4711.", "kind": "fact"})
    text = Page(superuser().get(page_url(ContextEntry.objects.get()))).text
    assert "p-4711" not in text
    assert "fact" in text


# The front page


def test_the_app_page_says_what_waits_for_whom(story: ToolApproval) -> None:
    copy_story(story)
    address = "/admin/agentcore/"
    assert "2 requests wait for your decision" in Page(staff(DECIDE).get(address)).text
    assert "2 requests wait for a decision" in Page(staff(VIEW).get(address)).text
    assert "wait" not in Page(staff("agentcore.view_agentsession").get(address)).text
    ToolApproval.objects.update(status="rejected")
    assert "No request waits" in Page(staff(DECIDE).get(address)).text


def test_the_app_page_makes_as_many_queries_for_many(story: ToolApproval) -> None:
    client = staff(*VIEW_ALL, DECIDE)
    few = queries(client, "/admin/agentcore/")
    for _ in range(10):
        copy_story(story)
    assert queries(client, "/admin/agentcore/") == few


def test_the_bound_fits_into_the_fields_that_django_takes(settings: Any) -> None:
    assert deciding.MAX_AT_ONCE * 2 + 10 < settings.DATA_UPLOAD_MAX_NUMBER_FIELDS


@by_model
def test_a_nul_in_the_address_of_a_list_finds_nothing(story: ToolApproval, model: Any) -> None:
    client = superuser()
    admin_of = site.get_model_admin(model)
    names = [one.parameter_name for one in admin_of.list_filter if hasattr(one, "parameter_name")]
    paths = [one[0] if isinstance(one, tuple) else one for one in admin_of.list_filter if not hasattr(one, "lookups")]
    texts = [
        field.name for field in model._meta.concrete_fields if field.get_internal_type() in ("CharField", "TextField")
    ]
    lookups = [*names, *paths, *texts, "q", "p", "o", "all", "session__session_id", "turn__execution_id__exact", "x\0"]
    for lookup in lookups:
        for query in ({lookup: "\0"}, {f"{lookup}__contains": "a\0"}, {lookup: ["pay", "\0"]}):
            answer = client.get(list_url(model), query)
            assert answer.status_code in (200, 302, 400), (lookup, answer.status_code)
    assert client.get(f"{list_url(model)}%00/change/").status_code in (302, 404)


def test_a_nul_in_a_filter_is_an_unknown_value(story: ToolApproval) -> None:
    client = superuser()
    for model in (ToolApproval, ToolCall):
        for value in ("\0", "nothing-of-this-name"):
            answer = client.get(list_url(model), {"tool": value})
            assert answer.status_code == 200
            assert page_url(story.call if model is ToolCall else story) not in Page(answer).pages
