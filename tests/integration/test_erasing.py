"""Erase a user's data for good: what they said is nowhere any more, and everything is still proved."""

import io

import pytest
from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser
from django.core.management import CommandError, call_command
from django.core.serializers import serialize

from agentcore import agent, erasers, runtime
from agentcore.agents.registry import registry
from agentcore.exceptions import Conflict, EmbedderFailed, InvalidInput, NotFound
from agentcore.keeping import erasure
from agentcore.memory import store
from agentcore.memory.extraction import RuleExtractor
from agentcore.memory.vector import VectorMemory
from agentcore.models import (
    AgentContext,
    AgentSession,
    ApprovalDecision,
    ApprovalLink,
    ContextEntry,
    Erasure,
    Memory,
    RateCount,
    SessionEvent,
    ToolApproval,
    ToolCall,
    UserQuestion,
    Vector,
)
from agentcore.states import TurnState
from agentcore.testing import assert_invariants, calls, make_approval, make_session, make_turn, make_user
from agentcore.tools import ask_user
from agentcore.turns import claims
from tests.integration.api import client_of

pytestmark = pytest.mark.django_db

DECIDE = "agentcore.decide_toolapproval"
# Whatever is said in the story holds this word.
SECRET = "Rumpelstiltskin"


@pytest.fixture
def owner():
    return make_user("jane-doe")


@pytest.fixture
def reviewer():
    return make_user("reviewer", permissions=(DECIDE,))


@pytest.fixture
def story(scripted, run_turns, owner, reviewer):
    """Two turns of a user: calls, an edit, a rejection, a failure, notes, working memory; all with the secret."""
    scripted(
        [
            calls(
                ("lookup", {"q": SECRET}),
                ("pay", {"amount": 1, "to": SECRET}),
                ("wipe", {"path": f"/{SECRET}"}),
                ("nothing", {SECRET: 1}),
                content=f"Let me see, {SECRET}.",
            ),
            f"Done, {SECRET}.",
            RuntimeError(SECRET),
        ]
    )
    found = runtime.execute(
        "testing-agent",
        f"I am {SECRET}.",
        session_id="story",
        user=owner,
        idempotency_key=f"key-{SECRET}",
        initial_context={"name": SECRET},
        metadata={"name": SECRET},
    )
    AgentSession.objects.update(title=f"About {SECRET}", metadata={"who": SECRET})
    pay, wipe = ToolApproval.objects.order_by("pk")
    ApprovalLink.objects.create(approval=wipe, model="auth.user", object_key=str(reviewer.pk), label=SECRET)
    runtime.approve(pay.pk, reviewer, arguments={"amount": 2, "to": SECRET}, note=f"Fine, {SECRET}.")
    runtime.reject(wipe.pk, reviewer, reason=f"Not {SECRET}.")
    run_turns()
    assert runtime.result(found.execution_id).state == TurnState.COMPLETED
    assert runtime.execute("testing-agent", f"Again {SECRET}", session_id="story", user=owner).state == "failed"
    RateCount.objects.create(digest="0" * 64, name=f"tool:some.tool:{owner.pk}", forget_at=pay.requested_at)
    return AgentSession.objects.get()


def everything():
    """Return all rows of agentcore as text; definitions of agents are nobody's."""
    models = [model for model in apps.get_app_config("agentcore").get_models() if model.__name__ != "AgentRevision"]
    models.append(LogEntry)
    return "\n".join(serialize("json", model._default_manager.all()) for model in models)


def verified():
    call_command("agentcore_verify", stdout=io.StringIO())
    assert_invariants()


def erase(*arguments):
    out = io.StringIO()
    call_command("agentcore_erase", *arguments, stdout=out)
    return out.getvalue()


def test_what_the_user_said_is_nowhere_any_more_and_everything_is_still_proved(story, owner):
    verified()
    assert SECRET in everything()
    before = SessionEvent.objects.count()

    report = runtime.erase(owner, by="the desk")

    assert report.is_complete
    text = everything()
    assert SECRET not in text
    assert "jane-doe" not in text
    verified()
    assert SessionEvent.objects.count() > before, "no event was removed"
    assert report.counts["sessions"] == 1
    assert report.counts["turns"] == 2
    assert report.counts["tool calls"] == 4
    assert report.counts["tool approvals"] == 2
    assert report.counts["notes"] == 2
    assert report.counts["history entries"] == 3, "of two requests and of the linked row"
    messages = list(LogEntry.objects.order_by("pk").values_list("change_message", flat=True))
    assert all(" arguments " in message and message.endswith(".") for message in messages)
    assert report.counts["context entries"] == report.counts["links"] == report.counts["rate counts"] == 1


