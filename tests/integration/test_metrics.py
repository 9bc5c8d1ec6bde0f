"""runtime.metrics(): what the rows say, each outcome once in its own class, the same in every process."""

import json
import subprocess
import sys
from datetime import timedelta

import pytest
from django.test import override_settings

from agentcore import ApprovalPolicy, ToolError, agent, runtime, tool
from agentcore.agents.registry import registry
from agentcore.engine import loop, metrics, sums
from agentcore.exceptions import ProviderOverloaded, Unavailable
from agentcore.models import AgentContext, AgentSession, MetricsSum, ToolCall
from agentcore.states import TurnState
from agentcore.testing import calls, make_session, make_turn, make_user, run_turns
from tests.concurrency.harness import environment

pytestmark = pytest.mark.django_db

CLERK = "metrics-clerk"
DECIDE = "agentcore.decide_toolapproval"
SHAPE = {
    "executions": {"total", "successful", "failed", "cancelled", "success_rate"},
    "performance": {"average_duration", "min", "max", "p50", "p95", "p99"},
    "tools": {"total_calls", "by_tool", "success_rate"},
    "llm": {"total_calls", "tokens", "errors"},
    "memory": {"conversation", "entity", "fact", "working_memory", "event"},
    "approvals": {"pending", "decided", "median_seconds"},
}


@pytest.fixture
def clerk():
    """An agent one of whose tools fails, and one of whose requests end the turn when nobody decides."""

    @agent(name=CLERK, model="scripted:clerk")
    class Clerk:
        @tool(description="Fails")
        def file(self) -> str:
            raise ToolError("no")

        @tool(description="Takes longer than it may", timeout=0.05, idempotent=True)
        def search(self, clock_seconds: int) -> str:
            return ""

        @tool(
            description="Asks, and not for long",
            requires_approval=True,
            approval=ApprovalPolicy(expires_in=timedelta(hours=1), on_expiry="fail"),
        )
        def send(self, to: str) -> str:
            return to

    yield CLERK
    registry.unregister(CLERK)


@pytest.fixture
def reviewer():
    return make_user(permissions=(DECIDE,))


def pay_and_wait(scripted, *, amount=10):
    scripted([calls(("pay", {"amount": amount, "to": "acme"})), "Done."])
    return runtime.execute("testing-agent", "pay")


def test_without_a_turn_counts_are_0_and_what_has_no_data_is_none():
    found = runtime.metrics()
    assert {name: set(part) for name, part in found.items()} == SHAPE
    assert found["executions"] == {"total": 0, "successful": 0, "failed": 0, "cancelled": 0, "success_rate": None}
    assert set(found["performance"].values()) == {None}
    assert found["tools"] == {"total_calls": 0, "by_tool": {}, "success_rate": None}
    assert found["approvals"] == {"pending": 0, "decided": 0, "median_seconds": None}
    assert json.loads(json.dumps(found)) == found


def make_one_of_each(scripted, clerk, reviewer, clock):
    """Completed, failed, cancelled, expired, rejected, timed out: one turn each."""
    scripted(["Hello."])
    assert runtime.execute("testing-agent", "completed").state == TurnState.COMPLETED
    scripted([ProviderOverloaded("busy")] * 10)
    assert runtime.execute("testing-agent", "failed").state == TurnState.FAILED
    cancelled = make_turn(message="cancelled")
    runtime.cancel(cancelled.session.session_id)
    scripted([calls(("send", {"to": "x"}))])
    expiring = runtime.execute(clerk, "expired")
    clock.advance(2 * 3600)
    assert runtime.tick()["expired"] == 1
    assert runtime.result(expiring.execution_id).error["code"] == "approval_expired"
    waiting = pay_and_wait(scripted)
    runtime.reject(waiting.pending_approvals[0].id, reviewer)
    run_turns()
    assert runtime.result(waiting.execution_id).state == TurnState.COMPLETED

    def think_for_long(request):
        clock.advance(3600)
        return calls(("lookup", {"q": "x"}))

    scripted(think_for_long)
    assert runtime.execute("testing-agent", "timed out").error["code"] == "turn_timeout"


