"""The engine's main story over real rows: ask, wait, decide, go on."""

import pytest

from agentcore import TurnState, runtime
from agentcore.engine import loop
from agentcore.exceptions import Conflict, NotFound, PermissionDenied
from agentcore.models import AgentContext, SessionEvent, ToolApproval, ToolCall
from agentcore.testing import TESTING_AGENT, calls, make_user, text
from agentcore.testing.agents import ledger

pytestmark = pytest.mark.django_db(transaction=True)

DECIDE = "agentcore.decide_toolapproval"


@pytest.fixture(autouse=True)
def _clean_ledger():
    ledger.clear()


@pytest.fixture
def reviewer():
    return make_user("reviewer", permissions=(DECIDE,))


@pytest.fixture
def owner():
    return make_user("owner")


def test_a_plain_answer_completes_the_turn(scripted, assert_invariants):
    provider = scripted(["Hello."])
    result = runtime.execute(TESTING_AGENT, "hi")
    assert (result.state, result.response, result.error) == (TurnState.COMPLETED, "Hello.", None)
    assert [message.role for message in provider.requests[0].messages] == ["system", "user"]
    assert_invariants()


def test_a_free_tool_runs_and_its_result_reaches_the_model(scripted, assert_invariants):
    provider = scripted([calls(("lookup", {"q": "a"})), "Found."])
    result = runtime.execute(TESTING_AGENT, "look")
    assert result.state == TurnState.COMPLETED
    assert ledger.entries == [("lookup", "a")]
    last = provider.requests[1].messages[-1]
    assert (last.role, last.content) == ("tool", '{"found":"yes","q":"a"}')
    assert_invariants()


def test_a_gated_tool_waits_and_runs_once_with_what_was_shown(scripted, owner, reviewer, run_turns, assert_invariants):
    provider = scripted([calls(("pay", {"amount": 10, "to": "acme"})), "Paid."])
    result = runtime.execute(TESTING_AGENT, "pay", user=owner)
    assert result.state == TurnState.WAITING_FOR_APPROVAL
    assert ledger.entries == []
    [pending] = result.pending_approvals
    approval = runtime.pending_approvals(reviewer).get()
    assert (approval.pk, approval.preview) == (pending.id, "Pays 10 to acme")
    runtime.approve(approval.pk, reviewer)
    assert provider.call_count == 1
    run_turns()
    assert ledger.entries == [("pay", 10, "acme")]
    assert runtime.result(result.execution_id).response == "Paid."
    assert_invariants()


def test_events_tell_the_story_in_order_without_a_gap(scripted, owner, reviewer, run_turns):
    scripted([calls(("pay", {"amount": 10, "to": "acme"})), "Paid."])
    result = runtime.execute(TESTING_AGENT, "pay", user=owner)
    runtime.approve(runtime.pending_approvals().get().pk, reviewer)
    run_turns()
    kinds = list(SessionEvent.objects.order_by("sequence").values_list("type", flat=True))
    assert kinds == [
        "session.started",
        "turn.input",
        "agent.state.changed",
        "turn.running",
        "agent.step.started",
        "agent.state.changed",
        "tool.approval.requested",
        "agent.state.changed",
        "turn.waiting",
        "tool.approval.granted",
        "agent.state.changed",
        "turn.resumed",
        "agent.state.changed",
        "agent.state.changed",
        "tool.execution.started",
        "tool.execution.completed",
        "agent.state.changed",
        "agent.step.completed",
        "agent.step.started",
        "message",
        "agent.step.completed",
        "agent.state.changed",
        "turn.completed",
        "agent.memory.updated",
    ]
    assert list(SessionEvent.objects.order_by("sequence").values_list("sequence", flat=True)) == list(range(1, 25))
    assert runtime.result(result.execution_id).state == TurnState.COMPLETED


def test_apr_20_the_reason_of_a_rejection_reaches_the_model_word_for_word(
    scripted, owner, reviewer, run_turns, assert_invariants
):
    reason = 'Use vendor "acme-eu" instead — é 漢 <b>'
    provider = scripted(
        [calls(("pay", {"amount": 10, "to": "acme"})), calls(("pay", {"amount": 11, "to": "acme"})), "As you wish."]
    )
    runtime.execute(TESTING_AGENT, "pay", user=owner)
    runtime.reject(runtime.pending_approvals().get().pk, reviewer, reason=reason)
    run_turns()
    assert reason in provider.requests[1].messages[-1].content
    runtime.reject(runtime.pending_approvals().get().pk, reviewer)
    run_turns()
    assert "Do not make the same call again" in provider.requests[2].messages[-1].content
    assert ledger.entries == []
    assert_invariants()


