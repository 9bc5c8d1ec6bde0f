"""Remove what is older than it may be: the rest of the log is still proved, and decisions stay on record."""

import io
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command

from agentcore import runtime
from agentcore.events import log
from agentcore.keeping import retention
from agentcore.memory import Item, Owner, Source, current
from agentcore.models import (
    AgentContext,
    AgentSession,
    AgentStep,
    ApprovalDecision,
    Memory,
    SessionEvent,
    ToolApproval,
    ToolCall,
    Vector,
)
from agentcore.testing import assert_invariants, calls, make_approval, make_session, make_user
from agentcore.turns import emptying
from tests.integration.api import client_of

pytestmark = pytest.mark.django_db

DECIDE = "agentcore.decide_toolapproval"


@pytest.fixture
def owner():
    return make_user("owner")


@pytest.fixture
def say(scripted, owner):
    """Have a turn worked to its end in a session."""

    def say(session_id, text, *replies):
        scripted([*replies] or [f"Answer to {text}."])
        return runtime.execute("testing-agent", text, session_id=session_id, user=owner)

    return say


@pytest.fixture
def decided(say, run_turns):
    """A session with one turn that somebody decided about."""
    found = say("decided", "pay it", calls(("pay", {"amount": 1, "to": "x"})), "Paid.")
    reviewer = make_user("reviewer", permissions=(DECIDE,))
    runtime.approve(found.pending_approvals[0].id, reviewer, note="Fine.")
    run_turns()
    return AgentSession.objects.get(session_id="decided")


def verified():
    call_command("agentcore_verify", stdout=io.StringIO())
    assert_invariants()


def trim(*arguments):
    out = io.StringIO()
    call_command("agentcore_trim", *arguments, stdout=out)
    return out.getvalue()


def test_the_oldest_turns_go_and_the_rest_of_the_log_is_still_proved(say, clock, owner):
    say("s", "first", calls(("lookup", {"q": "a"})), "One.")
    clock.advance(timedelta(days=10))
    say("s", "second")
    cut = SessionEvent.objects.filter(turn__input__content="second").order_by("sequence").first().sequence - 1
    hash = SessionEvent.objects.get(sequence=cut).hash
    before = AgentSession.objects.get()

    assert runtime.trim(5) == {"turns": 1, "events": cut, "sessions": 0}

    session = AgentSession.objects.get()
    assert (session.removed_through, session.removed_hash) == (cut, hash)
    assert session.updated_at == before.updated_at, "it does not look used"
    assert list(AgentContext.objects.values_list("response", flat=True)) == ["Answer to second."]
    assert AgentStep.objects.count() == 1
    assert not ToolCall.objects.exists()
    last = SessionEvent.objects.order_by("sequence").last()
    assert (last.type, last.data) == ("session.trimmed", {"through": cut, "hash": hash, "turns": 1})
    verified()
    SessionEvent.objects.filter(sequence=cut + 2).update(created_at=clock.now())
    with pytest.raises(CommandError):
        verified()


def test_the_session_goes_on_after_its_whole_log_went(say, clock):
    say("s", "first")
    last = AgentSession.objects.get().last_sequence
    clock.advance(timedelta(days=10))
    assert runtime.trim(5)["turns"] == 1
    assert AgentSession.objects.get().removed_through == last
    again = say("s", "second")
    assert again.response == "Answer to second."
    assert SessionEvent.objects.order_by("sequence").first().sequence == last + 1
    verified()
    clock.advance(timedelta(days=10))
    assert runtime.trim(5)["turns"] == 1
    verified()


def test_a_young_or_an_active_turn_stays(say, clock, owner):
    say("s", "first")
    make_approval(session=make_session(session_id="waiting", user=owner))
    clock.advance(timedelta(days=4))
    assert not any(runtime.trim(5).values())
    clock.advance(timedelta(days=4))
    assert runtime.trim(5)["turns"] == 1
    assert AgentContext.objects.get().session.session_id == "waiting"
    assert AgentSession.objects.get(session_id="waiting").removed_through == 0
    verified()


