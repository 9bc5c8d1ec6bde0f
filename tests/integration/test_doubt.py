"""Calls that had begun when their worker died, or that did not return in time: nobody knows how they ended."""

import threading
from datetime import timedelta

import pytest

from agentcore import TurnState, agent, runtime, tool
from agentcore.agents.registry import registry
from agentcore.approvals import decisions
from agentcore.engine import loop
from agentcore.exceptions import Conflict
from agentcore.models import AgentContext, SessionEvent, ToolApproval, ToolCall
from agentcore.testing import calls, make_user, text
from agentcore.testing.agents import ledger
from agentcore.turns import leases, steps

pytestmark = pytest.mark.django_db(transaction=True)

DECIDE = "agentcore.decide_toolapproval"


class Died(BaseException):
    """Stands for SIGKILL: nothing after it is written."""


@pytest.fixture(autouse=True)
def _clean_ledger():
    ledger.clear()


@pytest.fixture
def reviewer():
    return make_user("reviewer", permissions=(DECIDE,))


@pytest.fixture
def owner():
    return make_user("owner")


@pytest.fixture
def die_after_the_effect(monkeypatch, clock):
    """Run a turn whose worker dies right after a tool's effect, and have it taken over."""

    def run(turn):
        with monkeypatch.context() as patch:
            patch.setattr(steps, "record_result", _die)
            with pytest.raises(Died):
                loop.run(turn.execution_id)
        clock.advance(3_600)
        assert runtime.recover()["taken_over"] == 1

    return run


def _die(*args, **kwargs):
    raise Died


def test_dur_03_a_person_is_asked_how_a_begun_call_ended(
    scripted, make_turn, die_after_the_effect, owner, run_turns, assert_invariants
):
    provider = scripted([calls(("charge", {"n": 5}), ("lookup", {"q": "a"}))])
    turn = make_turn(user=owner)
    die_after_the_effect(turn)
    run_turns()
    approval = ToolApproval.objects.get()
    assert (approval.kind, approval.status, approval.expires_at) == ("outcome", "pending", None)
    assert ToolCall.objects.get(tool="charge").status == "unknown"
    assert runtime.result(turn.execution_id).state == TurnState.WAITING_FOR_APPROVAL
    assert ledger.entries == [("charge", 5), ("lookup", "a")]
    assert provider.call_count == 1
    assert_invariants()


def test_approving_an_outcome_runs_the_call_again_under_the_same_key(
    scripted, make_turn, die_after_the_effect, owner, reviewer, run_turns, assert_invariants
):
    scripted([calls(("charge", {"n": 5})), "done"])
    turn = make_turn(user=owner)
    die_after_the_effect(turn)
    run_turns()
    key = ToolCall.objects.get().call_id
    runtime.approve(ToolApproval.objects.get().pk, reviewer)
    run_turns()
    call = ToolCall.objects.get()
    assert (call.status, call.attempts, call.call_id, call.result["key"]) == ("completed", 2, key, key)
    assert ledger.entries == [("charge", 5), ("charge", 5)]
    assert runtime.result(turn.execution_id).response == "done"
    assert_invariants()


def test_responding_to_an_outcome_gives_the_model_that_result(
    scripted, make_turn, die_after_the_effect, owner, reviewer, run_turns, assert_invariants
):
    provider = scripted([calls(("charge", {"n": 5})), "done"])
    turn = make_turn(user=owner)
    die_after_the_effect(turn)
    run_turns()
    runtime.respond(ToolApproval.objects.get().pk, reviewer, {"charged": 5})
    run_turns()
    assert provider.requests[1].messages[-1].content == '{"charged":5}'
    assert ledger.entries == [("charge", 5)]
    assert runtime.result(turn.execution_id).state == TurnState.COMPLETED
    assert_invariants()