def test_apr_16_a_batch_with_mixed_decisions_gives_one_result_per_call(
    scripted, owner, reviewer, clock, run_turns, assert_invariants
):
    provider = scripted(
        [
            calls(
                ("lookup", {"q": "a"}),
                ("pay", {"amount": 1, "to": "x"}),
                ("pay", {"amount": 2, "to": "y"}),
                ("wipe", {"path": "/t"}),
            ),
            "Done.",
        ]
    )
    runtime.execute(TESTING_AGENT, "do", user=owner)
    assert ledger.entries == [("lookup", "a")]
    first, second, third = ToolApproval.objects.order_by("pk")
    runtime.reject(second.pk, reviewer, reason="wrong vendor")
    run_turns()
    assert provider.call_count == 1
    ToolApproval.objects.filter(pk=third.pk).update(expires_at=clock.now())
    clock.advance(1)
    assert runtime.tick()["expired"] == 1
    runtime.approve(first.pk, reviewer)
    run_turns()
    assert ledger.entries == [("lookup", "a"), ("pay", 1, "x")]
    results = [message for message in provider.requests[1].messages if message.role == "tool"]
    assert [message.tool_call_id for message in results] == ["c1", "c2", "c3", "c4"]
    assert "wrong vendor" in results[2].content
    assert "Nobody decided in time" in results[3].content
    assert_invariants()


def test_apr_19_a_second_round_of_approvals_is_a_second_pause(scripted, owner, reviewer, run_turns, assert_invariants):
    scripted([calls(("pay", {"amount": 1, "to": "x"})), calls(("pay", {"amount": 2, "to": "y"})), "done"])
    result = runtime.execute(TESTING_AGENT, "pay", user=owner)
    for _ in range(2):
        runtime.approve(runtime.pending_approvals().get().pk, reviewer)
        run_turns()
    assert ledger.entries == [("pay", 1, "x"), ("pay", 2, "y")]
    assert runtime.result(result.execution_id).response == "done"
    assert_invariants()


def test_apr_02_an_edit_runs_the_new_arguments_and_tells_the_model(scripted, owner, reviewer, run_turns):
    provider = scripted([calls(("pay", {"amount": 500, "to": "acme"})), "Paid."])
    runtime.execute(TESTING_AGENT, "pay", user=owner)
    approval = runtime.pending_approvals().get()
    decided = runtime.approve(approval.pk, reviewer, arguments={"amount": 50, "to": "acme"})
    run_turns()
    assert ledger.entries == [("pay", 50, "acme")]
    assert (decided.arguments["amount"], decided.approved_arguments["amount"]) == (500, 50)
    told = provider.requests[1].messages[-1].content
    assert "A person changed this call" in told
    assert '"amount":50' in told


def test_apr_12_a_late_approval_is_refused_as_expired(scripted, owner, reviewer, clock, run_turns, assert_invariants):
    provider = scripted([calls(("pay", {"amount": 10, "to": "acme"})), "Nobody was there."])
    runtime.execute(TESTING_AGENT, "pay", user=owner)
    approval = runtime.pending_approvals().get()
    clock.advance(7 * 86_400 + 1)
    with pytest.raises(Conflict, match="expired"):
        runtime.approve(approval.pk, reviewer)
    run_turns()
    assert ledger.entries == []
    assert "Nobody decided in time" in provider.requests[1].messages[-1].content
    assert_invariants()


def test_apr_10_approving_after_a_cancel_conflicts(scripted, owner, reviewer, assert_invariants):
    scripted([calls(("pay", {"amount": 10, "to": "acme"}))])
    result = runtime.execute(TESTING_AGENT, "pay", user=owner)
    approval = runtime.pending_approvals().get()
    assert runtime.cancel(result.session_id).state == TurnState.CANCELLED
    with pytest.raises(Conflict, match="cancelled"):
        runtime.approve(approval.pk, reviewer)
    approval.refresh_from_db()
    assert (approval.status, runtime.pending_approvals().count()) == ("cancelled", 0)
    assert approval.decisions.filter(refusal="conflict").count() == 1
    assert_invariants()


def test_apr_26_nobody_decides_on_their_own_turn(scripted):
    boss = make_user("boss", is_superuser=True)
    scripted([calls(("pay", {"amount": 10, "to": "acme"}))])
    runtime.execute(TESTING_AGENT, "pay", user=boss)
    approval = ToolApproval.objects.get()
    assert not runtime.pending_approvals(boss).exists()
    with pytest.raises(PermissionDenied):
        runtime.approve(approval.pk, boss)
    approval.refresh_from_db()
    assert approval.status == "pending"


def test_apr_26_an_unknown_requester_is_decided_by_nobody(scripted, reviewer):
    owner = make_user("gone")
    scripted([calls(("pay", {"amount": 10, "to": "acme"}))])
    runtime.execute(TESTING_AGENT, "pay", user=owner)
    owner.delete()
    with pytest.raises(PermissionDenied):
        runtime.approve(ToolApproval.objects.get().pk, reviewer)
    assert not runtime.pending_approvals(reviewer).exists()