def test_more_turns_than_one_transaction_takes_go_oldest_first(say, clock, monkeypatch):
    monkeypatch.setattr(retention, "TURNS", 3)
    monkeypatch.setattr(retention, "PAGE", 2)
    for number in range(8):
        say("s", f"m{number}")
        say("t", f"m{number}")
    clock.advance(timedelta(days=10))
    say("s", "new")
    assert runtime.trim(5)["turns"] == 16
    assert [turn.input["content"] for turn in AgentContext.objects.all()] == ["new"]
    verified()


def test_an_event_that_came_late_keeps_its_turn_and_those_after_it(say, clock):
    """What a turn's memory tells after its end may lie between the events of the next one."""
    say("s", "first")
    clock.advance(timedelta(days=1))
    late = say("s", "second")
    clock.advance(timedelta(days=1))
    say("s", "third")
    session = AgentSession.objects.get()
    clock.advance(timedelta(days=8))
    with log.writing(session.pk) as journal:
        journal.append("agent.memory.updated", execution_id=late.execution_id, kind="fact")
    assert runtime.trim(5)["turns"] == 1
    assert AgentContext.objects.count() == 2
    verified()
    clock.advance(timedelta(days=8))
    assert runtime.trim(5)["turns"] == 2
    verified()


def test_decisions_stay_on_record_without_the_content(decided, clock, owner):
    clock.advance(timedelta(days=10))
    assert runtime.trim(5)["turns"] == 1
    turn, approval = AgentContext.objects.get(), ToolApproval.objects.get()
    assert turn.trimmed_at is not None
    assert (turn.input, turn.response) == (emptying.NO_INPUT, None)
    assert (approval.arguments, approval.preview, approval.status) == ({}, "", "approved")
    vote = ApprovalDecision.objects.get(counted_key__isnull=False)
    assert (vote.actor_name, vote.verdict, vote.note) == ("reviewer", "approve", "Fine.")
    assert vote.arguments_digest == approval.arguments_digest == ToolCall.objects.get().arguments_digest
    assert list(SessionEvent.objects.values_list("type", flat=True)) == ["session.trimmed"]
    assert client_of(owner).get("/api/sessions/decided/turns/").json()["results"] == []
    verified()
    out = io.StringIO()
    call_command("agentcore_audit", stdout=out)
    assert "reviewer" in out.getvalue()
    assert not any(runtime.trim(5).values()), "nothing more is to do"


def test_a_trimmed_turn_whose_vote_was_altered_is_found(decided, clock):
    clock.advance(timedelta(days=10))
    runtime.trim(5)
    ApprovalDecision.objects.filter(counted_key__isnull=False).update(arguments_digest="0" * 64)
    with pytest.raises(CommandError):
        verified()


def test_a_turn_that_was_only_marked_as_emptied_is_found(decided):
    now = decided.created_at
    AgentContext.objects.update(erased_at=now)
    out = io.StringIO()
    with pytest.raises(CommandError):
        call_command("agentcore_verify", stdout=out)
    assert "its own row still has input, response" in out.getvalue()
    assert "its session's log does not say so" in out.getvalue()


def test_a_beginning_that_somebody_removed_is_found(say):
    say("s", "first")
    third = SessionEvent.objects.get(sequence=3)
    SessionEvent.objects.filter(sequence__lte=3).delete()
    AgentSession.objects.update(removed_through=3, removed_hash=third.hash)
    out = io.StringIO()
    with pytest.raises(CommandError):
        call_command("agentcore_verify", stdout=out)
    assert "Its log was removed through 3, and no event says so." in out.getvalue()


def test_the_record_of_decisions_goes_when_it_is_asked_for(decided, clock):
    clock.advance(timedelta(days=10))
    assert trim("--days", "5").startswith("Removed: 1 turns, ")
    assert ApprovalDecision.objects.exists()
    assert trim("--days", "5", "--with-decisions").endswith("1 turns kept for their decisions.\n")
    assert not AgentContext.objects.exists()
    assert not ApprovalDecision.objects.exists()
    verified()