def test_rejecting_an_outcome_ends_the_turn(
    scripted, make_turn, die_after_the_effect, owner, reviewer, run_turns, assert_invariants
):
    scripted([calls(("charge", {"n": 5})), "never asked"])
    turn = make_turn(user=owner)
    die_after_the_effect(turn)
    run_turns()
    runtime.reject(ToolApproval.objects.get().pk, reviewer, reason="it was charged twice")
    run_turns()
    ended = runtime.result(turn.execution_id)
    assert (ended.state, ended.error["code"], ended.error["message"]) == (
        TurnState.FAILED,
        "outcome_unknown",
        "it was charged twice",
    )
    assert ToolCall.objects.get().status == "unknown"
    assert_invariants()


def test_an_approved_call_that_was_cut_off_is_asked_about_before_later_ones_run(
    scripted, make_turn, die_after_the_effect, owner, reviewer, run_turns, assert_invariants
):
    scripted([calls(("pay", {"amount": 1, "to": "x"}), ("pay", {"amount": 2, "to": "y"})), "done"])
    turn = make_turn(user=owner)
    run_turns()
    for approval in ToolApproval.objects.all():
        runtime.approve(approval.pk, reviewer)
    die_after_the_effect(turn)
    run_turns()
    assert ledger.entries == [("pay", 1, "x")]
    outcome = ToolApproval.objects.get(kind="outcome")
    runtime.respond(outcome.pk, reviewer, "paid")
    run_turns()
    assert ledger.entries == [("pay", 1, "x"), ("pay", 2, "y")]
    assert runtime.result(turn.execution_id).response == "done"
    assert_invariants()


@pytest.fixture
def doubtful():
    """An agent whose tools say for themselves what to do when nobody knows."""
    facts = {"happened": None}
    release = threading.Event()

    @agent(name="doubtful", model="scripted:x")
    class Doubtful:
        @tool(description="tells", on_unknown="tell")
        def told(self) -> str:
            ledger.write("told")
            return "ok"

        @tool(description="can verify")
        def checked(self) -> str:
            ledger.write("checked")
            return "ok"

        @checked.verify
        def _(self):
            return facts["happened"]

        @tool(description="hangs", timeout=0.2)
        def hangs(self) -> str:
            ledger.write("hangs")
            release.wait(20)
            return "late"

    facts["release"] = release
    yield facts
    release.set()
    registry.unregister("doubtful")


def test_a_tool_that_tells_lets_the_model_go_on(
    scripted, doubtful, make_session, make_turn, die_after_the_effect, run_turns, assert_invariants
):
    provider = scripted([calls(("told", {})), "I do not know."])
    turn = make_turn(make_session("doubtful"))
    die_after_the_effect(turn)
    run_turns()
    assert "may have happened" in provider.requests[1].messages[-1].content
    assert runtime.result(turn.execution_id).response == "I do not know."
    assert not ToolApproval.objects.exists()
    assert_invariants()


@pytest.mark.parametrize(
    ("happened", "effects", "asked"), [(True, 1, False), (False, 2, False), (None, 1, True), ("perhaps", 1, True)]
)
def test_verify_is_asked_first(
    scripted,
    doubtful,
    make_session,
    make_turn,
    die_after_the_effect,
    run_turns,
    assert_invariants,
    happened,
    effects,
    asked,
):
    scripted([calls(("checked", {})), "done"])
    doubtful["happened"] = happened
    turn = make_turn(make_session("doubtful"))
    die_after_the_effect(turn)
    run_turns()
    assert ledger.entries == [("checked",)] * effects
    assert ToolApproval.objects.filter(kind="outcome").exists() is asked
    assert (runtime.result(turn.execution_id).state == TurnState.COMPLETED) is not asked
    assert_invariants()


def test_a_call_that_timed_out_is_asked_about_and_its_late_result_is_kept(
    scripted, doubtful, make_session, make_turn, run_turns, reviewer, assert_invariants
):
    scripted([calls(("hangs", {})), "done"])
    turn = make_turn(make_session("doubtful"))
    run_turns()
    approval = ToolApproval.objects.get()
    assert (approval.kind, approval.call.status) == ("outcome", "unknown")
    doubtful["release"].set()
    _wait_until(lambda: ToolCall.objects.get().late_result == "late")
    runtime.respond(approval.pk, reviewer, "late")
    run_turns()
    assert runtime.result(turn.execution_id).response == "done"
    assert ledger.entries == [("hangs",)]
    assert_invariants()


