"""Delete and restore sessions: softly and for good, in Python and in the admin."""

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import call_command

from agentcore import runtime
from agentcore.exceptions import Conflict, NotFound
from agentcore.memory import Item, Owner, Source, current
from agentcore.models import (
    AgentContext,
    AgentSession,
    AgentStep,
    ApprovalDecision,
    ContextEntry,
    Memory,
    SessionEvent,
    ToolApproval,
    ToolCall,
    Vector,
)
from agentcore.testing import assert_invariants, calls, make_session, make_turn, make_user
from tests.integration import admin_pages as pages
from tests.integration.api import client_of

pytestmark = pytest.mark.django_db

ROWS = (AgentSession, AgentContext, AgentStep, ToolCall, ToolApproval, ApprovalDecision, ContextEntry, SessionEvent)


@pytest.fixture
def owner():
    return make_user("owner")


@pytest.fixture
def ended(scripted, run_turns, owner):
    """A session whose turn ended, with an approved call behind it."""
    scripted([calls(("pay", {"amount": 1, "to": "x"})), "Done.", "Still here."])
    found = runtime.execute("testing-agent", "hi", session_id="ended", user=owner, initial_context={"a": 1})
    reviewer = make_user("reviewer", permissions=("agentcore.decide_toolapproval",))
    runtime.approve(found.pending_approvals[0].id, reviewer)
    run_turns()
    return AgentSession.objects.get()


def test_a_deleted_session_is_gone_until_it_is_restored_and_then_works_again(ended, owner):
    client = client_of(owner)
    assert client.delete("/api/sessions/ended/").status_code == 204
    assert client.get("/api/sessions/ended/").status_code == 404
    with pytest.raises(NotFound):
        runtime.enqueue("ended", "more", user=owner)
    with pytest.raises(Conflict, match="already a session"):
        runtime.execute("testing-agent", "more", session_id="ended", user=owner)

    restored = runtime.restore("ended")

    assert restored.deleted_at is None
    assert client.get("/api/sessions/ended/").status_code == 200
    [turn] = client.get("/api/sessions/ended/turns/").json()["results"]
    assert turn["response"] == "Done."
    again = runtime.execute("testing-agent", "more", session_id="ended", user=owner)
    assert again.response == "Still here."
    assert_invariants()


def test_the_history_of_a_restored_session_is_in_the_prompt_again(ended, owner, scripted):
    runtime.delete("ended")
    runtime.restore("ended")
    provider = scripted(["I remember."])
    runtime.execute("testing-agent", "more", session_id="ended", user=owner)
    assert "Done." in [message.content for message in provider.requests[0].messages]


def test_restoring_what_is_there_changes_nothing(ended):
    before = AgentSession.objects.values().get()
    assert runtime.restore("ended").pk == ended.pk
    assert AgentSession.objects.values().get() == before


@pytest.mark.parametrize("session_id", ["nowhere", "", "NO", "a\0", None, 7])
def test_what_never_was_is_not_restored(ended, session_id):
    with pytest.raises(NotFound):
        runtime.restore(session_id)


def test_an_active_turn_keeps_a_session_from_being_deleted(owner, settings):
    turn = make_turn(user=owner)
    for soft in (True, False):
        settings.AGENTCORE = {**settings.AGENTCORE, "SOFT_DELETE": soft}
        with pytest.raises(Conflict) as refused:
            runtime.delete(turn.session.session_id)
        assert refused.value.details["execution_id"] == str(turn.execution_id)
    assert AgentSession.objects.get().deleted_at is None


def test_without_soft_delete_every_row_goes_and_nothing_of_another_session(ended, scripted, settings):
    scripted(["Other."])
    runtime.execute("testing-agent", "hi", session_id="other")
    before = {model: model.objects.count() for model in ROWS}
    assert all(before.values())
    settings.AGENTCORE = {**settings.AGENTCORE, "SOFT_DELETE": False}

    runtime.delete("ended")

    assert list(AgentSession.objects.values_list("session_id", flat=True)) == ["other"]
    assert AgentContext.objects.count() == AgentStep.objects.count() == 1
    for model in (ToolCall, ToolApproval, ApprovalDecision, ContextEntry):
        assert not model.objects.exists(), model
    assert not SessionEvent.objects.exclude(session__session_id="other").exists()
    with pytest.raises(NotFound):
        runtime.restore("ended")
    call_command("agentcore_verify")


