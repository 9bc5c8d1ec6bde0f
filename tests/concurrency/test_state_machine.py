"""Whatever people, workers, crashes and the clock do, in whatever order: nothing is lost, and nothing happens twice.

Hypothesis draws what happens next and shrinks what fails. Two database connections take part: the test's own and one
in a second thread, which either acts between two commits of a worker or starts at the same moment. After each rule
the product's own invariants are asked, and what this file remembers of what people decided and tools did. At the end
of each example every turn must come to an end.

AGENTCORE_EXAMPLES     how many examples the slow test makes; default 2000
AGENTCORE_SEED         the seed of the slow test; a random one by default, always printed
"""

import os
import random
import sys
import threading
import time
from collections import Counter, defaultdict, deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import connections
from django.db.models import Count
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from agentcore import ApprovalPolicy, ToolContext, TurnState, agent, canonical, clock, dispatch, runtime, tool
from agentcore.agents.registry import registry
from agentcore.approvals import decisions, ending, invariants
from agentcore.conf import settings as agentcore_settings
from agentcore.engine import draining, loop
from agentcore.events import log
from agentcore.events.kinds import FINAL
from agentcore.exceptions import AgentError, Conflict, PermissionDenied, ToolError
from agentcore.models import (
    AgentContext,
    AgentSession,
    AgentStep,
    ApprovalDecision,
    ContextEntry,
    SessionEvent,
    ToolApproval,
    ToolCall,
    UserQuestion,
)
from agentcore.states import TERMINAL, WAITING, WORKING, SessionStatus
from agentcore.testing import ScriptedProvider, calls, make_session, make_user, text
from agentcore.testing import clock as testing_clock
from agentcore.tools import ask_user

DECIDE = "agentcore.decide_toolapproval"
REVIEWERS = ("anna", "ben")
VOTES = {"pay": 1, "refund": 1, "wire": 2}
STATUS_OF = {"approve": "approved", "reject": "rejected", "respond": "responded"}
LEASE_OVER = 61
APPROVAL_OVER = timedelta(days=8)
# As a worker may end a turn; anything else ("internal", "driver_error") is a fault of the runtime.
ERRORS = {"max_steps", "outcome_unknown", "approval_expired", "process_restarted", "cancelled"}
SECONDS = 30

CALLS = (
    ("lookup", {"q": "a"}),
    ("lookup", {"q": "nothing"}),
    ("pay", {"amount": 1}),
    ("pay", {"amount": 2}),
    ("refund", {"amount": 3}),
    ("wire", {"amount": 4}),
    ("charge", {"amount": 5}),
    ("charge", {"amount": 6}),
    ("note", {"amount": 7}),
    ("book", {"amount": 8}),
    ("pay", {"amount": "much"}),
    ("gone", {}),
    ("ask_user", {"question": "Which?"}),
    ("ask_user", {"question": "How many?"}),
)

GATED = [call for call in CALLS if call[0] in VOTES and call[1]["amount"] != "much"]

numbers = st.integers(0, 7)
commits = st.integers(1, 6)
reviewers = st.sampled_from(REVIEWERS)
# A reply asks for one to three tools; the empty one says nothing at all. After the drawn ones the model answers.
replies = st.lists(st.lists(st.sampled_from(CALLS), max_size=3), max_size=2)
busy_replies = st.lists(st.lists(st.sampled_from(CALLS), min_size=1, max_size=3), min_size=1, max_size=2)
versions = st.sampled_from(["shown", "none", "stale"])


class Died(BaseException):
    """Stands for SIGKILL: nothing after it is written."""


class World:
    """What is outside the database and outlives every crash: what tools did, what was sent, who there is."""

    def __init__(self):
        self.effects = []
        self.replies = deque()
        self.sent = set()
        self.users = {
            "owner": make_user("owner", permissions=(DECIDE,)),
            "stranger": make_user("stranger"),
            **{name: make_user(name, permissions=(DECIDE,)) for name in REVIEWERS},
        }
        self.examples = self.rules = self.deaths = 0
        self.seen = Counter()
        self.other = ThreadPoolExecutor(1, "other-connection")

    def reply(self, request):
        try:
            wanted = self.replies.popleft()
        except IndexError:
            return text("answered")
        return calls(*wanted) if wanted else text("")

    def elsewhere(self, function):
        """Do something over the second connection, and wait for it."""
        return self.other.submit(function).result(SECONDS)

    def at_once(self, one, another):
        """Start two things at the same moment, each over a connection of its own; return how each ended."""
        gate = threading.Barrier(2, timeout=SECONDS)

        def started_together(function):
            gate.wait()
            return outcome_of(function)

        later = self.other.submit(started_together, another)
        return started_together(one), later.result(SECONDS)

    def close(self):
        self.elsewhere(connections.close_all)
        self.other.shutdown()