def test_who_decided_what_and_when_stays_and_the_requester_has_another_name(story, owner, reviewer):
    before = list(
        ApprovalDecision.objects.order_by("pk").values("verdict", "actor_key", "arguments_digest", "created_at")
    )
    report = runtime.erase(owner)
    after = list(
        ApprovalDecision.objects.order_by("pk").values("verdict", "actor_key", "arguments_digest", "created_at")
    )
    assert after == before
    assert {vote.actor_name for vote in ApprovalDecision.objects.exclude(actor_key="")} == {"reviewer"}
    for approval in ToolApproval.objects.all():
        assert (approval.requester, approval.requester_key, approval.requester_name) == (None, *[report.pseudonym] * 2)
    assert [call.arguments_digest for call in ToolCall.objects.filter(tool="pay")] == [
        vote.arguments_digest for vote in ApprovalDecision.objects.filter(verdict="approve", counted_key__isnull=False)
    ]


def test_the_session_is_gone_for_its_user_and_cannot_be_restored(story, owner):
    runtime.erase(owner)
    assert client_of(owner).get("/api/sessions/?status=all").json()["results"] == []
    assert client_of(owner).get("/api/sessions/story/").status_code == 404
    with pytest.raises(NotFound):
        runtime.enqueue("story", "more", user=owner)
    with pytest.raises(Conflict, match="was erased"):
        runtime.restore("story")


def test_it_is_on_record_whose_data_was_erased_when_and_by_whom_for_who_knows_the_user(story, owner):
    report = runtime.erase(owner, by="the desk")
    [record] = erasure.was_erased(owner)
    assert (record.by, record.pseudonym, record.counts["turns"]) == ("the desk", report.pseudonym, 2)
    assert record.started_at <= record.completed_at
    assert erasure.was_erased(make_user("another")) == []


def test_nothing_of_anybody_else_is_touched(story, owner, scripted):
    scripted([f"Hello {SECRET}."])
    other = make_user("other")
    runtime.execute("testing-agent", f"I am another {SECRET}.", session_id="other", user=other)
    rows = list(SessionEvent.objects.filter(session__session_id="other").values())
    turn = AgentContext.objects.filter(session__session_id="other").values().get()
    runtime.erase(owner)
    assert list(SessionEvent.objects.filter(session__session_id="other").values()) == rows
    assert AgentContext.objects.filter(session__session_id="other").values().get() == turn
    verified()


def test_decisions_on_others_requests_stay_with_their_name(scripted, run_turns, reviewer):
    approval = make_approval(user=make_user("owner"))
    runtime.approve(approval.pk, reviewer, note="Fine.")
    runtime.erase(reviewer)
    vote = ApprovalDecision.objects.get(counted_key__isnull=False)
    assert (vote.actor_name, vote.note) == ("reviewer", "Fine.")


def test_a_turn_in_nobodys_session_is_erased_and_the_session_goes_on(scripted, owner):
    provider = scripted(["One.", "Two.", "Three."])
    other = make_user("other")
    make_session(session_id="open")
    for user, text in ((other, "I am other."), (owner, f"I am {SECRET}."), (other, "Still other.")):
        turn = runtime.enqueue("open", text, user=user).turn
        runtime.resume(turn.execution_id)
    report = runtime.erase(owner)
    assert report.counts["turns"] == 1
    assert "sessions" not in report.counts
    assert SECRET not in everything()
    assert AgentContext.objects.filter(erased_at=None).count() == 2
    verified()
    provider = scripted(["Four."])
    turn = runtime.enqueue("open", "More.", user=other).turn
    assert runtime.resume(turn.execution_id).response == "Four."
    said = [message.content for message in provider.requests[0].messages if message.role == "user"]
    assert said == ["I am other.", "Still other.", "More."]