def test_without_soft_delete_what_is_remembered_of_the_session_goes_with_its_vectors(
    ended, settings, owner, django_capture_on_commit_callbacks
):
    settings.AGENTCORE = {**settings.AGENTCORE, "SOFT_DELETE": False, "MEMORY_BACKEND": "vector"}
    item = Item(kind="working_memory", text="tea", data={"key": "drink"})
    current().remember(Owner.of_session(ended), [item], source=Source())
    current().remember(Owner.of_user(owner), [Item(kind="fact", text="coffee")], source=Source())
    with django_capture_on_commit_callbacks(execute=True):
        runtime.delete("ended")
    stays = Memory.objects.get(kind="fact")
    assert not Memory.objects.filter(kind="working_memory").exists()
    assert stays.pk in Vector.objects.values_list("item", flat=True)
    assert set(Vector.objects.values_list("item", flat=True)) <= set(Memory.objects.values_list("pk", flat=True))


# In the admin


def choose(client, action, *sessions, **data):
    return client.post(
        pages.list_url(AgentSession), {"action": action, "_selected_action": [item.pk for item in sessions], **data}
    )


def act(client, action, *sessions):
    return pages.said(pages.confirm(client, choose(client, action, *sessions), pages.list_url(AgentSession)))


def test_the_admin_deletes_and_restores_after_a_page_that_asks(ended):
    client = pages.staff("agentcore.view_agentsession", "agentcore.delete_agentsession")
    page = choose(client, "delete_sessions", ended)
    assert page.status_code == 200
    assert b"can be restored" in page.content
    assert AgentSession.objects.get().deleted_at is None
    assert act(client, "delete_sessions", ended) == ["1 deleted, 0 refused."]
    assert AgentSession.objects.get().deleted_at is not None
    assert act(client, "restore_sessions", ended) == ["1 restored, 0 refused."]
    assert AgentSession.objects.get().deleted_at is None
    assert AgentContext.objects.get().deleted_at is None
    kept = LogEntry.objects.filter(object_repr="ended").order_by("pk").values_list("object_repr", "change_message")
    assert list(kept) == [("ended", "Deleted."), ("ended", "Restored.")]


def test_the_admin_says_when_the_rows_go_for_good(ended, settings):
    settings.AGENTCORE = {**settings.AGENTCORE, "SOFT_DELETE": False}
    client = pages.superuser()
    assert b"for good" in choose(client, "delete_sessions", ended).content
    assert act(client, "delete_sessions", ended) == ["1 deleted, 0 refused."]
    assert not AgentSession.objects.exists()


def test_the_admin_reports_what_was_refused(ended):
    turn = make_turn()
    messages = act(pages.superuser(), "delete_sessions", ended, turn.session)
    assert messages[0] == "1 deleted, 1 refused."
    assert "has an active turn" in messages[1]
    assert [item.deleted_at is None for item in AgentSession.objects.order_by("pk")] == [False, True]


def test_the_admin_archives(ended):
    client = pages.staff("agentcore.view_agentsession", "agentcore.change_agentsession")
    assert act(client, "archive_sessions", ended) == ["1 archived, 0 refused."]
    assert AgentSession.objects.get().status == "archived"


@pytest.mark.parametrize("action", ["archive_sessions", "delete_sessions", "restore_sessions"])
def test_who_may_only_look_is_offered_none_of_it(ended, action):
    client = pages.staff("agentcore.view_agentsession")
    assert action.encode() not in client.get(pages.list_url(AgentSession)).content
    choose(client, action, ended, post="yes")
    found = AgentSession.objects.get()
    assert (found.status, found.deleted_at) == ("active", None)


def test_a_title_full_of_markup_is_only_text_on_the_page():
    session = make_session(title="<script>alert(1)</script>\u202e")
    page = choose(pages.superuser(), "delete_sessions", session)
    assert b"<script>alert" not in page.content
    assert "\u202e" not in page.content.decode()
