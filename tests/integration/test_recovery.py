"""A worker may die at any moment: after every commit of a turn, and before every one, the turn is taken up rightly."""

import threading
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import connections

from agentcore import ToolContext, TurnState, agent, canonical, dispatch, runtime, tool
from agentcore.agents.registry import registry
from agentcore.engine import loop
from agentcore.events import log
from agentcore.events.log import Journal
from agentcore.exceptions import Conflict
from agentcore.models import AgentContext, SessionEvent, ToolApproval, ToolCall
from agentcore.testing import TESTING_AGENT, assert_invariants, calls, make_session, make_turn, make_user, run_turns
from agentcore.testing.agents import ledger
from agentcore.turns import lifecycle, recovery

pytestmark = pytest.mark.django_db(transaction=True)

LONG = 50
# Longer than any lease.
LEASE_IS_OVER = 10_000


class _Died(BaseException):
    """As SIGKILL would: nothing that catches errors catches it, nothing more is written."""


@pytest.fixture(autouse=True)
def _clean_ledger():
    ledger.clear()


@pytest.fixture
def reviewer():
    return make_user("reviewer", permissions=("agentcore.decide_toolapproval",))


@pytest.fixture
def dying(monkeypatch):
    """Let the process die at its n-th transaction, right before the commit or right after it."""

    @contextmanager
    def until(number, *, after):
        count = 0

        def dying_in(real):
            @contextmanager
            def counting(session):
                nonlocal count
                with real(session) as journal:
                    yield journal
                if count == number and after:
                    raise _Died

            return counting

        def flush(journal, real=Journal.flush):
            nonlocal count
            real(journal)
            count += 1
            if count == number and not after:
                raise _Died

        with monkeypatch.context() as patched:
            patched.setattr(Journal, "flush", flush)
            for name in ("writing", "in_one_go"):
                patched.setattr(log, name, dying_in(getattr(log, name)))
            yield

    return until


def claimed(turn):
    """Claim the turn as a worker that then dies."""
    with log.writing(turn.session_id) as journal:
        return lifecycle.claim(journal, AgentContext.objects.get(pk=turn.pk))


def take_up(clock):
    clock.advance(LEASE_IS_OVER)
    runtime.recover()
    run_turns()


def lose_lease(turn):
    """Let another worker have the turn, and end it."""
    taken_over(turn)
    assert loop.run(turn.execution_id)


def taken_over(turn):
    """Do what the sweep does when a lease is over; moving the clock would end the call in hand, too."""
    with log.writing(turn.session_id) as journal:
        lifecycle.take_over(journal, AgentContext.objects.get(pk=turn.pk))


def kinds(turn):
    return list(
        SessionEvent.objects.filter(turn_id=turn.execution_id).order_by("sequence").values_list("type", flat=True)
    )


# Dying at each transaction of a turn


STORY = [
    calls(("lookup", {"q": "a"}), ("pay", {"amount": 1, "to": "x"}), ("lookup", {"q": "b"})),
    calls(("lookup", {"q": "c"})),
    "Done.",
]


def story(request):
    """Answer by what was said, as a model does: a step that is asked for again gets the same reply."""
    results = [message for message in request.messages if message.role == "tool"]
    return STORY[{0: 0, 3: 1, 4: 2}[len(results)]]


def decide(reviewer):
    for approval in runtime.pending_approvals():
        runtime.approve(approval.pk, reviewer)


# A turn of STORY has as many transactions; the test below says so itself if that changes.
BEFORE_THE_PAUSE, AFTER_THE_PAUSE = 5, 6


@pytest.mark.parametrize("after", [True, False], ids=["after the commit", "before the commit"])
@pytest.mark.parametrize("number", range(1, BEFORE_THE_PAUSE + 1))
def test_dying_before_the_pause_loses_and_doubles_nothing(number, after, scripted, dying, clock, reviewer):
    scripted(story)
    turn = make_turn()
    with dying(number, after=after), pytest.raises(_Died):
        loop.run(turn.execution_id)
    take_up(clock)
    decide(reviewer)
    run_turns()
    assert_story_ended(turn)


