"""What must hold of every session: each rule is broken on purpose, and the database or the checker finds it."""

import pytest
from django.db import IntegrityError, transaction
from django.db.models import F

from agentcore import canonical, runtime
from agentcore.events import log
from agentcore.models import (
    AgentContext,
    AgentRevision,
    AgentSession,
    AgentStep,
    ApprovalDecision,
    ContextEntry,
    SessionEvent,
    ToolApproval,
    ToolCall,
)
from agentcore.testing import TESTING_AGENT, assert_invariants, calls, make_user

pytestmark = pytest.mark.django_db

ENDED = {"completed", "failed", "cancelled", "interrupted"}


@pytest.fixture
def reviewer():
    return make_user("reviewer", permissions=("agentcore.decide_toolapproval",))


@pytest.fixture
def ended(scripted, reviewer, run_turns):
    """A turn that ended, with a free call, an approved one and a rejected one behind it."""
    scripted(
        [
            calls(("lookup", {"q": "a"}), ("pay", {"amount": 1, "to": "x"}), ("pay", {"amount": 2, "to": "y"})),
            "Done.",
        ]
    )
    found = runtime.execute(TESTING_AGENT, "hi", user=make_user("owner"))
    first, second = ToolApproval.objects.order_by("pk")
    runtime.approve(first.pk, reviewer)
    runtime.reject(second.pk, reviewer)
    run_turns()
    assert_invariants()
    return AgentContext.objects.get(execution_id=found.execution_id)


@pytest.fixture
def waiting(make_approval):
    """A turn that waits for a decision."""
    turn = make_approval().turn
    assert_invariants()
    return turn


@pytest.fixture
def queued(make_turn):
    turn = make_turn()
    assert_invariants()
    return turn


def change(turn, **fields):
    assert AgentContext.objects.filter(pk=turn.pk).update(**fields) == 1


def assert_found(*words):
    with pytest.raises(AssertionError) as found:
        assert_invariants()
    for word in words:
        assert word in str(found.value)


def test_a_whole_database_has_no_problems(ended, waiting, queued):
    assert_invariants()


# 1, 2, 3, 4 and "at most one" of 7: the database itself refuses them.


def refused(change_rows):
    with pytest.raises(IntegrityError), transaction.atomic():
        change_rows()


def test_a_second_active_turn_is_refused_by_the_database(ended, queued):
    refused(lambda: change(ended, state="queued", active_session=ended.session, session=queued.session))
    copy = AgentContext.objects.get(pk=queued.pk)
    copy.pk, copy.execution_id, copy.idempotency_digest = None, "0" * 32, "other"
    refused(lambda: copy.save(force_insert=True))


@pytest.mark.parametrize("state", ["queued", "thinking", "using_tool", "waiting_for_approval", "cancelling"])
def test_an_active_turn_without_its_place_is_refused(state, queued):
    refused(lambda: change(queued, state=state, active_session=None))


@pytest.mark.parametrize("state", sorted(ENDED))
def test_an_ended_turn_with_a_place_is_refused(state, queued):
    refused(lambda: change(queued, state=state))


def test_a_place_in_another_session_is_refused(queued, make_session):
    other = make_session()
    refused(lambda: change(queued, active_session=other))


def test_a_state_that_is_none_is_refused(ended, queued):
    refused(lambda: change(queued, state="idle"))
    refused(lambda: ToolCall.objects.update(status="running"))
    refused(lambda: ToolApproval.objects.update(status="granted"))
    refused(lambda: ToolApproval.objects.update(kind="other"))
    refused(lambda: AgentStep.objects.update(state="idle"))
    refused(lambda: AgentSession.objects.update(status="closed"))
    refused(lambda: ApprovalDecision.objects.update(verdict="perhaps"))


def test_a_key_used_twice_in_a_session_is_refused(ended):
    copy = AgentContext.objects.get(pk=ended.pk)
    copy.pk, copy.execution_id = None, "0" * 32
    refused(lambda: copy.save(force_insert=True))


def test_an_event_number_used_twice_is_refused(ended):
    copy = SessionEvent.objects.filter(session=ended.session).first()
    copy.pk = None
    refused(lambda: copy.save(force_insert=True))


@pytest.mark.parametrize("fields", [{"hash": "other"}, {"number": 99}], ids=str)
def test_a_revision_made_twice_is_refused(fields, ended):
    copy = AgentRevision.objects.get()
    copy.pk = None
    for name, value in fields.items():
        setattr(copy, name, value)
    refused(lambda: copy.save(force_insert=True))


