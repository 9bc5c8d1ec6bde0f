"""One notice when a request is asked for, and one reminder before its time is over."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest
from django.db import connections, transaction

from agentcore import ApprovalPolicy, EventType, agent, runtime, tool
from agentcore.agents.registry import registry
from agentcore.approvals import reminders
from agentcore.models import AgentContext, ToolApproval
from agentcore.signals import ApprovalReminder, approval_reminder
from agentcore.testing import assert_invariants, calls, make_session, make_user, run_turns

# With real commits: what is told is told after them.
pytestmark = pytest.mark.django_db(transaction=True)

DECIDE = "agentcore.decide_toolapproval"
NAME = "reminded"
DAY = timedelta(hours=24)


@pytest.fixture(autouse=True)
def reminded():
    @agent(name=NAME, model="scripted:x")
    class Reminded:
        @tool(
            description="Pay",
            requires_approval=True,
            approval=ApprovalPolicy(expires_in=DAY, permission="auth.view_group", votes=2),
        )
        def pay(self, amount: int) -> str:
            return f"paid {amount}"

        @tool(description="Wipe", requires_approval=True, approval=ApprovalPolicy(expires_in=timedelta.max))
        def wipe(self, path: str) -> str:
            return path

    yield Reminded
    registry.unregister(NAME)


@pytest.fixture
def sent():
    found = []

    def receive(sender, reminder, **kwargs):
        found.append((sender, reminder))

    approval_reminder.connect(receive)
    yield found
    approval_reminder.disconnect(receive)


@pytest.fixture
def mail_is_down():
    def fail(sender, **kwargs):
        raise ConnectionError("no mail server")

    approval_reminder.connect(fail)
    runtime.on(EventType.TOOL_APPROVAL_REQUESTED, fail)
    yield
    approval_reminder.disconnect(fail)
    runtime.off(EventType.TOOL_APPROVAL_REQUESTED, fail)


@pytest.fixture
def notices():
    found = []
    runtime.on(EventType.TOOL_APPROVAL_REQUESTED, found.append)
    yield found
    runtime.off(EventType.TOOL_APPROVAL_REQUESTED, found.append)


def ask(scripted, wanted=("pay", {"amount": 10})):
    scripted(lambda request: calls(wanted) if request.messages[-1].role == "user" else "Done.")
    owner = make_user("owner")
    session = make_session(NAME, user=owner)
    runtime.enqueue(session.session_id, "go", user=owner)
    run_turns()
    return ToolApproval.objects.get(session=session)


def test_adm_08_one_notice_and_one_reminder_whatever_becomes_of_them(
    scripted, clock, sent, notices, mail_is_down, caplog
):
    asked = ask(scripted)
    waiting = AgentContext.objects.values().get()
    for _ in range(30):
        clock.advance(timedelta(hours=0.75))
        runtime.tick()
    assert [event.data["approval_id"] for event in notices] == [asked.pk]
    assert len(sent) == 1
    assert AgentContext.objects.values().get() == waiting
    assert caplog.text.count("no mail server") >= 2
    assert "A receiver of a reminder failed; nothing else is changed by that" in caplog.messages
    assert_invariants()
    for number in range(2):
        reviewer = make_user(f"reviewer-{number}", permissions=(DECIDE, "auth.view_group"))
        runtime.approve(asked.pk, reviewer)
    run_turns()
    assert runtime.result(asked.turn.execution_id).response == "Done."
    assert len(sent) == 1


def test_a_reminder_says_what_waits_and_holds_no_arguments(scripted, clock, sent):
    asked = ask(scripted)
    clock.advance(DAY * 0.75)
    assert runtime.tick()["reminded"] == 1
    expected = ApprovalReminder(
        approval_id=asked.pk,
        kind="call",
        tool="pay",
        agent=NAME,
        session_id=asked.session.session_id,
        execution_id=str(asked.turn.execution_id),
        requested_by="owner",
        permissions=(DECIDE, "auth.view_group"),
        votes_needed=2,
        requested_at=asked.requested_at,
        expires_at=asked.expires_at,
    )
    assert sent == [(ApprovalReminder, expected)]
    asked.refresh_from_db()
    assert asked.reminded_at >= asked.requested_at + DAY * 0.75


def test_it_is_sent_when_three_quarters_of_the_time_are_over(scripted, clock, sent):
    ask(scripted)
    clock.advance(DAY * 0.74)
    assert runtime.tick()["reminded"] == 0
    clock.advance(DAY * 0.01)
    assert runtime.tick()["reminded"] == 1
    assert runtime.tick()["reminded"] == 0
    assert len(sent) == 1


def test_what_was_decided_or_expired_is_not_reminded_of(scripted, clock, sent):
    asked = ask(scripted)
    runtime.reject(asked.pk, make_user("reviewer", permissions=(DECIDE, "auth.view_group")))
    clock.advance(DAY * 0.8)
    assert runtime.tick()["reminded"] == 0
    assert sent == []


def test_what_expired_before_the_sweep_came_is_not_reminded_of(scripted, clock, sent):
    ask(scripted)
    clock.advance(DAY * 2)
    counts = runtime.tick()
    assert (counts["expired"], counts["reminded"]) == (1, 0)
    assert sent == []


def test_what_never_expires_is_not_reminded_of(scripted, clock, sent):
    asked = ask(scripted, ("wipe", {"path": "/t"}))
    assert (asked.expires_at, asked.remind_at) == (None, None)
    clock.advance(timedelta(days=1000))
    assert runtime.tick()["reminded"] == 0
    assert sent == []


def test_a_reminder_is_sent_after_the_commit_of_the_sweep(scripted, clock, sent):
    ask(scripted)
    clock.advance(DAY * 0.8)
    with transaction.atomic():
        assert runtime.tick()["reminded"] == 1
        assert sent == []
    assert len(sent) == 1


def test_of_several_sweeps_at_once_one_sends_it(scripted, clock, sent):
    ask(scripted)
    clock.advance(DAY * 0.8)
    together = Barrier(3)

    def sweep(_):
        try:
            together.wait(10)
            return reminders.remind_due()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(3) as pool:
        assert sum(pool.map(sweep, range(3))) == 1
    assert len(sent) == 1