@pytest.mark.parametrize("after", [True, False], ids=["after the commit", "before the commit"])
@pytest.mark.parametrize("number", range(1, AFTER_THE_PAUSE + 1))
def test_dying_after_the_decision_never_pays_twice(number, after, scripted, dying, clock, reviewer):
    scripted(story)
    turn = make_turn()
    run_turns()
    decide(reviewer)
    with dying(number, after=after), pytest.raises(_Died):
        loop.run(turn.execution_id)
    take_up(clock)
    if ToolCall.objects.get(tool="pay").status == "unknown":
        # It had begun, and whether it paid nobody can tell from the rows.
        assert ledger.entries.count(("pay", 1, "x")) <= 1
        assert runtime.result(turn.execution_id).state != TurnState.COMPLETED
        assert_invariants()
    else:
        assert_story_ended(turn)


def assert_story_ended(turn):
    result = runtime.result(turn.execution_id)
    assert (result.state, result.response) == (TurnState.COMPLETED, "Done.")
    assert ledger.entries.count(("pay", 1, "x")) == 1
    assert set(ledger.entries) == {("lookup", "a"), ("lookup", "b"), ("lookup", "c"), ("pay", 1, "x")}
    assert [call.tool for step in result.steps for call in step.tool_calls] == ["lookup", "pay", "lookup", "lookup"]
    assert ToolApproval.objects.count() == 1
    assert_invariants()


def test_the_numbers_of_transactions_above_are_those_of_the_story(scripted, dying, reviewer):
    scripted(story)
    turn = make_turn()
    with dying(BEFORE_THE_PAUSE + 1, after=True):
        loop.run(turn.execution_id)
    decide(reviewer)
    with dying(AFTER_THE_PAUSE + 1, after=True):
        loop.run(turn.execution_id)
    assert_story_ended(turn)


# What is known is used


def test_dur_05_a_stored_reply_is_used_again_and_counted_once(scripted, dying, clock):
    provider = scripted([calls(("lookup", {"q": "a"})), "Done."])
    turn = make_turn()
    with dying(2, after=True), pytest.raises(_Died):
        loop.run(turn.execution_id)
    assert (provider.call_count, AgentContext.objects.get().step_count) == (1, 1)
    take_up(clock)
    result = runtime.result(turn.execution_id)
    assert (result.response, provider.call_count, len(result.steps)) == ("Done.", 2, 2)
    assert (result.usage.input_tokens, result.usage.output_tokens) == (14, 6)
    assert_invariants()


def test_dur_03_an_attempt_is_recorded_before_the_effect(scripted, clock):
    seen = []
    original = ledger.write

    def write(*entry):
        original(*entry)
        seen.append(ToolCall.objects.values_list("tool", "status", "attempts").get(tool=entry[0]))

    scripted([calls(("charge", {"n": 5})), "Done."])
    ledger.write = write
    try:
        runtime.execute(TESTING_AGENT, "go")
    finally:
        del ledger.write
    assert seen == [("charge", "executing", 1)]


def test_dur_18_finished_calls_of_a_batch_are_not_run_again(scripted, dying, clock):
    provider = scripted([calls(*(("lookup", {"q": q}) for q in "abc")), "Done."])
    turn = make_turn()
    # Claim, reply with the first call's begin, its result with the second's begin.
    with dying(3, after=True), pytest.raises(_Died):
        loop.run(turn.execution_id)
    assert ledger.entries == [("lookup", "a")]
    take_up(clock)
    assert ledger.entries == [("lookup", "a"), ("lookup", "b"), ("lookup", "c")]
    assert runtime.result(turn.execution_id).response == "Done."
    provider.assert_valid()
    assert_invariants()


class Keys(list):
    pass


keys = Keys()


@agent(name="keyed-agent", model="scripted:any")
class KeyedAgent:
    @tool(description="May be repeated", idempotent=True)
    def put(self, ctx: ToolContext) -> str:
        keys.append(ctx.call_id)
        return "put"