def test_lim_09_each_outcome_is_counted_once_in_its_own_class(scripted, clerk, reviewer, clock):
    make_one_of_each(scripted, clerk, reviewer, clock)
    found = runtime.metrics()
    assert found["executions"] == {"total": 6, "successful": 2, "failed": 3, "cancelled": 1, "success_rate": 0.4}
    tools = found["tools"]["by_tool"]
    assert (tools["pay"]["rejected"], tools["pay"]["failed"], tools["send"]["expired"]) == (1, 0, 1)
    assert found["approvals"] == {
        "pending": 0,
        "decided": 1,
        "median_seconds": pytest.approx(0, abs=5),
    }
    # Delivered again, swept again, summed up: nothing is counted twice.
    assert not any(loop.run(turn.execution_id) for turn in AgentContext.objects.all())
    for _ in range(3):
        clock.advance(3600)
        runtime.tick()
    again = runtime.metrics()
    assert MetricsSum.objects.exists()
    assert {**again, "performance": 0} == {**found, "performance": 0}


def test_lim_09_sums_equal_database_counts(scripted, clerk, reviewer, clock):
    make_one_of_each(scripted, clerk, reviewer, clock)
    found = runtime.metrics()
    assert found["executions"]["total"] == AgentContext.objects.exclude(completed_at=None).count()
    assert found["tools"]["total_calls"] == ToolCall.objects.exclude(completed_at=None).count()
    assert found["tools"]["total_calls"] == sum(counts["calls"] for counts in found["tools"]["by_tool"].values())
    for counts in found["tools"]["by_tool"].values():
        assert counts["calls"] == sum(count for outcome, count in counts.items() if outcome != "calls")


def test_apr_22_rejections_are_no_failures_of_the_tool(scripted, reviewer):
    for amount in range(1, 6):
        waiting = pay_and_wait(scripted, amount=amount)
        runtime.reject(waiting.pending_approvals[0].id, reviewer)
        run_turns()
    pay = runtime.metrics()["tools"]["by_tool"]["pay"]
    assert (pay["failed"], pay["rejected"], pay["calls"]) == (0, 5, 5)
    assert runtime.metrics()["tools"]["success_rate"] is None
    waiting = pay_and_wait(scripted, amount=6)
    runtime.approve(waiting.pending_approvals[0].id, reviewer)
    run_turns()
    assert runtime.metrics()["tools"]["by_tool"]["pay"]["completed"] == 1
    assert runtime.metrics()["tools"]["success_rate"] == 1.0


def test_lim_09_pause_time_is_apart_from_run_time(scripted, reviewer, clock):
    waiting = pay_and_wait(scripted)
    clock.advance(86_400)
    runtime.approve(waiting.pending_approvals[0].id, reviewer)
    run_turns()
    found = runtime.metrics()
    assert found["performance"]["max"] < 3600
    assert found["approvals"]["median_seconds"] == pytest.approx(86_400, abs=60)


def test_lim_09_invented_tools_share_one_name(scripted):
    scripted([calls(*[(f"invented_{number}", {}) for number in range(200)]), "Sorry."])
    runtime.execute("testing-agent", "hi")
    found = runtime.metrics()["tools"]
    assert {name: counts["not_run"] for name, counts in found["by_tool"].items()} == {"unknown": 200}
    assert (found["total_calls"], found["success_rate"]) == (200, None)


def test_a_tool_that_fails_and_one_that_is_misused_are_told_apart(scripted, clerk):
    scripted([calls(("file", {}), ("file", {"no": "such"})), "Sorry."])
    runtime.execute(clerk, "hi")
    found = runtime.metrics()["tools"]
    assert (found["by_tool"]["file"]["failed"], found["by_tool"]["file"]["not_run"]) == (1, 1)
    assert found["success_rate"] == 0.0


def test_calls_of_a_turn_that_still_waits_are_counted(scripted):
    scripted([calls(("lookup", {"q": "x"}), ("pay", {"amount": 1, "to": "x"}))])
    runtime.execute("testing-agent", "hi")
    found = runtime.metrics()
    assert found["executions"]["total"] == 0
    assert {name: counts["completed"] for name, counts in found["tools"]["by_tool"].items()} == {"lookup": 1}
    assert found["llm"] == {"total_calls": 1, "tokens": 10, "errors": 0}
    assert found["approvals"]["pending"] == 1