def test_what_a_turn_in_nobodys_session_told_is_forgotten_and_nothing_else(scripted, owner, settings):
    settings.AGENTCORE = {"MEMORY": {"extractor": "rules"}, "MEMORY_BACKEND": "vector"}
    scripted(["One.", "Two."])
    other = make_user("other")
    make_session(session_id="open")
    for user, text in ((other, "My name is Otto."), (owner, f"My name is {SECRET}.")):
        runtime.resume(runtime.enqueue("open", text, user=user).turn.execution_id)
    assert SECRET in everything()
    report = runtime.erase(owner)
    assert report.is_complete
    assert report.counts["memories"] == 1
    assert SECRET not in everything()
    assert Memory.objects.get().text == "The user's name is Otto."
    assert set(Vector.objects.values_list("item", flat=True)) == set(Memory.objects.values_list("pk", flat=True))
    verified()


@pytest.mark.parametrize("state", ["queued", "waiting"])
def test_a_turn_that_waits_is_cancelled_first(owner, state):
    turn = make_turn(user=owner, message=SECRET) if state == "queued" else make_approval(user=owner).turn
    assert runtime.erase(owner).is_complete
    turn = AgentContext.objects.get(pk=turn.pk)
    assert turn.state == TurnState.CANCELLED
    assert turn.erased_at is not None
    assert SECRET not in everything()
    verified()


def test_a_turn_that_a_worker_has_is_told_to_stop_and_the_rest_waits_for_it(owner, story):
    turn = make_turn(user=owner, message=SECRET)
    work = claims.take(turn)
    assert work is not None
    report = runtime.erase(owner, wait=0)
    assert report.running == (str(turn.execution_id),)
    assert not report.is_complete
    assert AgentContext.objects.get(pk=turn.pk).state == TurnState.CANCELLING
    assert Erasure.objects.get().completed_at is None
    assert AgentSession.objects.get(session_id="story").erased_at is not None
    runtime.recover(everything=True)
    again = runtime.erase(owner)
    assert again.is_complete
    assert again.pseudonym == report.pseudonym
    assert again.counts["turns"] == 3, "both together"
    assert SECRET not in everything()
    verified()


def test_a_turn_that_ends_right_after_it_was_met_hides_nothing_that_is_left(owner, story, monkeypatch):
    erase_part, met = erasure._erase_part, []

    def let_one_begin_and_end(session_pk, key, *rest):
        turn = None
        if not met:
            # It begins after the cancelling, and has ended before anybody looks again.
            turn = make_turn(AgentSession.objects.get(pk=session_pk), message=SECRET, user=owner)
        done = erase_part(session_pk, key, *rest)
        if turn is not None:
            met.append(done)
            runtime.cancel(turn.session.session_id)
        return done

    monkeypatch.setattr(erasure, "_erase_part", let_one_begin_and_end)
    report = runtime.erase(owner)
    assert report.is_complete
    assert met
    assert not AgentSession.objects.filter(erased_at=None, user=owner).exists()
    assert SECRET not in everything()
    verified()


def test_erasing_again_finds_nothing_and_is_on_record_too(story, owner):
    runtime.erase(owner)
    again = runtime.erase(owner)
    assert (again.is_complete, again.counts) == (True, {})
    assert len(erasure.was_erased(owner)) == 2


def test_other_stores_erase_theirs_and_one_that_fails_is_told(story, owner):
    seen, there = [], []

    def tickets(given):
        seen.append(given)
        return 7

    def redis(given):
        if not there:
            raise ConnectionError("nobody there")
        return 1

    erasers.register("redis keys", redis)
    erasers.register("tickets", tickets)
    try:
        report = runtime.erase(owner)
        assert report.counts["tickets"] == 7
        assert report.failed == {"redis keys": "ConnectionError: nobody there"}
        assert not report.is_complete
        assert seen[0].key == str(owner.pk)
        assert seen[0].sessions == (story.pk,)
        assert list(seen[0].turns) == list(AgentContext.objects.order_by("pk").values_list("pk", flat=True))
        there.append(True)
        again = runtime.erase(owner)
        assert again.is_complete
        assert again.counts["redis keys"] == 1
        assert seen[1] == seen[0], "it is told of the same again"
    finally:
        erasers.unregister("redis keys")
        erasers.unregister("tickets")


def test_a_second_eraser_of_a_name_is_refused():
    erasers.register("things", len)
    try:
        erasers.register("things", len)
        with pytest.raises(Conflict):
            erasers.register("things", repr)
    finally:
        erasers.unregister("things")