registry.unregister("keyed-agent")


def test_the_call_id_is_the_same_for_every_attempt(scripted, dying, clock):
    runtime.register(KeyedAgent)
    keys.clear()
    try:
        scripted([calls(("put", {})), "Done."])
        turn = make_turn(make_session("keyed-agent"))
        with dying(3, after=False), pytest.raises(_Died):
            loop.run(turn.execution_id)
        take_up(clock)
    finally:
        registry.unregister("keyed-agent")
    assert runtime.result(turn.execution_id).response == "Done."
    assert len(keys) == 2
    assert set(keys) == {ToolCall.objects.get().call_id}


# What was approved is what runs


@pytest.mark.parametrize("digest", ["old", "new"])
def test_apr_01_a_call_that_is_no_longer_what_was_approved_is_asked_about_again(
    digest, scripted, reviewer, make_approval
):
    provider = scripted(["I could not pay."])
    approval = make_approval()
    runtime.approve(approval.pk, reviewer)
    evil = {"amount": 9000, "to": "evil"}
    changes = (
        {"arguments": evil} if digest == "old" else {"arguments": evil, "arguments_digest": canonical.digest(evil)}
    )
    ToolCall.objects.update(**changes)
    run_turns()
    assert ledger.entries == []
    assert (ToolCall.objects.get().status, ToolCall.objects.get().attempts) == ("pending", 0)
    asked = ToolApproval.objects.pending().get()
    assert asked.arguments == evil
    runtime.reject(asked.pk, reviewer)
    run_turns()
    assert "was not run" in provider.requests[0].messages[-1].content
    assert ledger.entries == []


def test_apr_01_the_model_is_not_asked_again_between_the_decision_and_the_call(scripted, reviewer, make_approval):
    provider = scripted(lambda request: "Paid." if ledger.entries else calls(("pay", {"amount": 9000, "to": "evil"})))
    approval = make_approval()
    runtime.approve(approval.pk, reviewer)
    run_turns()
    assert ledger.entries == [("pay", 10, "acme")]
    assert provider.call_count == 1


def test_apr_37_an_approval_covers_one_call_and_no_other_like_it(scripted, reviewer, make_approval):
    scripted([calls(("pay", {"amount": 10, "to": "acme"})), calls(("pay", {"amount": 10, "to": "acme"}))])
    approval = make_approval()
    runtime.approve(approval.pk, reviewer)
    run_turns()
    other = runtime.execute(TESTING_AGENT, "pay")
    assert ledger.entries == [("pay", 10, "acme")]
    assert runtime.result(approval.turn.execution_id).state == TurnState.WAITING_FOR_APPROVAL
    assert other.state == TurnState.WAITING_FOR_APPROVAL
    assert runtime.pending_approvals().count() == 2
    assert_invariants()


def test_apr_21_nobody_is_asked_again_about_a_call_that_was_declined_in_this_turn(scripted, reviewer):
    provider = scripted(lambda request: calls(("pay", {"to": "acme", "amount": 10})))
    first = runtime.execute(TESTING_AGENT, "pay", max_steps=4)
    runtime.reject(first.pending_approvals[0].id, reviewer)
    run_turns()
    ended = runtime.result(first.execution_id)
    assert (ended.state, ended.error["code"], provider.call_count) == (TurnState.FAILED, "max_steps", 4)
    assert ToolApproval.objects.count() == 1
    assert "declined this same call" in provider.requests[2].messages[-1].content
    assert ledger.entries == []
    # The user's next message is another matter.
    again = runtime.execute(TESTING_AGENT, "pay", session_id=first.session_id)
    assert again.state == TurnState.WAITING_FOR_APPROVAL
    assert_invariants()


def test_apr_21_a_different_call_may_be_asked_about(scripted, reviewer):
    scripted([calls(("pay", {"amount": 10, "to": "acme"})), calls(("pay", {"amount": 11, "to": "acme"}))])
    first = runtime.execute(TESTING_AGENT, "pay")
    runtime.reject(first.pending_approvals[0].id, reviewer)
    run_turns()
    assert runtime.pending_approvals().get().arguments["amount"] == 11