def test_percentiles_are_those_of_the_latest_turns(scripted, monkeypatch):
    scripted(lambda request: "Hello.")
    for _ in range(4):
        runtime.execute("testing-agent", "hi")
    for seconds, pk in enumerate(AgentContext.objects.order_by("completed_at").values_list("pk", flat=True), start=1):
        AgentContext.objects.filter(pk=pk).update(worked_seconds=seconds)
    found = runtime.metrics()["performance"]
    assert found == {"average_duration": 2.5, "min": 1, "max": 4, "p50": 2, "p95": 4, "p99": 4}
    monkeypatch.setattr(metrics, "LATEST_TURNS", 2)
    assert runtime.metrics()["performance"]["min"] == 3


def test_what_is_summed_up_stays_when_its_rows_are_removed(scripted, clock):
    scripted(lambda request: "Hello.")
    for _ in range(3):
        runtime.execute("testing-agent", "hi")
    before = runtime.metrics()
    clock.advance(1800)
    runtime.tick()
    AgentSession.objects.all().delete()
    after = runtime.metrics()
    assert (after["executions"], after["llm"]) == (before["executions"], before["llm"])
    assert after["performance"]["p50"] is None


def test_summing_up_goes_on_where_it_ended(scripted, clock):
    scripted(lambda request: "Hello.")
    for number in range(1, 4):
        runtime.execute("testing-agent", "hi")
        clock.advance(3 * 86_400)
        assert sums.sum_up() == 1
        assert sums.sum_up() == 0
        assert runtime.metrics()["executions"]["total"] == number
    assert MetricsSum.objects.get(subject="turn").count == 3


def test_reset_counts_from_now_on_in_every_process(scripted, clock):
    scripted([calls(("lookup", {"q": "x"}), ("pay", {"amount": 1, "to": "x"})), "Done.", "Hello."])
    waiting = runtime.execute("testing-agent", "before")
    clock.advance(1)
    runtime.reset_metrics()
    found = runtime.metrics()
    assert (found["tools"]["total_calls"], found["llm"]["total_calls"], found["approvals"]["pending"]) == (0, 0, 1)
    clock.advance(1)
    runtime.reject(waiting.pending_approvals[0].id, make_user(permissions=(DECIDE,)))
    run_turns()
    found = runtime.metrics()
    assert found["executions"]["total"] == 1
    assert {name: counts["calls"] for name, counts in found["tools"]["by_tool"].items()} == {"pay": 1}
    clock.advance(3600)
    runtime.tick()
    runtime.reset_metrics()
    assert runtime.metrics()["executions"]["total"] == 0
    assert not MetricsSum.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_lim_09_another_process_tells_the_same(scripted):
    scripted([calls(("lookup", {"q": "x"})), "Hello."])
    runtime.execute("testing-agent", "hi")
    code = (
        "import django, json; django.setup(); import agentcore.testing.agents; from agentcore import runtime;"
        "print(json.dumps(runtime.metrics()))"
    )
    told = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert json.loads(told.stdout) == runtime.metrics()


@pytest.mark.django_db(transaction=True)
async def test_the_async_twins_tell_the_same():
    assert (await runtime.ametrics())["executions"]["total"] == 0
    assert await runtime.areset_metrics()


def test_with_metrics_off_nothing_is_told_or_summed_up(scripted, clock):
    scripted(["Hello."])
    runtime.execute("testing-agent", "hi")
    clock.advance(3600)
    with override_settings(AGENTCORE={"METRICS": False}):
        runtime.tick()
        assert not MetricsSum.objects.exists()
        with pytest.raises(Unavailable, match="METRICS"):
            runtime.metrics()
    assert runtime.metrics()["executions"]["total"] == 1


def test_reading_takes_as_many_queries_whatever_there_is(scripted, django_assert_max_num_queries, clock):
    scripted(lambda request: "Hello.")
    for _ in range(5):
        runtime.execute("testing-agent", "hi", session_id=make_session().session_id)
    with django_assert_max_num_queries(12):
        runtime.metrics()


def test_memory_is_counted_by_kind(scripted):
    scripted(["Hello.", "Hello again."])
    user = make_user("somebody")
    for words in ("hi", "hi once more"):
        runtime.execute("testing-agent", words, user=user)
    counted = {"conversation": 4, "entity": 0, "fact": 0, "working_memory": 0, "event": 0}
    assert runtime.metrics()["memory"] == counted
    runtime.reset_metrics()
    assert runtime.metrics()["memory"] == counted