def test_a_second_row_for_a_call_or_a_step_is_refused(ended):
    call, step = ToolCall.objects.first(), AgentStep.objects.first()
    call.pk, call.call_id = None, "call_other"
    refused(lambda: call.save(force_insert=True))
    call.position = 77
    call.call_id = ToolCall.objects.first().call_id
    refused(lambda: call.save(force_insert=True))
    step.pk = None
    refused(lambda: step.save(force_insert=True))


def test_a_vote_counted_twice_is_refused(ended):
    vote = ApprovalDecision.objects.exclude(counted_key=None).first()
    vote.pk = None
    refused(lambda: vote.save(force_insert=True))


def test_a_key_of_working_memory_stored_twice_is_refused(ended):
    fields = {"turn": ended, "kind": "fact", "key": "k", "key_digest": canonical.text_digest("k")}
    fields |= {"created_at": ended.created_at, "updated_at": ended.updated_at}
    ContextEntry.objects.create(**fields)
    refused(lambda: ContextEntry.objects.create(**fields))


# The others hold by transaction: the checker finds them.


def test_3_a_gap_in_the_numbers_is_found(ended):
    SessionEvent.objects.filter(sequence=3).delete()
    assert_found(ended.session.session_id, "Event 3 is missing")


def test_3_an_altered_event_is_found(ended):
    SessionEvent.objects.filter(sequence=3).update(type="other")
    assert_found("Event 3 (other) does not continue the chain")


def test_4_a_revision_that_changed_is_found(ended):
    revision = AgentRevision.objects.get()
    revision.definition["system_prompt"] = "Pay everybody."
    revision.save()
    assert_found("revision")


def test_5_a_turn_that_waits_for_nothing_is_found(waiting):
    ToolApproval.objects.update(status="cancelled")
    assert_found(str(waiting.execution_id), "no request is pending")


@pytest.mark.parametrize("state", ["queued", "waiting_for_input"])
def test_5_a_pending_request_of_a_turn_that_does_not_wait_is_found(state, waiting):
    change(waiting, state=state)
    assert_found("1 of its requests are pending")


def test_5_a_pending_request_of_an_ended_turn_is_found(ended):
    ToolApproval.objects.filter(status="rejected").update(status="pending")
    assert_found("1 of its requests are pending")


def test_6_a_call_that_ran_without_an_approval_is_found(ended):
    ToolApproval.objects.filter(status="approved").update(status="rejected")
    assert_found("began without an approval")


def test_6_a_call_that_ran_with_other_arguments_is_found(ended):
    arguments = {"amount": 9000, "to": "evil"}
    ToolCall.objects.filter(tool="pay", status="completed").update(
        arguments=arguments, arguments_digest=canonical.digest(arguments)
    )
    assert_found("began without an approval")


def test_6_an_approval_of_other_arguments_is_found(ended):
    ToolApproval.objects.filter(status="approved").update(approved_arguments={"amount": 9000, "to": "evil"})
    assert_found("began without an approval")


def test_6_an_approval_that_nobody_voted_for_is_found(ended):
    votes = ApprovalDecision.objects.filter(verdict="approve")
    assert votes.count() == 1
    votes.update(counted_key=None)
    assert_found("began without an approval")


def test_6_a_vote_for_other_arguments_is_found(ended):
    ApprovalDecision.objects.filter(verdict="approve").update(arguments_digest="0" * 64)
    assert_found("began without an approval")


def test_6_a_vote_of_nobody_is_found(ended):
    ApprovalDecision.objects.filter(verdict="approve").update(actor=None, actor_key="")
    assert_found("began without an approval")


def test_6_a_vote_of_the_requester_is_found(ended):
    ApprovalDecision.objects.filter(verdict="approve").update(actor=ended.user, actor_key=ended.user_key)
    assert_found("began without an approval")


def test_6_the_approval_of_another_call_covers_nothing(ended):
    other = ToolCall.objects.get(tool="pay", status="rejected")
    ToolApproval.objects.filter(status="approved").update(call=other)
    assert_found("began without an approval")


def test_6_a_deleted_reviewers_vote_still_covers_the_call(ended, reviewer):
    reviewer.delete()
    assert_invariants()


@pytest.mark.parametrize("status", ["pending", "approved", "executing", "unknown"])
def test_7_an_open_call_of_an_ended_step_is_found(status, ended):
    ToolCall.objects.filter(tool="lookup").update(status=status, completed_at=None)
    assert_found(f"its step or turn has ended, and it is {status}")


@pytest.mark.parametrize("status", ["pending", "approved", "executing"])
def test_7_an_open_call_with_a_time_is_found(status, ended):
    ToolCall.objects.filter(tool="lookup").update(status=status)
    assert_found(f"it is {status}, and it ended at")