def test_a_question_and_its_answer_are_erased(scripted, owner, run_turns):
    agent(name="asking-agent", model="scripted:any", tools=(ask_user,))(type("Asking", (), {}))
    try:
        scripted([calls(("ask_user", {"question": f"Are you {SECRET}?"})), "Thanks."])
        found = runtime.execute("asking-agent", "hi", user=owner)
        runtime.answer(found.execution_id, f"I am {SECRET}.", by="jane-doe")
        run_turns()
        assert UserQuestion.objects.get().answer is not None
        verified()
        runtime.erase(owner)
        assert SECRET not in everything()
        assert "jane-doe" not in everything()
        verified()
    finally:
        registry.unregister("asking-agent")


def test_the_data_of_an_account_that_is_gone_is_erased_by_its_key(story, owner):
    key = owner.pk
    owner.delete()
    assert "jane-doe" in everything()
    with pytest.raises(CommandError, match="There is no user 'jane-doe'"):
        erase("jane-doe", "--yes")
    assert "Erased as erased-" in erase(str(key), "--key", "--yes")
    assert "jane-doe" not in everything()
    verified()


NOBODY = [None, "", True, "jane-doe", "\x00", "\ud800", "9" * 5000, 4.5, ["1"], object(), AnonymousUser()]


@pytest.mark.parametrize("user", NOBODY, ids=lambda user: ascii(user)[:20])
def test_who_is_nobody_is_refused(user, story):
    with pytest.raises(InvalidInput, match=r"user must be a stored user, or the primary key \(\w+\) of one"):
        runtime.erase(user)
    assert not Erasure.objects.exists()


def test_a_user_that_is_not_stored_is_nobody(story):
    with pytest.raises(InvalidInput, match="user must be a stored user"):
        runtime.erase(get_user_model()(username="jane-doe"))
    assert not Erasure.objects.exists()


def test_a_key_is_taken_as_a_number_or_as_text(story, owner):
    assert runtime.erase(f" {owner.pk} ").counts["sessions"] == 1


def test_one_that_erases_while_another_does_shares_the_record_and_the_pseudonym(owner, story, monkeypatch):
    for number in range(3):
        make_turn(make_session(user=owner, session_id=f"more-{number}"), user=owner)
    work, others = erasure._erase_all_of, iter(["the other"])
    reports = []

    def erase_meanwhile(*args):
        for by in others:
            reports.append(runtime.erase(owner, by=by))
        return work(*args)

    monkeypatch.setattr(erasure, "_erase_all_of", erase_meanwhile)
    reports.append(runtime.erase(owner, by="the desk"))
    record = Erasure.objects.get()
    assert {report.pseudonym for report in reports} == {record.pseudonym}
    assert (record.counts["sessions"], record.counts["turns"], record.completed_at is None) == (4, 5, False)
    assert set(AgentSession.objects.values_list("user_key", flat=True)) == {record.pseudonym}
    assert set(ToolApproval.objects.values_list("requester_key", flat=True)) == {record.pseudonym}
    # What comes later is an erasure of its own.
    assert runtime.erase(owner).pseudonym != record.pseudonym


def test_the_command_asks_and_takes_only_the_name_for_a_yes(story, owner, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda _: "yes")
    with pytest.raises(CommandError, match="Nothing was erased"):
        erase("jane-doe")
    assert SECRET in everything()
    monkeypatch.setattr("builtins.input", lambda _: "jane-doe")
    printed = erase("jane-doe", "--by", "the desk")
    assert "To be erased: 1 sessions, 2 turns, 3 steps, 4 tool calls, 2 tool approvals" in printed
    assert "Erased as erased-" in printed
    assert Erasure.objects.get().by == "the desk"
    assert SECRET not in everything()


def test_a_dry_run_changes_nothing(story):
    before = everything()
    assert erase("jane-doe", "--dry-run").startswith("Would be erased: 1 sessions, 2 turns")
    assert everything() == before


@pytest.mark.parametrize("arguments", [("", "--key"), ("",)])
@pytest.mark.parametrize("how", ["--dry-run", "--yes"])
def test_the_command_says_that_an_empty_name_or_key_is_none(story, arguments, how):
    before = everything()
    with pytest.raises(CommandError, match=r"'' is no key of an account|There is no user ''"):
        call_command("agentcore_erase", *arguments, how)
    assert everything() == before
    assert not Erasure.objects.exists()