def outcome_of(function):
    """Return what a function returns, or the refusal it raises; anything else is a failure of the test."""
    try:
        return function()
    except AgentError as refusal:
        return refusal


class Plan(threading.local):
    """What happens to the worker of this thread at its n-th commit."""

    def __init__(self):
        self.clear()

    def clear(self):
        self.trouble, self.at, self.count, self.act = "none", 0, 0, None

    def arrives(self, *troubles):
        return self.count == self.at and self.trouble in troubles


plan = Plan()


def instrumented(writing):
    """Wrap a function through which changes of a session go: these are the points where a worker dies."""

    @contextmanager
    def wrapped(session):
        plan.count += 1
        if plan.arrives("meddle"):
            plan.act()
        with writing(session) as journal:
            yield journal
            if plan.arrives("die before"):
                raise Died
        if plan.arrives("die after"):
            raise Died

    return wrapped


@pytest.fixture
def world(transactional_db, monkeypatch):  # noqa: C901 - the patches share one world
    world = World()

    def happened(ctx):
        return any(call_id == ctx.call_id for call_id, _, _ in world.effects)

    def effect(ctx, name, **arguments):
        world.effects.append((ctx.call_id, name, arguments))
        return {"done": name}

    @agent(name="machine", model="scripted:x", max_steps=6, tools=(ask_user,))
    class Machine:
        @tool(description="free and harmless", idempotent=True)
        def lookup(self, q: str) -> str:
            if q == "nothing":
                raise ToolError("There is nothing.")
            return q

        @tool(description="needs one person", requires_approval=True)
        def pay(self, amount: int, ctx: ToolContext) -> dict:
            return effect(ctx, "pay", amount=amount)

        @tool(description="needs one person, may be repeated", requires_approval=True, idempotent=True)
        def refund(self, amount: int, ctx: ToolContext) -> dict:
            return effect(ctx, "refund", amount=amount)

        @tool(
            description="needs two people, and in time",
            requires_approval=True,
            approval=ApprovalPolicy(votes=2, on_expiry="fail"),
        )
        def wire(self, amount: int, ctx: ToolContext) -> dict:
            return effect(ctx, "wire", amount=amount)

        @tool(description="free, must not be repeated")
        def charge(self, amount: int, ctx: ToolContext) -> dict:
            return effect(ctx, "charge", amount=amount)

        @tool(description="free, must not be repeated, and nobody is asked", on_unknown="tell")
        def note(self, amount: int, ctx: ToolContext) -> dict:
            return effect(ctx, "note", amount=amount)

        @tool(description="free, must not be repeated, and knows whether it happened")
        def book(self, amount: int, ctx: ToolContext) -> dict:
            return effect(ctx, "book", amount=amount)

        @book.verify
        def _(self, ctx: ToolContext) -> bool:
            return happened(ctx)

    for name in ("writing", "in_one_go"):
        monkeypatch.setattr(log, name, instrumented(getattr(log, name)))
    # How a message travels is proved elsewhere; here it counts that each turn is sent.
    monkeypatch.setattr(dispatch, "_send", world.sent.add)
    with ScriptedProvider(world.reply).installed() as world.provider:
        yield world
    world.close()
    testing_clock.reset()
    registry.unregister("machine")


