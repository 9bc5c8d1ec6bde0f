"""A call that had begun once: whatever becomes of it later, nobody is told that it did not happen."""

from __future__ import annotations

import logging
import os
import threading

import pytest
from django.core.management import call_command

from agentcore import TurnState, agent, runtime, tool
from agentcore.agents.registry import registry
from agentcore.engine import draining, loop
from agentcore.exceptions import ProviderBadRequest
from agentcore.models import AgentContext, ToolApproval, ToolCall
from agentcore.testing import assert_invariants, calls, make_user, run_turns
from agentcore.tools import threads
from agentcore.turns import steps

pytestmark = pytest.mark.django_db(transaction=True)

DECIDE = "agentcore.decide_toolapproval"
NAME = "doubtful"
effects: list[str] = []


class Died(BaseException):
    """Stands for SIGKILL."""


@pytest.fixture
def reviewer():
    return make_user("reviewer", permissions=(DECIDE,))


@pytest.fixture(autouse=True)
def _deployed():
    effects.clear()
    deploy()
    yield
    registry.unregister(NAME)


def deploy(*, version=None, removed=(), idempotent=False, requires_approval=False, required=False):
    """Define the agent as a process does that starts with this code."""
    registry.unregister(NAME)

    def charge(n: int) -> str:
        effects.append(f"charge {n}")
        return "charged"

    def charge_anew(n: int, why: str) -> str:
        effects.append(f"charge {n} {why}")
        return "charged"

    function = charge_anew if required else charge
    function.__name__ = "charge"
    made = tool(description="Charge", version=version, idempotent=idempotent, requires_approval=requires_approval)(
        function
    )
    if required:

        @made.verify
        def checked(n, why):
            return True

    @agent(name=NAME, model="scripted:x", tools=() if "charge" in removed else (made,))
    class Doubtful:
        @tool(description="Look up", idempotent=True)
        def lookup(self, q: str) -> str:
            return q


def die_in_charge(scripted, monkeypatch, clock, *, approve_by=None):
    """Have a worker die right after the tool's effect, and the turn taken over."""
    provider = scripted(lambda request: _reply(request))
    session = runtime.create_session(NAME)
    turn = runtime.enqueue(session.session_id, "go").turn
    if approve_by is not None:
        run_turns()
        runtime.approve(ToolApproval.objects.get().pk, approve_by)
    with monkeypatch.context() as patched:
        patched.setattr(steps, "record_result", _die)
        with pytest.raises(Died):
            loop.run(turn.execution_id)
    clock.advance(3_600)
    assert runtime.recover()["taken_over"] == 1
    return turn, provider


def _reply(request):
    return calls(("charge", {"n": 5})) if request.messages[-1].role == "user" else "Done."


def _die(*args, **kwargs):
    raise Died


def ask_and_have_it_run_again(reviewer):
    run_turns()
    outcome = ToolApproval.objects.get(kind="outcome")
    runtime.approve(outcome.pk, reviewer)


def told(provider):
    return [message.content for message in provider.requests[-1].messages if message.role == "tool"]


def test_dur_14_cancelled_before_it_runs_again_it_may_still_have_happened(scripted, monkeypatch, clock, reviewer):
    turn, provider = die_in_charge(scripted, monkeypatch, clock)
    ask_and_have_it_run_again(reviewer)
    runtime.cancel(turn.session.session_id)
    call = ToolCall.objects.get()
    assert (call.status, call.error["message"]) == ("cancelled", "Cancelled, may have happened.")
    runtime.enqueue(turn.session.session_id, "next")
    run_turns()
    assert "may have happened" in told(provider)[0]
    assert "Not run" not in told(provider)[0]
    assert_invariants()


def test_a_tool_removed_before_it_runs_again_may_have_taken_effect(scripted, monkeypatch, clock, reviewer):
    _, provider = die_in_charge(scripted, monkeypatch, clock)
    ask_and_have_it_run_again(reviewer)
    deploy(removed=("charge",))
    run_turns()
    call = ToolCall.objects.get()
    assert (call.status, call.error["code"]) == ("unknown", "outcome_unknown")
    assert "it may have happened" in told(provider)[0]
    assert effects == ["charge 5"]
    assert_invariants()


def test_a_tool_removed_before_anybody_was_asked_about_its_call_may_have_taken_effect(scripted, monkeypatch, clock):
    _, provider = die_in_charge(scripted, monkeypatch, clock)
    with monkeypatch.context() as patched:
        patched.setattr(loop, "_ask_people", _die)
        with pytest.raises(Died):
            run_turns()
    assert ToolCall.objects.get().is_in_doubt
    clock.advance(3_600)
    runtime.recover()
    deploy(removed=("charge",))
    run_turns()
    assert AgentContext.objects.get().state == TurnState.COMPLETED
    assert "it may have happened" in told(provider)[0]
    assert_invariants()


def test_a_tool_that_changed_before_it_runs_again_is_asked_about_with_what_is_known(
    scripted, monkeypatch, clock, reviewer
):
    deploy(requires_approval=True)
    _, provider = die_in_charge(scripted, monkeypatch, clock, approve_by=reviewer)
    ask_and_have_it_run_again(reviewer)
    deploy(requires_approval=True, version="2")
    run_turns()
    asked = ToolApproval.objects.pending().get()
    assert "An attempt at this call had begun before; it may have happened." in asked.reason
    runtime.reject(asked.pk, reviewer, reason="no")
    run_turns()
    assert "may have happened" in told(provider)[0]
    assert "Their reason: no" in told(provider)[0]
    assert_invariants()


