"""Worker processes die by SIGKILL, or are stopped for longer than their lease, at every point of a turn's life.

The points are found by running: each commit of each process that touches the turn (before it and after it), each
call of the model, and each effect of a tool. After every death the people and processes of a real site go on: the
client sends again, the sweep comes by, a reviewer looks at the ledger and decides.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agentcore import TurnState, clock, runtime
from agentcore.agents.registry import registry
from agentcore.approvals import invariants
from agentcore.events.kinds import FINAL
from agentcore.models import AgentContext, AgentSession, SessionEvent, ToolApproval, ToolCall
from agentcore.states import TERMINAL, WORKING, CallStatus
from agentcore.testing import make_user
from tests.concurrency import crash_worker
from tests.concurrency.crash_worker import AGENT, ANSWER
from tests.concurrency.harness import Farm, Process, snapshot, wait_until
from tests.redis_database import own_redis_database

pytestmark = pytest.mark.django_db(transaction=True)

SCRIPTS = ("one reply", "three replies")
DECIDE = "agentcore.decide_toolapproval"
SHARE = 4
HOT_SHARE = 9
PAIRS = 25
MOST_ROUNDS = 30
SHORT_LEASE = 1.0
# A stop says where it was stopped; what is inside a transaction holds the session's lock and stops the sweep too.
OUTSIDE_A_TRANSACTION = ("after", "the model")


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    crash_worker.define_agent()
    farm = Farm(tmp_path)
    yield farm
    farm.close()
    registry.unregister(AGENT)


@pytest.fixture
def people() -> People:
    return People(owner=make_user("owner").pk, reviewer=make_user("reviewer", permissions=(DECIDE,)).pk)


class People(NamedTuple):
    owner: int
    reviewer: int


class Point(NamedTuple):
    """A place to die: the n-th process of a story, at its n-th point."""

    process: int
    at: int
    label: str


class Story:
    """One turn from its message to its end, with deaths on the way.

    `deaths` says at which point the n-th process dies. Nobody in the story knows: they do what people and
    processes do when something did not answer.
    """

    def __init__(
        self,
        farm: Farm,
        people: People,
        script: str,
        deaths: tuple[Point, ...] = (),
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.farm, self.people, self.script, self.settings = farm, people, script, settings or {}
        self.deaths = {death.process: death for death in deaths}
        self.session = runtime.create_session(AGENT)
        self.processes: list[tuple[str, list[str]]] = []
        self.lost_replies = 0
        self.doubts: set[tuple[int, int]] = set()
        self.takeovers: set[int] = set()

    @property
    def points(self) -> list[Point]:
        """Where this story could have ended early."""
        return [
            Point(number, at, f"{job}: {label}")
            for number, (job, trace) in enumerate(self.processes)
            for at, label in enumerate(trace)
        ]

    def tell(self) -> Story:
        while not self._do("enqueue", session_id=self.session.session_id, message=self.script, key="k", user=None):
            pass
        is_sent = not self.deaths_so_far
        for _ in range(MOST_ROUNDS):
            turn = self._turn()
            if turn.state in TERMINAL:
                return self
            is_sent = self._go_on(turn) if is_sent else self._sweep()
        raise AssertionError(f"the turn is still {self._turn().state}")

    @property
    def deaths_so_far(self) -> int:
        return sum(number < len(self.processes) for number in self.deaths)

    def _go_on(self, turn: AgentContext) -> bool:
        """Let the next one act; say whether nothing died: only then a message is on its way."""
        if turn.state == TurnState.QUEUED:
            return self._do("work", execution_id=str(turn.execution_id)) is not None
        assert turn.state == TurnState.WAITING_FOR_APPROVAL, f"nobody works on it, and it is {turn.state}"
        decided = [self._decide(approval) for approval in ToolApproval.objects.pending().filter(turn=turn)]
        return all(decided)

    def _decide(self, approval: ToolApproval) -> bool:
        """Decide as a careful person: look at the ledger before saying how a call in doubt ended."""
        chosen: dict[str, Any] = {"verdict": "approve"}
        if approval.kind == "outcome" and self._effects(approval.call.call_id):
            chosen = {"verdict": "respond", "result": {"seen": "in the ledger"}}
        lived = True
        while self._do("decide", approval=approval.pk, by=self.people.reviewer, **chosen) is None:
            lived = False
        return lived

    def _sweep(self) -> bool:
        """Let so much time pass that every lease is over; say whether the turn is on its way again."""
        past = clock.now() - timedelta(hours=1)
        AgentContext.objects.exclude(lease_expires_at=None).update(lease_expires_at=past)
        AgentContext.objects.exclude(next_dispatch_at=None).update(next_dispatch_at=past)
        counts = self._do("sweep")
        if counts is None:
            return False
        turn = self._turn()
        assert turn.state not in WORKING
        if turn.state == TurnState.QUEUED:
            assert counts["taken_over"] + counts["sent_again"] == 1, f"nobody is asked to run it: {counts}"
        return True

    def _do(self, job: str, **arguments: Any) -> dict[str, Any] | None:
        """Let a process do a job; return what it returned, or None when it died."""
        number = len(self.processes)
        death = self.deaths.get(number)
        options: dict[str, Any] = {"settings": self.settings} | ({} if death is None else {"at": death.at})
        process = self.farm.start(job, options=options, **arguments).wait()
        trace = process.trace
        self.processes.append((job, trace))
        if death is None:
            return process.result
        assert process.ended == -signal.SIGKILL, process.log
        assert f"{job}: {trace[-1]}" == death.label
        self._look_at_the_dead()
        return None

    def _look_at_the_dead(self) -> None:
        """Note what the dead process had begun, which is what the next ones have to make good."""
        turn = AgentContext.objects.filter(session=self.session).first()
        if turn is None:
            return
        self.lost_replies = len(self._lines("model")) - turn.step_count
        if turn.state in WORKING:
            self.takeovers.add(turn.lease_token)
            begun = ToolCall.objects.filter(turn=turn, status=CallStatus.EXECUTING, idempotent=False)
            self.doubts.update(begun.values_list("pk", "attempts"))

    def _turn(self) -> AgentContext:
        return AgentContext.objects.get(session=self.session)

    def _effects(self, call_id: str) -> int:
        return sum(line["key"] == call_id for line in self.farm.ledger.read())

    def _lines(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.farm.ledger.read() if line["kind"] == kind]

    def check(self) -> None:
        """Assert that it ended as the contract says, with every effect exactly once."""
        turn = self._turn()
        assert (turn.state, turn.response, turn.error) == (TurnState.COMPLETED, ANSWER, None)
        effects = Counter(line["kind"] for line in self.farm.ledger.read())
        assert (effects["charge"], effects["pay"]) == (1, 1), effects
        assert effects["lookup"] >= 1
        assert len({line["key"] for line in self._lines("lookup")}) == 1
        # A stored reply is used again; only one that was lost on its way is asked for once more.
        assert effects["model"] == turn.step_count + self.lost_replies
        outcomes = ToolApproval.objects.filter(turn=turn, kind="outcome")
        assert outcomes.count() == len(self.doubts), "a person is asked about each begun call, and about nothing else"
        assert turn.takeovers == len(self.takeovers)
        kinds = Counter(SessionEvent.objects.filter(session=self.session).values_list("type", flat=True))
        assert sum(kinds[kind] for kind in FINAL) == 1
        assert (kinds["turn.input"], kinds["turn.running"], kinds["message"]) == (1, 1, 1)
        assert list(invariants.problems(AgentSession.objects.get(pk=self.session.pk))) == []


def tell(farm: Farm, people: People, script: str, *deaths: Point, settings: dict[str, Any] | None = None) -> Story:
    """Tell a story with a ledger of its own, and check how it ended."""
    farm.ledger.path.unlink(missing_ok=True)
    story = Story(farm, people, script, deaths, settings)
    try:
        story.tell().check()
    except BaseException as error:
        told = "\n".join(f"  {job}: {len(trace)} points" for job, trace in story.processes)
        error.add_note(f"{script!r}, died at {[tuple(death) for death in deaths]}\n{told}")
        raise
    return story


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """What a sample is drawn by: another one at each run, unless CRASH_SEED gives it."""
    return int(os.environ.get("CRASH_SEED", random.randrange(10_000)))


@pytest.mark.parametrize("script", SCRIPTS)
def test_dur_03_killed_at_a_sample_of_all_points(
    farm: Farm, people: People, script: str, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    points = tell(farm, people, script).points
    sample = points[seed % SHARE :: SHARE]
    report(capsys, f"{script}: killed at {len(sample)} of {len(points)} points, CRASH_SEED={seed}")
    for point in sample:
        tell(farm, people, script, point)


@pytest.mark.services("redis")
@pytest.mark.parametrize("backend", ["redis", "hybrid"])
def test_dur_03_killed_at_a_sample_of_all_points_with_hot_copies(
    farm: Farm, people: People, backend: str, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with own_redis_database() as url:
        hot = {"STATE_BACKEND": backend, "REDIS_URL": url}
        points = tell(farm, people, "three replies", settings=hot).points
        sample = points[seed % HOT_SHARE :: HOT_SHARE]
        report(capsys, f"{backend}: killed at {len(sample)} of {len(points)} points, CRASH_SEED={seed}")
        for point in sample:
            tell(farm, people, "three replies", point, settings=hot)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.services("redis")
@pytest.mark.parametrize("backend", ["redis", "hybrid"])
def test_dur_03_killed_at_every_point_with_hot_copies(
    farm: Farm, people: People, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with own_redis_database() as url:
        hot = {"STATE_BACKEND": backend, "REDIS_URL": url}
        points = tell(farm, people, "three replies", settings=hot).points
        for point in points:
            tell(farm, people, "three replies", point, settings=hot)
        report(capsys, f"{backend}: killed at each of {len(points)} points")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("script", SCRIPTS)
def test_dur_03_killed_at_every_point(
    farm: Farm, people: People, script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    points = tell(farm, people, script).points
    for point in points:
        tell(farm, people, script, point)
    report(capsys, f"{script}: killed at each of {len(points)} points")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("script", "effect"), [("three replies", "charge"), ("one reply", "pay")])
def test_dur_03_killed_again_at_every_point_of_the_recovery(
    farm: Farm, people: People, script: str, effect: str, capsys: pytest.CaptureFixture[str]
) -> None:
    points = tell(farm, people, script).points
    [first] = [point for point in points if point.label == f"work: after the effect of {effect}"]
    later = [point for point in tell(farm, people, script, first).points if point.process > first.process]
    for point in later:
        tell(farm, people, script, first, point)
    report(capsys, f"{script}: killed after the effect of {effect} and again at each of {len(later)} points")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_dur_03_killed_twice_anywhere(
    farm: Farm, people: People, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(seed)
    report(capsys, f"killed twice, {PAIRS} times, CRASH_SEED={seed}")
    for _ in range(PAIRS):
        script = chance.choice(SCRIPTS)
        first = chance.choice(tell(farm, people, script).points)
        later = [point for point in tell(farm, people, script, first).points if point.process > first.process]
        if later:
            tell(farm, people, script, first, chance.choice(later))


def report(capsys: pytest.CaptureFixture[str], told: str) -> None:
    with capsys.disabled():
        print(f"\n{told}")


class Stopped:
    """A worker that is stopped, another one that ends its turn meanwhile, and what was so when the first went on."""

    def __init__(self, farm: Farm, people: People, script: str, *, approved: bool = False) -> None:
        self.farm, self.people = farm, people
        farm.ledger.path.unlink(missing_ok=True)
        session = runtime.create_session(AGENT)
        made = farm.run("enqueue", session_id=session.session_id, message=script, key="k")
        self.execution_id: str = made["execution_id"]
        self.session = session
        if approved:
            farm.run("work", execution_id=self.execution_id)
            farm.run(
                "decide",
                approval=ToolApproval.objects.pending().get(turn__execution_id=self.execution_id).pk,
                by=people.reviewer,
            )

    def points(self) -> list[str]:
        """Return what its next worker passes."""
        worker = self.farm.start("work", options={}, execution_id=self.execution_id)
        worker.wait()
        return worker.trace

    def start(self, **options: Any) -> Process:
        short = {"settings": {"LEASE_SECONDS": SHORT_LEASE}}
        return self.farm.start("work", options={**short, **options}, execution_id=self.execution_id)

    def let_another_finish(self) -> None:
        """Have the turn taken over once its lease has run out, and worked to its end."""
        until = time.monotonic() + 10 * SHORT_LEASE
        while runtime.recover()["taken_over"] != 1:
            assert time.monotonic() < until, "the lease of a stopped worker does not run out"
            time.sleep(0.05)
        for _ in range(MOST_ROUNDS):
            self.farm.run("work", execution_id=self.execution_id)
            waiting = ToolApproval.objects.pending().filter(turn__execution_id=self.execution_id)
            if not waiting:
                return
            for approval in waiting:
                self._decide(approval)
        raise AssertionError("the turn does not end")

    def _decide(self, approval: ToolApproval) -> None:
        seen = any(line["key"] == approval.call.call_id for line in self.farm.ledger.read())
        if approval.kind == "outcome" and seen:
            self.farm.run("decide", approval=approval.pk, by=self.people.reviewer, verdict="respond", result="seen")
        else:
            self.farm.run("decide", approval=approval.pk, by=self.people.reviewer)

    def let_it_go_on(self, worker: Process) -> None:
        """Continue the old owner, and see that it neither writes nor calls anything."""
        rows, done = snapshot(), self.farm.ledger.read()
        worker.send(signal.SIGCONT)
        assert worker.wait().ended == 0, worker.log
        assert self.farm.ledger.read() == done, "the old owner called something"
        assert snapshot() == rows, "the old owner wrote something"
        assert "Lost ownership of a turn" in worker.log
        self._check()

    def _check(self) -> None:
        turn = AgentContext.objects.get(execution_id=self.execution_id)
        assert (turn.state, turn.response, turn.takeovers) == (TurnState.COMPLETED, ANSWER, 1)
        effects = Counter(line["kind"] for line in self.farm.ledger.read())
        assert (effects["charge"], effects["pay"]) == (1, 1), effects
        assert list(invariants.problems(AgentSession.objects.get(pk=self.session.pk))) == []


def test_dur_09_stopped_while_the_model_thinks(farm: Farm, people: People, tmp_path: Path) -> None:
    stopped = Stopped(farm, people, "one reply")
    release = tmp_path / "release"
    worker = stopped.start(hold="model", release=str(release))
    wait_until(lambda: farm.ledger.read(), what="the model is asked")
    worker.send(signal.SIGSTOP)
    worker.wait_until_stopped()
    stopped.let_another_finish()
    release.touch()
    stopped.let_it_go_on(worker)


@pytest.mark.parametrize(
    "commit",
    [
        pytest.param("claims._take", id="its-claim-and-the-first-request"),
        pytest.param("steps.record_calls", id="the-record-of-an-attempt-and-its-start"),
    ],
)
def test_dur_09_stopped_between(farm: Farm, people: People, commit: str) -> None:
    at = next(at for at, label in _stops(farm, people, "one reply") if label.endswith(commit))
    _stop_and_go_on(farm, people, "one reply", at)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("script", SCRIPTS)
def test_dur_09_stopped_at_every_point(
    farm: Farm, people: People, script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stops = [(approved, *stop) for approved in (False, True) for stop in _stops(farm, people, script, approved)]
    for approved, at, label in stops:
        try:
            _stop_and_go_on(farm, people, script, at, approved)
        except BaseException as error:
            error.add_note(f"stopped {label}, approved: {approved}")
            raise
    report(capsys, f"{script}: stopped at each of {len(stops)} points")


def _stops(farm: Farm, people: People, script: str, approved: bool = False) -> list[tuple[int, str]]:
    """Return the points of a turn's worker, before or after the approval, where it is stopped outside a transaction.

    At the last one the turn is not its own any more.
    """
    trace = Stopped(farm, people, script, approved=approved).points()
    return [(at, label) for at, label in enumerate(trace[:-1]) if label.startswith(OUTSIDE_A_TRANSACTION)]


def _stop_and_go_on(farm: Farm, people: People, script: str, at: int, approved: bool = False) -> None:
    stopped = Stopped(farm, people, script, approved=approved)
    worker = stopped.start(at=at, signal=signal.SIGSTOP)
    worker.wait_until_stopped()
    stopped.let_another_finish()
    stopped.let_it_go_on(worker)