def test_the_periodic_work_trims_only_where_the_setting_says_so(say, clock, settings):
    say("s", "first")
    clock.advance(timedelta(days=40))
    assert runtime.tick()["trimmed"] == 0
    settings.AGENTCORE = {**settings.AGENTCORE, "RETENTION_DAYS": 30}
    assert runtime.tick()["trimmed"] == 1
    assert runtime.tick()["trimmed"] == 0
    verified()


def test_metrics_keep_counting_what_was_removed(say, clock, settings):
    settings.AGENTCORE = {**settings.AGENTCORE, "RETENTION_DAYS": 30}
    say("s", "first")
    clock.advance(timedelta(days=40))
    before = runtime.metrics()["executions"]
    assert runtime.tick()["trimmed"] == 1
    assert runtime.metrics()["executions"] == before
    assert before["successful"] == 1


def test_a_session_deleted_long_ago_goes_with_its_last_turn(say, clock):
    say("s", "first")
    say("kept", "first")
    runtime.delete("s")
    clock.advance(timedelta(days=3))
    assert not any(runtime.trim(5).values())
    clock.advance(timedelta(days=3))
    done = runtime.trim(5)
    assert (done["turns"], done["sessions"]) == (2, 1)
    assert list(AgentSession.objects.values_list("session_id", flat=True)) == ["kept"]
    verified()


def test_what_was_kept_to_a_session_deleted_long_ago_goes_with_its_vectors(
    say, clock, owner, settings, django_capture_on_commit_callbacks
):
    settings.AGENTCORE = {**settings.AGENTCORE, "MEMORY_BACKEND": "vector"}
    say("s", "first")
    item = Item(kind="working_memory", text="tea", data={"key": "drink"})
    session = AgentSession.objects.get()
    [kept] = current().remember(Owner.of_session(session), [item], source=Source())
    runtime.delete("s")
    clock.advance(timedelta(days=6))
    assert Vector.objects.filter(item=kept.id).exists()
    with django_capture_on_commit_callbacks(execute=True):
        runtime.trim(5)
    assert not Memory.objects.filter(pk=kept.id).exists()
    assert not Vector.objects.filter(item=kept.id).exists()


def test_reading_from_before_the_beginning_gives_what_there_is(say, clock, owner):
    say("s", "first")
    clock.advance(timedelta(days=10))
    say("s", "second")
    runtime.trim(5)
    through = AgentSession.objects.get().removed_through
    client = client_of(owner)
    for after in (0, 1, through):
        found = client.get(f"/api/sessions/s/events/?after={after}").json()
        assert found["results"][0]["sequence"] == through + 1
        assert found["last_sequence"] == AgentSession.objects.get().last_sequence


def test_the_key_of_a_removed_turn_is_free_again(scripted, clock):
    scripted(["One.", "Two."])
    runtime.execute("testing-agent", "hi", session_id="s", idempotency_key="k")
    clock.advance(timedelta(days=10))
    runtime.trim(5)
    assert runtime.execute("testing-agent", "other", session_id="s", idempotency_key="k").response == "Two."
    verified()


def test_the_command_needs_a_number_of_days_and_a_dry_run_changes_nothing(say, clock):
    say("s", "first")
    clock.advance(timedelta(days=10))
    with pytest.raises(CommandError, match="RETENTION_DAYS is not set"):
        trim()
    assert trim("--days", "5", "--dry-run") == "1 turns of 1 sessions would be removed.\n"
    assert AgentContext.objects.count() == 1
    assert trim("--days", "5").startswith("Removed: 1 turns, ")


def test_what_metrics_have_not_counted_yet_stays(say, clock, settings):
    say("s", "first")
    clock.advance(timedelta(days=40))
    assert not any(retention.trim(30).values()), "nothing was summed up"
    settings.AGENTCORE = {**settings.AGENTCORE, "METRICS": False}
    assert retention.trim(30)["turns"] == 1


def test_the_longest_times_that_settings_allow_pass_a_tick(say, settings):
    settings.AGENTCORE = {"AUTO_ARCHIVE": True, "ARCHIVE_AFTER_DAYS": 365_000, "RETENTION_DAYS": 365_000}
    say("kept", "Hello.")
    done = runtime.tick()
    assert (done["archived"], done["trimmed"]) == (0, 0)
    assert AgentContext.objects.count() == 1