def _wait_until(condition, tries=500):
    pause = threading.Event()
    for _ in range(tries):
        if condition():
            return
        pause.wait(0.02)
    raise AssertionError("it did not become true")


def test_cancelling_while_a_person_is_asked_ends_the_turn(
    scripted, make_turn, die_after_the_effect, owner, run_turns, assert_invariants
):
    scripted([calls(("charge", {"n": 5})), "next answered"])
    turn = make_turn(user=owner)
    die_after_the_effect(turn)
    run_turns()
    session_id = turn.session.session_id
    assert runtime.cancel(session_id).state == TurnState.CANCELLED
    assert (ToolApproval.objects.get().status, ToolCall.objects.get().status) == ("cancelled", "cancelled")
    assert runtime.execute("testing-agent", "next", session_id=session_id, user=owner).response == "next answered"
    assert_invariants()


def test_apr_35_a_changed_tool_makes_its_approval_stale(
    scripted, owner, reviewer, run_turns, assert_invariants, monkeypatch
):
    scripted([calls(("pay", {"amount": 10, "to": "acme"})), "Paid."])
    runtime.execute("testing-agent", "pay", user=owner)
    approval = ToolApproval.objects.get()
    definition = registry.get("testing-agent").tools["pay"]
    monkeypatch.setitem(definition.__dict__, "fingerprint", "f" * 64)
    with pytest.raises(Conflict, match="tool changed"):
        runtime.approve(approval.pk, reviewer, version=1)
    approval.refresh_from_db()
    assert (approval.status, approval.version, ledger.entries) == ("pending", 2, [])
    assert SessionEvent.objects.filter(type="tool.approval.changed").count() == 1
    runtime.approve(approval.pk, reviewer, version=2)
    run_turns()
    assert ledger.entries == [("pay", 10, "acme")]
    assert_invariants()


def test_a_tool_that_changed_after_its_approval_is_asked_about_again(
    scripted, owner, reviewer, run_turns, assert_invariants, monkeypatch
):
    scripted([calls(("pay", {"amount": 10, "to": "acme"})), "Paid."])
    runtime.execute("testing-agent", "pay", user=owner)
    runtime.approve(ToolApproval.objects.get().pk, reviewer)
    definition = registry.get("testing-agent").tools["pay"]
    monkeypatch.setitem(definition.__dict__, "fingerprint", "f" * 64)
    run_turns()
    assert ledger.entries == []
    second = ToolApproval.objects.pending().get()
    runtime.approve(second.pk, reviewer)
    run_turns()
    assert ledger.entries == [("pay", 10, "acme")]
    assert_invariants()


def test_a_removed_tool_is_told_to_the_model(scripted, owner, reviewer, run_turns, assert_invariants, monkeypatch):
    provider = scripted([calls(("pay", {"amount": 10, "to": "acme"})), "It is gone."])
    runtime.execute("testing-agent", "pay", user=owner)
    monkeypatch.delitem(registry.get("testing-agent").tools, "pay")
    with pytest.raises(Conflict, match="not deployed"):
        runtime.approve(ToolApproval.objects.get().pk, reviewer)
    run_turns()
    assert "not deployed any more" in provider.requests[1].messages[-1].content
    assert ledger.entries == []
    assert_invariants()


def test_dur_08_a_slow_worker_keeps_its_turn_and_a_dead_one_loses_it(scripted, make_turn, settings, clock):
    settings.AGENTCORE = {**settings.AGENTCORE, "LEASE_SECONDS": 0.3}
    during = []

    def slow(request):
        pause = threading.Event()
        for _ in range(12):
            pause.wait(0.1)
            during.append(runtime.recover()["taken_over"])
        return text("at last")

    scripted(slow)
    turn = make_turn()
    assert loop.run(turn.execution_id)
    assert sum(during) == 0
    assert runtime.result(turn.execution_id).response == "at last"


