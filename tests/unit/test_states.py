"""Every move between two states of a turn, legal or not, attempted on a row."""

import pytest

from agentcore import states
from agentcore.events import log
from agentcore.exceptions import Conflict, LeaseLost, NotQueued, TurnCancelled
from agentcore.models import AgentContext, SessionEvent
from agentcore.states import TurnState
from agentcore.turns import lifecycle
from agentcore.turns.leases import Lease

pytestmark = pytest.mark.django_db

# Section 4 of the contract, written out once more: the code is compared with this, never the other way round.
LEGAL = {
    "queued": {"thinking", "cancelled", "failed"},
    "thinking": {
        "using_tool",
        "waiting_for_approval",
        "waiting_for_input",
        "completed",
        "failed",
        "cancelling",
        "interrupted",
        "queued",
    },
    "using_tool": {
        "thinking",
        "waiting_for_approval",
        "waiting_for_input",
        "failed",
        "cancelling",
        "interrupted",
        "queued",
    },
    "waiting_for_approval": {"queued", "waiting_for_input", "failed", "cancelled"},
    "waiting_for_input": {"queued", "failed", "cancelled"},
    "cancelling": {"cancelled"},
    "completed": set(),
    "failed": set(),
    "cancelled": set(),
    "interrupted": set(),
}
ENDED = {"completed", "failed", "cancelled", "interrupted"}
WORKED_ON = {"thinking", "using_tool", "cancelling"}
PAIRS = [(source, target) for source in LEGAL for target in LEGAL]

TOKEN = 7
ERROR = {"code": "internal", "message": "for a test", "details": {}}


def turn_in(state, turn):
    """Put the row into a state by force, as consistent as its constraints ask for."""
    AgentContext.objects.filter(pk=turn.pk).update(
        state=state,
        active_session=None if state in ENDED else turn.session,
        completed_at=turn.created_at if state in ENDED else None,
        lease_token=TOKEN,
        lease_owner="worker" if state in WORKED_ON else "",
        lease_expires_at=turn.created_at if state in WORKED_ON else None,
        next_dispatch_at=turn.created_at if state == "queued" else None,
    )
    return AgentContext.objects.select_related("session").get(pk=turn.pk)


def row(turn):
    return AgentContext.objects.filter(pk=turn.pk).values().get()


def events(turn):
    return list(SessionEvent.objects.filter(turn_id=turn.execution_id).order_by("sequence"))


def test_the_ten_states_are_those_of_the_contract():
    assert set(TurnState.values) == set(LEGAL)
    assert len(PAIRS) == 100
    assert set(states.TERMINAL) == ENDED
    assert set(states.ACTIVE) == set(LEGAL) - ENDED
    assert set(states.WORKING) == WORKED_ON


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_turn_moves_as_the_table_says_and_not_otherwise(source, target, make_turn):
    turn = turn_in(source, make_turn())
    before, told = row(turn), events(turn)

    def move():
        fields = {"active_session": None} if target in ENDED else {}
        with log.writing(turn.session_id) as journal:
            lifecycle._move(journal, turn, TurnState(target), reason="for a test", **fields)

    if target in LEGAL[source]:
        move()
        assert row(turn)["state"] == target
        [event] = events(turn)[len(told) :]
        assert event.type == "agent.state.changed"
        assert event.data == {"previous": source, "new": target, "reason": "for a test"}
    else:
        with pytest.raises(Conflict) as refused:
            move()
        assert refused.value.details["state"] == source
        assert set(refused.value.details["allowed"]) == {state for state in LEGAL if target in LEGAL[state]}
        assert row(turn) == before
        assert events(turn) == told


def lease_of(turn, token=TOKEN):
    return Lease(turn_pk=turn.pk, session_pk=turn.session_id, execution_id=turn.execution_id, token=token)


# Each verb: where it leads, what it tells last, and the call.
HELD = {
    "think": ("thinking", None, lambda j, t, w: lifecycle.advance(j, t, w, TurnState.THINKING, reason="test")),
    "use a tool": ("using_tool", None, lambda j, t, w: lifecycle.advance(j, t, w, TurnState.USING_TOOL, reason="test")),
    "wait for approval": (
        "waiting_for_approval",
        "turn.waiting",
        lambda j, t, w: lifecycle.suspend(j, t, w, TurnState.WAITING_FOR_APPROVAL, reason="test"),
    ),
    "wait for input": (
        "waiting_for_input",
        "turn.waiting",
        lambda j, t, w: lifecycle.suspend(j, t, w, TurnState.WAITING_FOR_INPUT, reason="test"),
    ),
    "give back": ("queued", "turn.resumed", lambda j, t, w: lifecycle.give_back(j, t, w, reason="test")),
    "complete": ("completed", "turn.completed", lambda j, t, w: lifecycle.complete(j, t, w, response="done")),
    "fail": ("failed", "turn.failed", lambda j, t, w: lifecycle.fail(j, t, w, error=ERROR)),
    "interrupt": ("interrupted", "turn.interrupted", lambda j, t, w: lifecycle.interrupt(j, t, w, error=ERROR)),
}
FREE = {
    "wake": ("queued", "turn.resumed", lambda j, t: lifecycle.wake(j, t, reason="test")),
    "take over": ("queued", "turn.resumed", lambda j, t: lifecycle.take_over(j, t)),
    "request cancel": ("cancelling", "turn.cancelling", lambda j, t: lifecycle.request_cancel(j, t, by="somebody")),
    "end as cancelled": (
        "cancelled",
        "turn.cancelled",
        lambda j, t: lifecycle.end(j, t, TurnState.CANCELLED, reason="test", error=None),
    ),
    "end as failed": (
        "failed",
        "turn.failed",
        lambda j, t: lifecycle.end(j, t, TurnState.FAILED, reason="test", error=ERROR),
    ),
    "end as interrupted": (
        "interrupted",
        "turn.interrupted",
        lambda j, t: lifecycle.end(j, t, TurnState.INTERRUPTED, reason="test", error=ERROR),
    ),
}