def test_apr_35_changed_code_does_not_run_under_an_old_approval_after_a_crash(scripted, monkeypatch, clock, reviewer):
    deploy(requires_approval=True, idempotent=True)
    die_in_charge(scripted, monkeypatch, clock, approve_by=reviewer)
    deploy(requires_approval=True, idempotent=True, version="2")
    run_turns()
    assert effects == ["charge 5"]
    asked = ToolApproval.objects.pending().get()
    runtime.approve(asked.pk, reviewer)
    run_turns()
    assert effects == ["charge 5", "charge 5"]
    assert AgentContext.objects.get().state == TurnState.COMPLETED
    assert_invariants()


def test_a_tool_that_takes_other_arguments_now_is_not_asked_whether_it_happened(scripted, monkeypatch, clock):
    die_in_charge(scripted, monkeypatch, clock)
    deploy(required=True)
    run_turns()
    assert ToolApproval.objects.pending().get().kind == "outcome"
    assert effects == ["charge 5"]
    assert_invariants()


def test_dur_17_a_turn_whose_time_is_over_ends_and_asks_nobody(scripted, settings):
    hang = threading.Event()

    @agent(name="hanging", model="scripted:x", turn_timeout=0.5)
    class Hanging:
        @tool(description="Hangs")
        def charge(self, n: int) -> str:
            hang.wait(10)
            return "late"

    try:
        provider = scripted(_reply)
        result = runtime.execute("hanging", "go")
        hang.set()
        assert (result.state, result.error["code"]) == (TurnState.FAILED, "turn_timeout")
        assert not ToolApproval.objects.exists()
        call = ToolCall.objects.get()
        assert (call.status, call.error["code"]) == ("unknown", "outcome_unknown")
        assert provider.call_count == 1
        assert runtime.execute("hanging", "next", session_id=result.session_id).session_id == result.session_id
    finally:
        hang.set()
        registry.unregister("hanging")
    assert_invariants()


def test_a_worker_with_too_many_hanging_calls_starts_no_other(scripted, monkeypatch):
    monkeypatch.setattr(threads, "MAX_ABANDONED", 0)
    provider = scripted(_reply)
    result = runtime.execute(NAME, "go")
    assert (result.state, effects) == (TurnState.COMPLETED, [])
    assert told(provider) == ["Too many calls hang in this worker; the call was not run. Try again later."]
    assert ToolCall.objects.get().attempts == 0
    assert_invariants()


def test_a_late_nothing_is_a_late_result_too(scripted, settings):
    may_end, has_ended = threading.Event(), threading.Event()

    @agent(name="late", model="scripted:x")
    class Late:
        @tool(description="Late", timeout=0.1, on_unknown="tell")
        def charge(self, n: int) -> None:
            may_end.wait(10)
            has_ended.set()

    try:
        scripted(_reply)
        runtime.execute("late", "go")
        may_end.set()
        assert has_ended.wait(10)
        until = threading.Event()
        for _ in range(100):
            if ToolCall.objects.get().late_result is not None:
                break
            until.wait(0.05)
        assert ToolCall.objects.get().late_result == "The tool returned nothing."
    finally:
        may_end.set()
        registry.unregister("late")


def test_what_comes_late_to_an_erased_turn_is_not_kept(scripted):
    may_end = threading.Event()

    @agent(name="late", model="scripted:x")
    class Late:
        @tool(description="Late", timeout=0.1, on_unknown="tell")
        def charge(self, n: int) -> str:
            may_end.wait(10)
            return "Rumpelstiltskin"

    try:
        scripted(_reply)
        user = make_user()
        runtime.execute("late", "go", user=user)
        assert runtime.erase(user).is_complete
        may_end.set()
        while threads.abandoned_threads():
            threading.Event().wait(0.01)
        assert ToolCall.objects.get().late_result is None
    finally:
        may_end.set()
        registry.unregister("late")
    call_command("agentcore_verify")


@pytest.mark.parametrize("text", ["a\x00b", "a\udc00b"], ids=["nul", "surrogate"])
def test_prv_22_23_an_error_message_with_unstorable_text_ends_the_turn_and_is_kept(scripted, monkeypatch, text):
    # The log tells it as it is, and a test's report cannot carry that from one process to another.
    monkeypatch.setattr(logging.getLogger("agentcore.engine"), "disabled", True)
    scripted([ProviderBadRequest(text)])
    result = runtime.execute(NAME, "go")
    assert (result.state, result.error["code"]) == (TurnState.FAILED, "driver_error")
    assert "a\ufffdb" in result.error["message"]
    assert_invariants()


def test_a_forked_process_that_shuts_down_leaves_its_parent_working(scripted):
    pid = os.fork()
    if pid == 0:
        draining.start()
        os._exit(0 if draining.is_on() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert not draining.is_on()


def test_a_process_told_to_stop_stops_those_it_forked():
    told_to, answer = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(told_to[0], 1)
        os._exit(7 if draining.is_on() else 1)
    draining.start_with_forks()
    os.write(told_to[1], b"x")
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    finally:
        draining.stop()
        for end in (*told_to, *answer):
            os.close(end)