def test_apr_39_a_tool_that_is_unpinned_needs_a_person(scripted, make_session):
    """The session's revision does not know the tool, so it cannot say that the tool is free."""
    session = make_session()
    revision = session.revision
    revision.definition["tools"] = [entry for entry in revision.definition["tools"] if entry["name"] != "lookup"]
    revision.hash = canonical.digest(revision.definition)
    revision.save()
    scripted([calls(("lookup", {"q": "a"}))])
    assert runtime.execute(TESTING_AGENT, "go", session_id=session.session_id).state == TurnState.WAITING_FOR_APPROVAL
    assert ledger.entries == []
    assert_invariants()


# The sweep


def test_dur_06_a_dead_workers_turn_is_taken_over_when_its_lease_is_over(scripted, clock):
    scripted(["Done."])
    turn = make_turn()
    claimed(turn)
    assert runtime.recover() == {"taken_over": 0, "sent_again": 0}
    take_up(clock)
    assert runtime.result(turn.execution_id).response == "Done."
    assert "turn.resumed" in kinds(turn)
    assert AgentContext.objects.get().takeovers == 1
    assert_invariants()


def test_dur_06_a_turn_whose_workers_keep_dying_is_interrupted_and_frees_its_session(scripted, clock):
    scripted(["Done."])
    turn = make_turn()
    for _ in range(2):
        claimed(turn)
        clock.advance(LEASE_IS_OVER)
        assert runtime.recover()["taken_over"] == 1
        assert AgentContext.objects.get().state == TurnState.QUEUED
    claimed(turn)
    clock.advance(LEASE_IS_OVER)
    assert runtime.recover()["taken_over"] == 1
    ended = runtime.result(turn.execution_id)
    assert (ended.state, ended.error["code"], ended.error["details"]) == (
        TurnState.INTERRUPTED,
        "process_restarted",
        {"takeovers": 3},
    )
    assert kinds(turn)[-1] == "turn.interrupted"
    assert runtime.execute(TESTING_AGENT, "next", session_id=turn.session.session_id).response == "Done."
    assert_invariants()


def test_the_number_of_attempts_is_a_setting(scripted, clock, settings):
    settings.AGENTCORE = {"MAX_ATTEMPTS": 1}
    turn = make_turn()
    claimed(turn)
    clock.advance(LEASE_IS_OVER)
    runtime.recover()
    assert runtime.result(turn.execution_id).state == TurnState.INTERRUPTED


def test_an_interrupted_turn_leaves_a_history_that_a_strict_api_takes(scripted, dying, clock, settings):
    settings.AGENTCORE = {"MAX_ATTEMPTS": 1}
    provider = scripted([calls(("charge", {"n": 5}), ("lookup", {"q": "a"})), "Here I am."])
    turn = make_turn()
    with dying(3, after=False), pytest.raises(_Died):
        loop.run(turn.execution_id)
    clock.advance(LEASE_IS_OVER)
    runtime.recover()
    assert runtime.execute(TESTING_AGENT, "next", session_id=turn.session.session_id).response == "Here I am."
    first, second = (m.content for m in provider.requests[1].messages if m.role == "tool")
    assert "may have happened" in first
    assert "Not run" in second
    provider.assert_valid()
    assert_invariants()


def test_the_sweep_changes_nothing_the_second_time(scripted, clock):
    turn = make_turn()
    claimed(turn)
    clock.advance(LEASE_IS_OVER)
    assert runtime.recover() == {"taken_over": 1, "sent_again": 0}
    events = kinds(turn)
    assert runtime.recover() == {"taken_over": 0, "sent_again": 0}
    assert kinds(turn) == events