def told_by(turn, told):
    return [event.type for event in events(turn)[len(told) :]]


@pytest.mark.parametrize("verb", HELD)
def test_the_verbs_of_a_worker_move_only_what_it_holds(verb, make_turn):
    for source, turn in each_source(make_turn()):
        target, last, call = HELD[verb]
        stays = source == target and source in {"thinking", "using_tool"}
        if stays or (target in LEGAL[source] and source in {"thinking", "using_tool"}):
            told = events(turn)
            with log.writing(turn.session_id) as journal:
                call(journal, turn, lease_of(turn))
            assert row(turn)["state"] == turn.state == target
            assert told_by(turn, told) == ([] if stays else ["agent.state.changed"]) + ([last] if last else [])
            assert_place_and_lease(turn)
        else:
            refusal = TurnCancelled if source == "cancelling" else LeaseLost
            assert_refused(refusal, turn, lambda j, t, call=call: call(j, t, lease_of(t)))


@pytest.mark.parametrize("verb", HELD)
def test_dur_09_no_verb_of_a_worker_moves_a_turn_with_an_old_token(verb, make_turn):
    call = HELD[verb][2]
    for _, turn in each_source(make_turn()):
        assert_refused(LeaseLost, turn, lambda j, t: call(j, t, lease_of(t, token=TOKEN - 1)))


@pytest.mark.parametrize("verb", FREE)
def test_the_verbs_without_a_lease_keep_to_the_table(verb, make_turn):
    target, last, call = FREE[verb]
    for source, turn in each_source(make_turn()):
        if target not in LEGAL[source]:
            assert_refused(Conflict, turn, call)
            continue
        told = events(turn)
        with log.writing(turn.session_id) as journal:
            call(journal, turn)
        assert row(turn)["state"] == target
        assert told_by(turn, told) == ["agent.state.changed", last]
        if target in ENDED or verb == "take over":
            assert row(turn)["lease_token"] == TOKEN + 1
            assert_place_and_lease(turn)


def test_only_a_queued_turn_is_claimed(make_turn):
    for source, turn in each_source(make_turn()):
        if source == "queued":
            told = events(turn)
            with log.writing(turn.session_id) as journal:
                lease = lifecycle.claim(journal, turn)
            assert (row(turn)["state"], lease.token) == ("thinking", TOKEN + 1)
            assert told_by(turn, told) == ["agent.state.changed", "turn.running"]
            assert_place_and_lease(turn)
        else:
            assert_refused(NotQueued, turn, lifecycle.claim)


def each_source(turn):
    """Yield each state, and the turn in it."""
    for source in LEGAL:
        yield source, turn_in(source, turn)


def assert_refused(refusal, turn, call):
    before, told = row(turn), events(turn)
    with pytest.raises(refusal), log.writing(turn.session_id) as journal:
        call(journal, turn)
    assert row(turn) == before
    assert events(turn) == told


def assert_place_and_lease(turn):
    now = row(turn)
    assert (now["active_session_id"] is None) == (now["state"] in ENDED)
    assert (now["completed_at"] is not None) == (now["state"] in ENDED)
    assert (now["lease_expires_at"] is not None) == (now["state"] in WORKED_ON)
    assert (now["next_dispatch_at"] is not None) == (now["state"] == "queued")


@pytest.mark.parametrize("target", sorted(set(LEGAL) - ENDED))
def test_an_active_state_ends_no_turn(target, make_turn):
    turn = make_turn()
    with pytest.raises(ValueError, match="does not end a turn"), log.writing(turn.session_id) as journal:
        lifecycle.end(journal, turn, TurnState(target), reason="test", error=None)


def test_turn_running_is_told_at_the_first_claim_only(make_turn):
    turn = make_turn()
    with log.writing(turn.session_id) as journal:
        lease = lifecycle.claim(journal, turn)
        lifecycle.give_back(journal, turn, lease, reason="test")
        lifecycle.claim(journal, turn)
    assert [event.type for event in events(turn)].count("turn.running") == 1


def test_an_older_answer_takes_no_proof_of_a_lease_back(make_turn):
    lease = lease_of(make_turn())
    now = lease.proved_at
    lease.prove(now + 5)
    lease.prove(now + 1)  # asked before, and answered after
    assert lease.proved_at == now + 5