class Everything(RuleBasedStateMachine):
    """No rule has a precondition, and none draws by what it finds: a race that ends otherwise draws the same."""

    world: World

    def __init__(self):
        super().__init__()
        world = self.world
        world.examples += 1
        world.effects.clear()
        world.sent.clear()
        world.provider.requests.clear()
        self.owner = world.users["owner"]
        self.sessions = [make_session("machine", user=self.owner) for _ in range(2)]
        self.keys = {}  # (session, key) -> (message, execution_id)
        self.votes = defaultdict(list)  # approval -> [(version, who, verdict, digest of the arguments)]
        self.ends = {}  # execution_id -> how it ended, and what its tools had done by then
        self.answers = {}  # question -> the answer that was taken
        self.looked_at = {}  # session -> what told that it changed, with the head of its log
        self.tools = registry.find("machine").tools
        self.prints = {name: self.tools[name].fingerprint for name in ("pay", "charge")}

    # Users

    @rule(session=numbers, key=st.sampled_from([None, "one", "two"]), message=st.sampled_from(["hello", "again"]))
    def enqueue(self, session, key, message):
        session = self._session(session)
        expected = self._expected_enqueue(session, key, message)
        got = outcome_of(lambda: self._enqueue(session, key, message))
        self._take_enqueued(session, key, message, got)
        if isinstance(expected, type):
            assert isinstance(got, expected), (expected, got)
        else:
            assert (got.duplicate, str(got.turn.execution_id)) == (
                (True, expected) if expected else (False, str(got.turn.execution_id))
            )

    @rule(session=numbers, key=st.sampled_from([None, "one", "two"]), same=st.booleans())
    def enqueue_twice_at_once(self, session, key, same):
        session = self._session(session)
        other_key = key if same else "three"
        both = self.world.at_once(
            lambda: self._enqueue(session, key, "hello"), lambda: self._enqueue(session, other_key, "hello")
        )
        for used, got in zip((key, other_key), both, strict=True):
            self._take_enqueued(session, used, "hello", got)
        stored = [got for got in both if not isinstance(got, AgentError)]
        assert sum(not got.duplicate for got in stored) <= 1, both
        if same and key is not None and stored:
            assert len({got.turn.pk for got in stored}) == 1
            assert len(stored) == 2, both

    @rule(session=numbers)
    def cancel(self, session):
        session = self._session(session)
        turn = self._active(session)
        got = outcome_of(lambda: runtime.cancel(session.session_id))
        if turn is None:
            assert isinstance(got, Conflict), got
        elif turn.state in WORKING:
            assert got.state == TurnState.CANCELLING, got
        else:
            assert got.state == TurnState.CANCELLED, got

    @rule(session=numbers, again=st.booleans())
    def archive(self, session, again):
        session = self._session(session)
        busy = self._active(session) is not None
        got = outcome_of(lambda: runtime.archive(session.session_id))
        assert isinstance(got, Conflict) if busy else got.status == SessionStatus.ARCHIVED, got
        if not busy and again:
            # Life goes on in a new session.
            self.sessions.append(make_session("machine", user=self.owner))

    @rule(session=numbers)
    def archive_and_enqueue_at_once(self, session):
        session = self._session(session)
        idle = self._active(session) is None
        archived, enqueued = self.world.at_once(
            lambda: runtime.archive(session.session_id), lambda: self._enqueue(session, None, "hello")
        )
        self._take_enqueued(session, None, "hello", enqueued)
        refused = [got for got in (archived, enqueued) if isinstance(got, Conflict)]
        assert len(refused) == 1 or not idle, (archived, enqueued)
        self.sessions.append(make_session("machine", user=self.owner))

    @rule(which=numbers, answer=st.sampled_from(["one", "two"]))
    def answer(self, which, answer):
        question = self._question(which)
        if question is not None:
            self._take_answer(question, answer, outcome_of(lambda: self._answer(question, answer)))

    @rule(which=numbers, same=st.booleans())
    def answer_twice_at_once(self, which, same):
        question = self._question(which)
        if question is None:
            return
        other = "one" if same else "two"
        both = self.world.at_once(
            lambda: self._answer(question, "one", key="k"), lambda: self._answer(question, other, key="k")
        )
        taken = [got for got in both if not isinstance(got, AgentError)]
        assert len(taken) == (2 if same else 1), both
        assert sum(not got.duplicate for got in taken) == 1, both
        question.refresh_from_db()
        self.answers[question.pk] = question.answer

    @rule(which=numbers)
    def answer_and_cancel_at_once(self, which):
        question = self._question(which)
        if question is None:
            return
        answered, cancelled = self.world.at_once(
            lambda: self._answer(question, "one"), lambda: runtime.cancel(question.turn.session.session_id)
        )
        if not isinstance(answered, Conflict):
            self.answers[question.pk] = "one"
        assert cancelled.state == TurnState.CANCELLED, (answered, cancelled)

    # Workers

    @rule(turn=numbers, replies=replies)
    def work(self, turn, replies):
        self._work(self._queued(turn), replies, "none", 0)

    @rule(turn=numbers, replies=busy_replies, trouble=st.sampled_from(["die before", "die after"]), at=commits)
    def work_and_die(self, turn, replies, trouble, at):
        self._work(self._queued(turn), replies, trouble, at)

    @rule(
        turn=numbers,
        replies=busy_replies,
        meddling=st.sampled_from(["cancel", "usurp", "usurp and work", "shut down", "archive and enqueue", "renew"]),
        at=commits,
    )
    def work_while_somebody_meddles(self, turn, replies, meddling, at):
        turn = self._queued(turn)
        if turn is None:
            return
        act = getattr(self, "_" + meddling.replace(" ", "_"))
        self._work(turn, replies, "meddle", at, act=lambda: self.world.elsewhere(lambda: act(turn)))
        draining.stop()

    @rule(turn=numbers, replies=replies)
    def two_workers_at_once(self, turn, replies):
        turn = self._queued(turn)
        if turn is None:
            return
        self.world.replies = deque(replies)
        both = self.world.at_once(lambda: loop.run(turn.execution_id), lambda: loop.run(turn.execution_id))
        # The second may also find the turn queued again: a request that a person decided meanwhile there is not.
        assert sorted(both) == [False, True], both

    @rule(turn=numbers, replies=replies)
    def work_and_cancel_at_once(self, turn, replies):
        turn = self._queued(turn)
        if turn is None:
            return
        self.world.replies = deque(replies)
        worked, cancelled = self.world.at_once(
            lambda: loop.run(turn.execution_id), lambda: runtime.cancel(turn.session.session_id)
        )
        turn.refresh_from_db()
        if isinstance(cancelled, Conflict):
            assert turn.state in TERMINAL
        else:
            assert turn.state == TurnState.CANCELLED, (worked, turn.state)

    @rule(turn=numbers, replies=replies)
    def work_and_shut_down_at_once(self, turn, replies):
        turn = self._queued(turn)
        if turn is None:
            return
        self.world.replies = deque(replies)
        self.world.at_once(lambda: loop.run(turn.execution_id), lambda: runtime.shutdown(timeout=SECONDS))
        assert loop.run(turn.execution_id) is False
        draining.stop()
        turn.refresh_from_db()
        assert turn.state not in WORKING

    # Time

    @rule()
    def leases_run_out(self):
        testing_clock.advance(LEASE_OVER)
        left = {turn.pk: turn for turn in self._turns() if turn.state in WORKING}
        assert runtime.recover()["taken_over"] == len(left)
        self._check_taken_over(left)

    @rule()
    def two_sweeps_at_once(self):
        testing_clock.advance(LEASE_OVER)
        left = {turn.pk: turn for turn in self._turns() if turn.state in WORKING}
        both = self.world.at_once(runtime.recover, runtime.recover)
        assert sum(done["taken_over"] for done in both) == len(left)
        self._check_taken_over(left)

    @rule()
    def sweep(self):
        """Nothing has run out: nothing is taken from anybody."""
        over = {turn.pk for turn in self._turns() if turn.state in WORKING and turn.lease_expires_at < clock.now()}
        assert runtime.recover()["taken_over"] == len(over)

    @rule(swept=st.booleans())
    def approvals_expire(self, swept):
        testing_clock.advance(APPROVAL_OVER)
        if swept:
            due = [item for item in self._approvals() if item.status == "pending" and item.expires_at is not None]
            expired = ending.expire_due()
            # A request whose policy fails the turn takes the others with it.
            assert (expired > 0) == bool(due)
            assert expired <= len(due)

    # Reviewers

    @rule(
        which=numbers,
        who=st.sampled_from([*REVIEWERS, *REVIEWERS, "owner", "stranger"]),
        verdict=st.sampled_from(["approve", "approve", "edit", "reject", "respond"]),
        version=versions,
        decided=st.booleans(),
    )
    def decide(self, which, who, verdict, version, decided):
        approval = self._approval(which, decided=decided)
        if approval is None:
            return
        shown = {"shown": approval.version, "none": None, "stale": approval.version + 1}[version]
        edit = {"amount": approval.arguments["amount"] + 10} if verdict == "edit" else None
        verdict = "approve" if verdict == "edit" else verdict
        expected = self._expected_decision(approval, who, verdict, shown, edit=edit)
        repeated = self._has_voted(approval, who, verdict, arguments=edit)
        got = outcome_of(lambda: self._decide(approval, who, verdict, version=shown, arguments=edit))
        if expected is not None:
            assert isinstance(got, expected), (expected, got)
            return
        assert not isinstance(got, AgentError), got
        if not repeated:
            self._take_vote(got, who, verdict, approval.arguments if edit is None else edit)

    @rule(which=numbers, verdicts=st.tuples(*[st.sampled_from(["approve", "reject", "respond"])] * 2))
    def two_reviewers_at_once(self, which, verdicts):
        approval = self._approval(which)
        voices = list(zip(REVIEWERS, verdicts, strict=True))
        if approval is None or any(self._expected(approval, who, verdict) for who, verdict in voices):
            return
        if any(self._has_voted(approval, who) for who in REVIEWERS):  # saying it again is no second vote: see decide
            return
        both = self.world.at_once(
            lambda: self._decide(approval, "anna", verdicts[0], version=approval.version),
            lambda: self._decide(approval, "ben", verdicts[1], version=approval.version),
        )
        counted = [name for name, got in zip(REVIEWERS, both, strict=True) if not isinstance(got, AgentError)]
        for who, verdict, got in zip(REVIEWERS, verdicts, both, strict=True):
            assert isinstance(got, ToolApproval | Conflict), got
            if who in counted:
                self._note_vote(approval.pk, approval.version, who, verdict, approval.arguments)
        both_may_count = approval.votes_needed == 2 and "approve" in verdicts
        assert len(counted) in ((1, 2) if both_may_count else (1,)), both
        approval.refresh_from_db()
        assert approval.status != "pending"

    @rule(which=numbers, who=reviewers, verdict=st.sampled_from(["approve", "reject", "respond"]))
    def decide_and_cancel_at_once(self, which, who, verdict):
        approval = self._approval(which)
        if approval is None or self._expected(approval, who, verdict):
            return
        decided, cancelled = self.world.at_once(
            lambda: self._decide(approval, who, verdict, version=approval.version),
            lambda: runtime.cancel(approval.session.session_id),
        )
        assert isinstance(decided, ToolApproval | Conflict), decided
        if isinstance(decided, ToolApproval):
            self._note_vote(approval.pk, approval.version, who, verdict, approval.arguments)
        approval.turn.refresh_from_db()
        if isinstance(cancelled, Conflict):
            # A rejected outcome ended it first.
            assert (approval.turn.state, approval.kind, verdict) == ("failed", "outcome", "reject")
        else:
            assert approval.turn.state == TurnState.CANCELLED

    @rule(which=numbers, who=reviewers)
    def approve_and_expire_at_once(self, which, who):
        approval = self._approval(which)
        testing_clock.advance(APPROVAL_OVER)
        if approval is None or self._has_voted(approval, who, "approve"):
            return
        expected = self._expected(approval, who, "approve")
        approved, _ = self.world.at_once(
            lambda: self._decide(approval, who, "approve", version=approval.version), ending.expire_due
        )
        approval.refresh_from_db()
        if approval.expires_at is None:
            if isinstance(approved, ToolApproval):
                assert expected is None
                self._note_vote(approval.pk, approval.version, who, "approve", approval.arguments)
            elif expected is None:
                # A request beside it expired first, and the turn with it.
                turn = approval.turn
                assert (approval.status, turn.state, turn.error["code"]) == ("cancelled", "failed", "approval_expired")
        else:
            assert isinstance(approved, Conflict), approved
            assert approval.status in ("expired", "cancelled")

    @rule(name=st.sampled_from(["pay", "charge"]))
    def deploy_a_changed_tool(self, name):
        """Its meaning changes: what was allowed of the old one is asked about again."""
        flipped = self.prints[name][::-1]
        now = self.tools[name].fingerprint
        self.tools[name].__dict__["fingerprint"] = flipped if now == self.prints[name] else self.prints[name]

    # What must hold

    @invariant()
    def everything_holds(self):
        self.world.rules += 1
        self.world.provider.assert_valid()
        self._check_sessions()
        calls = list(ToolCall.objects.prefetch_related("approvals"))
        self._check_effects({call.call_id: call for call in calls})
        self._check_ends({call.call_id: call.turn_id for call in calls})
        assert dict(UserQuestion.objects.exclude(answer=None).values_list("pk", "answer")) == self.answers

    def teardown(self):
        try:
            if sys.exc_info()[0] is None:
                self._bring_to_an_end()
        finally:
            draining.stop()
            plan.clear()
            for name, value in self.prints.items():
                self.tools[name].__dict__["fingerprint"] = value
            testing_clock.reset()
            self._count()
            _empty()

    def _bring_to_an_end(self):
        """Nothing is lost: with workers and reviewers at work, each turn ends."""
        for _ in range(40):
            testing_clock.advance(2 * 3_600)
            self.world.sent.clear()
            runtime.recover()
            queued = [turn for turn in self._turns() if turn.state == TurnState.QUEUED]
            assert {str(turn.execution_id) for turn in queued} <= self.world.sent
            for turn in queued:
                self.world.replies.clear()
                loop.run(turn.execution_id)
            for approval in self._approvals():
                if approval.status == "pending":
                    who = next(name for name in REVIEWERS if not self._has_voted(approval, name))
                    got = outcome_of(lambda item=approval, who=who: self._decide(item, who, "approve"))
                    if isinstance(got, ToolApproval):
                        self._take_vote(got, who, "approve", approval.arguments)
            for question in self._open_questions():
                self._take_answer(question, "last", outcome_of(lambda item=question: self._answer(item, "last")))
            self.everything_holds()
            if all(turn.state in TERMINAL for turn in self._turns()):
                return
        raise AssertionError(f"turns that never end: {[turn.state for turn in self._turns()]}")

    def _count(self):
        seen = self.world.seen
        seen.update(f"turn {state}" for state in AgentContext.objects.values_list("state", flat=True))
        seen.update(f"{kind} {status}" for kind, status in ToolApproval.objects.values_list("kind", "status"))
        seen.update(f"question {'open' if answer is None else 'answered'}" for answer in _answers())
        seen.update(f"tool {name}" for _, name, _ in self.world.effects)

    def _check_sessions(self):
        """Ask the product's invariants of each session that changed, and that its log only grew."""
        decided = dict(ApprovalDecision.objects.order_by().values_list("approval__session").annotate(Count("pk")))
        for session in AgentSession.objects.select_related("revision"):
            mark = (session.last_sequence, session.last_hash, session.status, decided.get(session.pk))
            before = self.looked_at.get(session.pk)
            if before == mark:
                continue
            found = list(invariants.problems(session))
            assert not found, "\n".join(found)
            if before is not None:
                assert SessionEvent.objects.get(session=session, sequence=before[0]).hash == before[1]
            self.looked_at[session.pk] = mark

    def _check_effects(self, rows):
        """Compare what tools did with what people said, as this file remembers it."""
        done = Counter(call_id for call_id, _, _ in self.world.effects)
        for call_id, name, arguments in self.world.effects:
            assert call_id in rows, "a tool ran whose call is not stored"
            call, digest = rows[call_id], canonical.digest(arguments)
            assert done[call_id] <= call.attempts, (call_id, name)
            asked = [item for item in call.approvals.all() if item.kind == "call"]
            repeats = sum(self._said(item, "approve") for item in call.approvals.all() if item.kind == "outcome")
            if name != "refund":
                assert done[call_id] <= 1 + repeats, f"{name} happened {done[call_id]} times"
            if name in ("note", "book"):
                assert done[call_id] == 1, f"{name} happened {done[call_id]} times"
            if name in VOTES:
                assert any(self._said(item, "approve", digest) >= VOTES[name] for item in asked), (
                    f"{name} ran with {arguments}, which nobody approved"
                )

    def _check_ends(self, turn_of):
        finals = Counter(SessionEvent.objects.filter(type__in=FINAL).values_list("turn_id", flat=True))
        done = Counter(turn_of[call_id] for call_id, _, _ in self.world.effects)
        places = Counter()
        for turn in AgentContext.objects.all():
            assert finals[turn.execution_id] == (turn.state in TERMINAL)
            if turn.state not in TERMINAL:
                assert turn.pk not in self.ends, f"it was {self.ends[turn.pk]} and is {turn.state}"
                places[turn.session_id] += 1
                assert places[turn.session_id] == 1, "two turns are active"
                continue
            code = turn.error["code"] if turn.error else None
            end = (turn.state, turn.response, code, done[turn.pk])
            assert self.ends.setdefault(turn.pk, end) == end
            assert (code is None) == (turn.state == TurnState.COMPLETED)
            assert code is None or code in ERRORS, turn.error
            if turn.state == TurnState.INTERRUPTED:
                assert turn.takeovers == agentcore_settings.MAX_ATTEMPTS - 1

    def _check_taken_over(self, left):
        for turn in AgentContext.objects.filter(pk__in=left):
            before = left[turn.pk]
            if before.state == TurnState.CANCELLING:
                assert turn.state == TurnState.CANCELLED
            elif before.takeovers + 1 >= agentcore_settings.MAX_ATTEMPTS:
                assert turn.state == TurnState.INTERRUPTED
            else:
                assert (turn.state, turn.takeovers) == (TurnState.QUEUED, before.takeovers + 1)
                assert str(turn.execution_id) in self.world.sent

    # Doing

    def _enqueue(self, session, key, message):
        return runtime.enqueue(session.session_id, message, idempotency_key=key, user=self.owner)

    def _take_enqueued(self, session, key, message, got):
        if not isinstance(got, AgentError):
            assert str(got.turn.execution_id) in self.world.sent
            if key is not None:
                stored = self.keys.setdefault((session.pk, key), (message, str(got.turn.execution_id)))
                assert stored == (message, str(got.turn.execution_id))

    def _expected_enqueue(self, session, key, message):
        """Return the execution_id of a duplicate, Conflict, or None for a new turn."""
        known = self.keys.get((session.pk, key))
        if known is not None:
            return known[1] if known[0] == message else Conflict
        session.refresh_from_db()
        return Conflict if session.status == SessionStatus.ARCHIVED or self._active(session) else None

    def _work(self, turn, replies, trouble, at, *, act=None):
        if turn is None:
            return
        plan.clear()
        plan.trouble, plan.at, plan.act = trouble, at, act
        self.world.replies = deque(replies)
        try:
            loop.run(turn.execution_id)
        except Died:
            self.world.deaths += 1
        else:
            turn.refresh_from_db()
            assert turn.state in TERMINAL | WAITING | {TurnState.QUEUED} or act is not None, turn.state
        finally:
            plan.clear()

    def _answer(self, question, answer, *, key=None):
        return runtime.answer(question.turn.execution_id, answer, idempotency_key=key and f"{key}{question.pk}")

    def _take_answer(self, question, answer, got):
        assert got.turn.state == TurnState.QUEUED, got
        assert str(got.turn.execution_id) in self.world.sent
        self.answers[question.pk] = answer

    def _decide(self, approval, who, verdict, *, version=None, arguments=None):
        by = self.world.users[who]
        if verdict == "approve":
            return decisions.approve(approval.pk, by, arguments=arguments, version=version)
        if verdict == "reject":
            return decisions.reject(approval.pk, by, reason="no", version=version)
        return decisions.respond(approval.pk, by, {"by": who}, version=version)

    def _take_vote(self, got, who, verdict, arguments):
        self._note_vote(got.pk, got.version, who, verdict, arguments)
        votes = [vote for vote in self.votes[got.pk] if vote[0] == got.version]
        enough = verdict != "approve" or len(votes) >= got.votes_needed
        assert got.status == (STATUS_OF[verdict] if enough else "pending")
        if got.status == "approved":
            assert canonical.digest(got.approved_arguments) == canonical.digest(arguments)

    def _note_vote(self, approval_pk, version, who, verdict, arguments):
        self.votes[approval_pk].append((version, who, verdict, canonical.digest(arguments)))

    def _said(self, approval, verdict, digest=None):
        """Return how many people gave a verdict, on these arguments."""
        votes = self.votes[approval.pk]
        return len({who for _, who, said, on in votes if said == verdict and digest in (None, on)})

    def _has_voted(self, approval, who, *verdicts, arguments=None):
        """Say whether somebody gave a verdict on the present version, with these arguments if some are given."""
        return any(
            version == approval.version
            and voter == who
            and (not verdicts or verdict in verdicts)
            and (arguments is None or digest == canonical.digest(arguments))
            for version, voter, verdict, digest in self.votes[approval.pk]
        )

    def _expected(self, approval, who, verdict):
        return self._expected_decision(approval, who, verdict, approval.version)

    def _expected_decision(self, approval, who, verdict, version, *, edit=None):
        """Return the refusal that a decision meets, or None."""
        if who not in REVIEWERS:
            return PermissionDenied
        repeated = self._has_voted(approval, who, verdict, arguments=edit)
        # Who says yes or no to what an older page shows says something else; an answer or an edit is all they say.
        is_stale = version not in (None, approval.version)
        says_the_same = edit is not None or verdict == "respond" or not is_stale
        if repeated and says_the_same and approval.status in ("pending", STATUS_OF[verdict]):
            return None
        is_new_edit = edit is not None and canonical.digest(edit) != approval.arguments_digest
        changed = verdict == "approve" and self.tools[approval.tool].fingerprint != approval.fingerprint
        over = approval.expires_at is not None and approval.expires_at <= clock.now()
        refused = (
            approval.status != "pending"
            or is_stale
            or (self._has_voted(approval, who) and not is_new_edit)
            or over
            or changed
            or (edit is not None and approval.kind == "outcome")
        )
        return Conflict if refused else None

    # Meddling, over the other connection, between two commits of a worker

    def _cancel(self, turn):
        outcome_of(lambda: runtime.cancel(turn.session.session_id))

    def _usurp(self, turn):
        testing_clock.advance(LEASE_OVER)
        runtime.recover()

    def _usurp_and_work(self, turn):
        self._usurp(turn)
        loop.run(turn.execution_id)

    def _shut_down(self, turn):
        runtime.shutdown(timeout=0)

    def _archive_and_enqueue(self, turn):
        assert isinstance(outcome_of(lambda: self._enqueue(turn.session, None, "more")), Conflict)
        assert isinstance(outcome_of(lambda: runtime.archive(turn.session.session_id)), Conflict)

    def _renew(self, turn):
        abandoned = len(self._abandoned())
        assert runtime.recover()["taken_over"] == abandoned

    # Finding

    def _session(self, number):
        return self.sessions[-1 - number % 2]

    def _turns(self):
        return list(AgentContext.objects.select_related("session").order_by("pk"))

    def _abandoned(self):
        return [turn for turn in self._turns() if turn.state in WORKING and turn.lease_expires_at < clock.now()]

    def _active(self, session):
        return AgentContext.objects.filter(active_session=session).first()

    def _queued(self, number):
        """Return a queued turn; make one where a session is free, so that few rules do nothing."""
        queued = [turn for turn in self._turns() if turn.state == TurnState.QUEUED]
        if queued:
            return queued[number % len(queued)]
        session = self._session(number)
        got = outcome_of(lambda: self._enqueue(session, None, "hello"))
        return None if isinstance(got, AgentError) else got.turn

    def _open_questions(self):
        waiting = UserQuestion.objects.filter(turn__state=TurnState.WAITING_FOR_INPUT, answered_at=None)
        return list(waiting.select_related("turn__session").order_by("pk"))

    def _question(self, number):
        """Return a question; have one asked where a session is free."""
        if not self._open_questions():
            self._work(self._queued(number), [[("ask_user", {"question": "Which?"})]], "none", 0)
        found = self._open_questions()
        return found[number % len(found)] if found else None

    def _approvals(self):
        return list(ToolApproval.objects.select_related("turn", "session", "call").order_by("pk"))

    def _approval(self, number, *, decided=False):
        """Return a request; have one made where a session is free."""
        found = [item for item in self._approvals() if decided or item.status == "pending"]
        if not found:
            self._work(self._queued(number), [[GATED[number % len(GATED)]]], "none", 0)
            found = [item for item in self._approvals() if item.status == "pending"]
        return found[number % len(found)] if found else None