def test_the_next_turn_remembers_what_was_said(scripted, owner, assert_invariants):
    provider = scripted([calls(("lookup", {"q": "12345"})), "It was shipped.", "I told you: shipped."])
    first = runtime.execute(TESTING_AGENT, "where is it?", user=owner)
    runtime.execute(TESTING_AGENT, "what was the status?", user=owner, session_id=first.session_id)
    roles = [message.role for message in provider.requests[2].messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert_invariants()


def test_dur_31_the_step_limit_survives_pauses(scripted, owner, reviewer, run_turns, assert_invariants):
    numbers = iter(range(1, 100))
    provider = scripted(lambda request: calls(("pay", {"amount": next(numbers), "to": "x"})))
    result = runtime.execute(TESTING_AGENT, "pay", user=owner, max_steps=3)
    while runtime.pending_approvals().exists():
        runtime.approve(runtime.pending_approvals().get().pk, reviewer)
        run_turns()
    ended = runtime.result(result.execution_id)
    assert (ended.state, ended.error["code"], provider.call_count) == (TurnState.FAILED, "max_steps", 3)
    assert ledger.entries == [("pay", 1, "x"), ("pay", 2, "x")]
    assert_invariants()


def test_an_auto_approving_handler_lets_execute_go_on(scripted, owner, reviewer, assert_invariants):
    scripted([calls(("pay", {"amount": 10, "to": "acme"})), "Paid."])

    def approve(event):
        runtime.approve(event.data["approval_id"], reviewer)

    runtime.on("tool.approval.requested", approve)
    try:
        result = runtime.execute(TESTING_AGENT, "pay", user=owner)
    finally:
        runtime.off("tool.approval.requested", approve)
    assert (result.state, result.response) == (TurnState.COMPLETED, "Paid.")
    assert_invariants()


def test_a_known_key_gives_the_same_turn_and_another_body_conflicts(scripted, owner, make_session):
    scripted(["ok"])
    session = make_session(user=owner)
    first = runtime.enqueue(session.session_id, "hi", idempotency_key="k1", user=owner)
    again = runtime.enqueue(session.session_id, "hi", idempotency_key="k1", user=owner)
    assert (again.duplicate, again.turn.pk) == (True, first.turn.pk)
    with pytest.raises(Conflict):
        runtime.enqueue(session.session_id, "other", idempotency_key="k1", user=owner)
    with pytest.raises(Conflict, match="active turn"):
        runtime.enqueue(session.session_id, "hi", idempotency_key="K1", user=owner)
    assert AgentContext.objects.count() == 1


def test_another_users_session_does_not_exist(make_session, owner):
    session = make_session(user=owner)
    with pytest.raises(NotFound):
        runtime.enqueue(session.session_id, "hi", user=make_user())


def test_prv_06_empty_and_repeated_call_ids_stay_apart(scripted, owner, reviewer, run_turns, assert_invariants):
    reply = calls(*(("pay", {"amount": n, "to": "x"}) for n in (1, 2, 3, 4)))
    ids = ["c1", "c1", "", ""]
    strange = type(reply)(
        tool_calls=tuple(
            type(call)(id=id, name=call.name, arguments=call.arguments)
            for id, call in zip(ids, reply.tool_calls, strict=True)
        ),
        finish_reason="tool_calls",
    )
    provider = scripted([strange, "ok", calls(("pay", {"amount": 99, "to": "x"}))])
    first = runtime.execute(TESTING_AGENT, "pay", user=owner)
    for number, approval in enumerate(ToolApproval.objects.order_by("pk")):
        (runtime.reject if number % 2 else runtime.approve)(approval.pk, reviewer)
    run_turns()
    assert ledger.entries == [("pay", 1, "x"), ("pay", 3, "x")]
    runtime.execute(TESTING_AGENT, "again", user=owner, session_id=first.session_id)
    assert runtime.pending_approvals().count() == 1
    provider.assert_valid()
    assert_invariants()


class _Died(BaseException):
    pass


def _run_until_the_worker_dies(turn, *, in_tool):
    """Stop right after the tool's effect, as SIGKILL would: nothing more is written."""
    from agentcore.turns import steps

    real = steps.record_result

    def die(*args, **kwargs):
        raise _Died

    steps.record_result = die
    try:
        with pytest.raises(_Died):
            loop.run(turn.execution_id)
    finally:
        steps.record_result = real


def test_a_dead_workers_idempotent_call_runs_again(scripted, make_turn, clock, run_turns, assert_invariants):
    scripted([calls(("lookup", {"q": "a"})), text("found")])
    turn = make_turn()
    _run_until_the_worker_dies(turn, in_tool="lookup")
    clock.advance(10_000)
    runtime.recover()
    run_turns()
    assert runtime.result(turn.execution_id).response == "found"
    assert ledger.entries == [("lookup", "a"), ("lookup", "a")]
    assert ToolCall.objects.get().attempts == 2
    assert_invariants()