def test_apr_15_the_sweep_leaves_what_waits_for_people(scripted, clock, reviewer, make_approval):
    provider = scripted(["Paid."])
    approval = make_approval()
    before = (AgentContext.objects.values().get(), list(SessionEvent.objects.values()))
    for _ in range(100):
        clock.advance(timedelta(days=3) / 100)
        assert not any(runtime.tick().values())
    assert (AgentContext.objects.values().get(), list(SessionEvent.objects.values())) == before
    assert provider.call_count == 0
    runtime.approve(approval.pk, reviewer)
    run_turns()
    assert runtime.result(approval.turn.execution_id).response == "Paid."
    assert_invariants()


def test_apr_14_an_expired_request_sets_its_turn_going_once(scripted, clock, make_approval):
    provider = scripted(["Nobody was there."])
    approval = make_approval()
    clock.advance(timedelta(days=7, seconds=1))
    assert runtime.tick()["expired"] == 1
    assert runtime.tick()["expired"] == 0
    assert kinds(approval.turn).count("tool.approval.expired") == 1
    assert AgentContext.objects.get().state == TurnState.QUEUED
    run_turns()
    assert "Nobody decided in time" in provider.requests[0].messages[-1].content
    assert ledger.entries == []
    assert_invariants()


def test_apr_09_a_decision_stays_when_the_broker_is_down(scripted, clock, reviewer, make_approval, monkeypatch):
    scripted(["Paid."])
    approval = make_approval()
    with monkeypatch.context() as down:
        down.setattr(dispatch, "_send", lambda execution_id: None)
        runtime.approve(approval.pk, reviewer)
    sent = []
    monkeypatch.setattr(dispatch, "_send", sent.append)
    clock.advance(61)
    assert runtime.recover() == {"taken_over": 0, "sent_again": 1}
    assert sent == [str(approval.turn.execution_id)]
    loop.run(sent[0])
    assert runtime.result(sent[0]).response == "Paid."
    assert ledger.entries == [("pay", 10, "acme")]
    assert_invariants()


def test_apr_09_an_agent_that_cannot_be_built_ends_the_turn_with_a_reason(scripted, reviewer):
    runtime.register(KeyedAgent)
    try:
        turn = make_turn(make_session("keyed-agent"))
    finally:
        registry.unregister("keyed-agent")
    run_turns()
    ended = runtime.result(turn.execution_id)
    assert (ended.state, ended.error["code"]) == (TurnState.FAILED, "driver_unavailable")
    assert "keyed-agent" in ended.error["message"]
    assert_invariants()


def test_a_process_that_is_alone_takes_up_everything_at_once(scripted, monkeypatch):
    sent = []
    monkeypatch.setattr(dispatch, "_send", sent.append)
    working, queued = make_turn(), make_turn()
    claimed(working)
    sent.clear()
    assert runtime.recover(everything=True) == {"taken_over": 1, "sent_again": 2}
    assert set(sent) == {str(working.execution_id), str(queued.execution_id)}
    assert_invariants()


def test_more_turns_than_a_batch_are_taken_up_one_sweep_after_the_other(clock, monkeypatch):
    monkeypatch.setattr(recovery, "BATCH", 2)
    for _ in range(3):
        claimed(make_turn())
    clock.advance(LEASE_IS_OVER)
    assert runtime.recover()["taken_over"] == 2
    assert runtime.recover()["taken_over"] == 1


# The old owner comes back


def test_dur_09_a_frozen_worker_that_comes_back_writes_nothing(scripted, caplog):
    """It freezes while the model works; meanwhile another takes the turn and ends it."""
    replies = iter(["from the second", "from the first"])

    def answer(request):
        if provider.call_count == 1:
            lose_lease(turn)
        return next(replies)

    provider = scripted(answer)
    turn = make_turn()
    assert loop.run(turn.execution_id)
    assert runtime.result(turn.execution_id).response == "from the second"
    messages = SessionEvent.objects.filter(type="message").values_list("data", flat=True)
    assert [data["message"]["content"] for data in messages] == ["from the second"]
    assert kinds(turn).count("turn.completed") == 1
    assert "Lost ownership" in caplog.text
    assert_invariants()