def test_dur_09_a_worker_that_lost_its_lease_writes_and_calls_nothing(scripted, make_turn, clock, monkeypatch):
    # A process that is stopped renews nothing.
    monkeypatch.setattr(leases, "renew", lambda lease: True)
    turn = make_turn()

    def stopped_for_longer_than_its_lease(request):
        if len(provider.requests) == 1:
            AgentContext.objects.update(lease_expires_at=clock.now() - timedelta(hours=1))
            assert runtime.recover()["taken_over"] == 1
            assert loop.run(turn.execution_id)
            return calls(("charge", {"n": 1}))
        return text("the new owner's answer")

    provider = scripted(stopped_for_longer_than_its_lease)
    loop.run(turn.execution_id)
    assert ledger.entries == []
    ended = runtime.result(turn.execution_id)
    assert (ended.response, ended.error) == ("the new owner's answer", None)
    assert SessionEvent.objects.filter(type="message").count() == 1


def test_takeovers_end_in_an_interruption(scripted, make_turn, clock, monkeypatch, assert_invariants):
    scripted(lambda request: text("never recorded"))
    monkeypatch.setattr(steps, "record_answer", _die)
    turn = make_turn()
    for _ in range(3):
        with pytest.raises(Died):
            loop.run(turn.execution_id)
        clock.advance(3_600)
        runtime.recover()
    ended = runtime.result(turn.execution_id)
    assert (ended.state, ended.error["code"]) == (TurnState.INTERRUPTED, "process_restarted")
    assert_invariants()


def test_dur_18_a_process_that_shuts_down_gives_its_turn_back(scripted, make_turn, run_turns, assert_invariants):
    from agentcore.engine import draining

    def shut_down(request):
        if len(provider.requests) == 1:
            assert runtime.shutdown(timeout=0) is False
            return calls(("lookup", {"q": "a"}))
        return text("found")

    provider = scripted(shut_down)
    turn = make_turn()
    try:
        loop.run(turn.execution_id)
        assert AgentContext.objects.get().state == TurnState.QUEUED
        assert AgentContext.objects.get().takeovers == 0
        assert loop.run(turn.execution_id) is False
    finally:
        draining.stop()
    run_turns()
    assert runtime.result(turn.execution_id).response == "found"
    assert ledger.entries == [("lookup", "a")]
    assert_invariants()


def test_a_decision_of_the_wrong_kind_of_edit_is_refused(
    scripted, make_turn, die_after_the_effect, owner, reviewer, run_turns
):
    scripted([calls(("charge", {"n": 5}))])
    die_after_the_effect(make_turn(user=owner))
    run_turns()
    with pytest.raises(Conflict, match="may not be edited"):
        decisions.approve(ToolApproval.objects.get().pk, reviewer, arguments={"n": 6})


def test_an_outcome_whose_tool_is_gone_can_still_be_told(
    scripted, make_turn, die_after_the_effect, owner, reviewer, run_turns, assert_invariants, monkeypatch
):
    provider = scripted([calls(("charge", {"n": 5})), "done"])
    die_after_the_effect(make_turn(user=owner))
    run_turns()
    monkeypatch.delitem(registry.get("testing-agent").tools, "charge")
    approval = ToolApproval.objects.get()
    with pytest.raises(Conflict, match="Respond or reject"):
        runtime.approve(approval.pk, reviewer)
    runtime.respond(approval.pk, reviewer, "charged")
    run_turns()
    assert provider.requests[1].messages[-1].content == "charged"
    assert_invariants()


def test_a_tool_removed_while_its_call_was_under_way_is_no_call_that_was_not_run(
    scripted, make_turn, die_after_the_effect, owner, run_turns, assert_invariants, monkeypatch
):
    provider = scripted([calls(("charge", {"n": 5})), "done"])
    die_after_the_effect(make_turn(user=owner))
    monkeypatch.delitem(registry.get("testing-agent").tools, "charge")
    run_turns()
    assert ToolCall.objects.get().status == "unknown"
    assert "may have happened" in provider.requests[1].messages[-1].content
    assert_invariants()