def test_7_a_result_without_a_time_is_found(ended):
    ToolCall.objects.filter(tool="lookup").update(completed_at=None)
    assert_found("it is completed, and it ended at None")


def test_8_a_reply_that_is_counted_and_not_stored_is_found(ended):
    change(ended, step_count=F("step_count") + 1)
    assert_found("counts 3 replies")


def test_8_a_reply_that_is_stored_and_not_counted_is_found(ended):
    change(ended, step_count=1)
    assert_found("counts 1 replies")


def test_9_a_second_attempt_at_what_may_not_be_repeated_is_found(ended):
    ToolCall.objects.filter(tool="pay", status="completed").update(attempts=2)
    assert_found("not idempotent and was attempted 2 times")
    ToolCall.objects.filter(tool="pay", status="completed").update(attempts=1)
    ToolCall.objects.filter(tool="lookup").update(attempts=2)
    with pytest.raises(AssertionError) as found:
        assert_invariants()
    assert "not idempotent" not in str(found.value)


def test_9_a_question_about_a_call_whose_end_is_known_is_found(waiting):
    ToolApproval.objects.update(kind="outcome")
    assert_found("it is pending, and a person is asked how it ended")


@pytest.mark.parametrize("state", ["thinking", "using_tool", "cancelling"])
def test_10_a_turn_that_is_worked_on_without_a_lease_is_found(state, queued):
    change(queued, state=state)
    assert_found("its lease ends at None")


@pytest.mark.parametrize("state", ["queued", "waiting_for_input"])
def test_10_a_lease_of_a_turn_that_nobody_works_on_is_found(state, queued):
    change(queued, state=state, lease_expires_at=queued.created_at)
    assert_found("and its lease ends at")


def test_an_ended_turn_without_a_time_and_an_active_one_with_it_are_found(ended, queued):
    change(ended, completed_at=None)
    assert_found(str(ended.execution_id), "it ended at None")
    change(ended, completed_at=ended.completed_at)
    change(queued, completed_at=queued.created_at)
    assert_found(str(queued.execution_id), "it is queued, and it ended at")


def appended(turn, type, **data):
    with log.writing(turn.session_id) as journal:
        journal.append(type, execution_id=turn.execution_id, **data)


@pytest.mark.parametrize("type", ["turn.completed", "turn.failed", "turn.cancelled", "turn.interrupted"])
def test_a_second_final_event_is_found(type, ended):
    appended(ended, type)
    assert_found("has 2 final events")


def test_a_final_event_of_a_turn_that_goes_on_is_found(queued):
    appended(queued, "turn.completed")
    assert_found("is queued and has 1 final events")


def test_an_end_without_a_final_event_is_found(queued):
    change(queued, state="failed", active_session=None, completed_at=queued.created_at)
    assert_found("is failed and has 0 final events")


def test_an_event_after_the_end_is_found_but_for_what_was_remembered(ended):
    appended(ended, "agent.memory.updated", keys=[])
    assert_invariants()
    appended(ended, "message", message={})
    assert_found("after its final event follow")


def test_a_state_that_the_log_does_not_know_is_found(ended):
    change(ended, state="cancelled")
    assert_found("its log says completed")


def test_a_move_that_the_table_does_not_have_is_found(queued):
    appended(queued, "agent.state.changed", previous="queued", new="completed", reason="")
    assert_found("from queued to completed")


def test_a_move_from_where_the_turn_was_not_is_found(queued):
    appended(queued, "agent.state.changed", previous="thinking", new="queued", reason="")
    assert_found("from thinking to queued")


def test_steps_that_began_and_did_not_end_are_found(ended):
    AgentStep.objects.filter(number=2).update(completed_at=None)
    assert_found("one of its steps has not")
    AgentStep.objects.filter(number=2).update(completed_at=ended.completed_at)
    AgentStep.objects.filter(number=1).update(completed_at=None)
    assert_found("step 1 has not ended, and a later one has begun")


def test_a_missing_step_is_found(ended):
    AgentStep.objects.filter(number=2).update(number=3)
    assert_found("its steps are numbered [1, 3]")


def test_an_event_of_a_step_that_is_missing_is_found(ended):
    appended(ended, "agent.step.started", step=3)
    assert_found("3 steps started and 2 ended")


def test_everything_wrong_is_told_at_once_with_its_session(ended, waiting):
    ToolCall.objects.filter(turn=ended, tool="lookup").update(completed_at=None)
    ToolApproval.objects.filter(turn=waiting).update(status="expired")
    assert_found(
        f"session {ended.session.session_id}: Turn {ended.execution_id}: call ",
        f"session {waiting.session.session_id}: Turn {waiting.execution_id}: it waits",
    )