def test_the_command_says_that_a_wait_is_no_time(story):
    before = everything()
    with pytest.raises(CommandError, match="wait must be a number of seconds, at most 1,000,000,000, not nan"):
        erase("jane-doe", "--yes", "--wait", "nan")
    assert everything() == before
    assert not Erasure.objects.exists()


def test_the_command_fails_while_something_is_left(owner):
    turn = make_turn(user=owner)
    claims.take(turn)
    out = io.StringIO()
    with pytest.raises(CommandError, match="Run it again"):
        call_command("agentcore_erase", "jane-doe", "--yes", "--wait", "0", stdout=out)
    assert f"A worker still has turn {turn.execution_id}" in out.getvalue()


def test_content_that_is_put_back_into_an_erased_turn_is_found(story, owner):
    runtime.erase(owner)
    for model, fields in (
        (AgentContext, {"response": "x"}),
        (ToolCall, {"error": {"code": "a", "message": "x", "details": {}}}),
        (ToolApproval, {"preview": "x"}),
    ):
        row = model.objects.first()
        kept = {name: getattr(row, name) for name in fields}
        model.objects.filter(pk=row.pk).update(**fields)
        with pytest.raises(CommandError):
            verified()
        model.objects.filter(pk=row.pk).update(**kept)
    verified()
    turn = AgentContext.objects.first()
    ContextEntry.objects.create(
        turn=turn, kind="fact", key="x", key_digest="x", value=1, created_at=turn.created_at, updated_at=turn.created_at
    )
    with pytest.raises(CommandError):
        verified()


class ErasingExtractor(RuleExtractor):
    """Looks for facts while somebody erases the user's data."""

    def extract(self, said, *, ask):
        erased_meanwhile()
        return super().extract(said, ask=ask)


class ErasedWhileKeeping(VectorMemory):
    """Keeps what a turn told, and somebody erases the user's data before that is told in the log."""

    def remember(self, owner, items, *, source):
        kept = super().remember(owner, items, source=source)
        erased_meanwhile()
        return kept


class ErasedBeforeVectors(VectorMemory):
    """Keeps the rows, and cannot make the vectors any more; somebody erases the user's data meanwhile."""

    def remember(self, owner, items, *, source):
        store.keep(owner, items, source=source)
        erased_meanwhile()
        raise EmbedderFailed("away")


def erased_meanwhile():
    """Erase as a process does that looked at the other stores just before the words came to them."""
    [owner] = get_user_model().objects.filter(username="jane-doe")
    stores = dict(erasers.registered())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(erasers, "registered", lambda: {name: stores[name] for name in stores if name != "memories"})
        assert runtime.erase(owner, wait=0).is_complete


@pytest.mark.parametrize(
    "setting",
    [
        {"MEMORY": {"extractor": f"{__name__}.ErasingExtractor"}},
        {"MEMORY_BACKEND": f"{__name__}.ErasedWhileKeeping", "MEMORY": {"extractor": "rules"}},
        {"MEMORY_BACKEND": f"{__name__}.ErasedBeforeVectors", "MEMORY": {"extractor": "rules"}},
    ],
    ids=["extracting", "keeping", "embedding"],
)
def test_what_is_erased_while_a_turn_is_remembered_does_not_come_back(setting, scripted, owner, settings):
    settings.AGENTCORE = setting
    scripted(["Hello."])
    result = runtime.execute("testing-agent", f"My name is {SECRET}. My order is 77123.", user=owner)
    assert result.state == TurnState.COMPLETED
    assert AgentContext.objects.get().erased_at is not None
    assert SECRET not in everything()
    assert not Memory.objects.exists()
    assert not Vector.objects.exists()
    verified()


def test_an_emptied_turn_is_held_by_nobody(story, owner):
    tokens = dict(AgentContext.objects.values_list("pk", "lease_token"))
    runtime.erase(owner)
    for turn in AgentContext.objects.all():
        assert turn.lease_token > tokens[turn.pk]


def test_an_erased_event_says_so_and_names_nobody(story, owner):
    report = runtime.erase(owner)
    told = SessionEvent.objects.filter(type="session.erased").values_list("data", flat=True)
    assert list(told) == [
        {"erasure": report.pseudonym, "turns": 2},
        {"erasure": report.pseudonym, "turns": 0},
    ]