@pytest.mark.parametrize("reply", [calls(("lookup", {"q": "a"})), "from the first", RuntimeError("broken")])
def test_dur_09_a_frozen_worker_does_not_disturb_the_one_that_works_now(reply, scripted, clock):
    """The other has the turn in the same state, so that only the token tells them apart."""

    def answer(request):
        if provider.call_count > 1:
            return "from the second"
        taken_over(turn)
        claimed(AgentContext.objects.get(pk=turn.pk))
        return reply

    provider = scripted(answer)
    turn = make_turn()
    assert loop.run(turn.execution_id)
    now = AgentContext.objects.get()
    assert (now.state, now.step_count, now.response, now.error) == (TurnState.THINKING, 0, None, None)
    assert not ToolCall.objects.exists()
    assert ledger.entries == []
    take_up(clock)
    assert runtime.result(turn.execution_id).response == "from the second"
    assert_invariants()


def test_dur_09_a_worker_that_lost_its_turn_during_a_call_starts_no_other(scripted, monkeypatch):
    provider = scripted([calls(("lookup", {"q": "a"}), ("lookup", {"q": "b"})), "from the second"])
    turn = make_turn()
    original, frozen = ledger.write, []

    def write(*entry):
        original(*entry)
        if not frozen:
            frozen.append(entry)
            lose_lease(turn)

    monkeypatch.setattr(ledger, "write", write)
    assert loop.run(turn.execution_id)
    assert ledger.entries == [("lookup", "a"), ("lookup", "a"), ("lookup", "b")]
    assert provider.call_count == 2
    assert runtime.result(turn.execution_id).response == "from the second"
    assert ToolCall.objects.filter(status="completed").count() == 2
    assert_invariants()


def test_dur_09_what_may_not_be_repeated_is_unknown_to_the_second_worker(scripted, monkeypatch):
    provider = scripted([calls(("charge", {"n": 5})), "never"])
    turn = make_turn()
    original = ledger.write

    def write(*entry):
        original(*entry)
        lose_lease(turn)

    monkeypatch.setattr(ledger, "write", write)
    loop.run(turn.execution_id)
    assert ledger.entries == [("charge", 5)]
    assert provider.call_count == 1
    assert ToolCall.objects.get().status == "unknown"
    assert runtime.result(turn.execution_id).state != TurnState.COMPLETED


def test_dur_02_a_task_that_comes_early_late_or_often_does_nothing(scripted, reviewer, make_approval):
    provider = scripted(["Paid."])
    approval = make_approval()
    execution_id = approval.turn.execution_id
    for _ in range(5):
        assert not loop.run(execution_id)
    runtime.approve(approval.pk, reviewer)
    assert [loop.run(execution_id) for _ in range(5)] == [True, False, False, False, False]
    assert (provider.call_count, ledger.entries) == (1, [("pay", 10, "acme")])


def test_resume_runs_only_what_is_queued(scripted, make_approval):
    scripted(["Done."])
    turn = make_turn()
    assert runtime.resume(turn.execution_id).response == "Done."
    with pytest.raises(Conflict, match="only a queued turn"):
        runtime.resume(turn.execution_id)
    waiting = make_approval().turn
    with pytest.raises(Conflict):
        runtime.resume(waiting.execution_id)
    assert_invariants()


def test_shutdown_waits_for_the_turn_in_hand(scripted):
    began, may_end = threading.Event(), threading.Event()

    def answer(request):
        began.set()
        may_end.wait(LONG)
        return "Done."

    scripted(answer)
    turn = make_turn()
    worker = threading.Thread(target=_work, args=(turn,))
    worker.start()
    assert began.wait(LONG)
    assert runtime.shutdown(timeout=0.01) is False
    may_end.set()
    assert runtime.shutdown(timeout=LONG) is True
    worker.join(LONG)
    assert runtime.result(turn.execution_id).response == "Done."


def _work(turn):
    try:
        loop.run(turn.execution_id)
    finally:
        connections.close_all()