def _answers():
    return UserQuestion.objects.values_list("answer", flat=True)


def _empty():
    for model in (
        SessionEvent,
        ApprovalDecision,
        ToolApproval,
        UserQuestion,
        ToolCall,
        AgentStep,
        ContextEntry,
        AgentContext,
        AgentSession,
    ):
        rows = model.objects.all()
        rows._raw_delete(rows.db)


def explore(world, machine=Everything, **options):
    """Run the machine on a world and print what it took."""
    machine.world = world
    began = time.monotonic()
    try:
        run_state_machine_as_test(
            machine,
            settings=settings(
                database=None,
                deadline=None,
                stateful_step_count=25,
                print_blob=True,
                report_multiple_bugs=False,
                phases=[Phase.generate] if os.environ.get("NOSHRINK") else [Phase.generate, Phase.shrink],
                suppress_health_check=list(HealthCheck),
                **options,
            ),
        )
    finally:
        seconds = time.monotonic() - began
        print(f"{world.examples} examples, {world.rules} rules, {world.deaths} crashes, {seconds:.0f} s")
        print(", ".join(f"{name}: {count}" for name, count in sorted(world.seen.items())))


@pytest.mark.timeout(300)
def test_a_sample_of_everything(world):
    explore(world, max_examples=25, derandomize=True)
    assert world.examples >= 25


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_everything(world, capsys):
    examples = int(os.environ.get("AGENTCORE_EXAMPLES", "2000"))
    number = int(os.environ.get("AGENTCORE_SEED", random.SystemRandom().randrange(2**32)))
    with capsys.disabled():
        print(f"\nAGENTCORE_SEED={number} AGENTCORE_EXAMPLES={examples}")
        explore(world, seed(number)(type("Everything", (Everything,), {})), max_examples=examples)
