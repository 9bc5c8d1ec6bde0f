"""Many turns at once on PostgreSQL and Redis, while worker processes are killed: all settle, and nothing happens twice.

AGENTCORE_SOAK_TURNS     sessions that each have a turn at work, in the slow test; default 200
AGENTCORE_SOAK_SECONDS   for how long the slow test kills and posts; default 120
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from celery import Celery, _state, current_app
from django.db import connection, connections
from django.test import override_settings

from agentcore import runtime
from agentcore.exceptions import Conflict
from agentcore.models import AgentContext, ToolApproval, ToolCall
from agentcore.states import ACTIVE, TERMINAL, TurnState
from agentcore.testing import assert_invariants, make_session, make_user
from tests.concurrency import soak_worker
from tests.redis_database import own_redis_database

pytestmark = [
    pytest.mark.services("redis", "postgres"),
    pytest.mark.django_db(transaction=True),
]

REPOSITORY = Path(__file__).resolve().parents[2]
DECIDE = "agentcore.decide_toolapproval"
LEASE_SECONDS = 5
THREADS = 6
SETTLE_SECONDS = 240
# The worker reports what it cannot explain; a deadlock would be one of those.
FAULTS = re.compile(r"deadlock|Traceback|internal|could not serialize", re.IGNORECASE)


class Workers:
    """Worker processes that are killed and started again."""

    def __init__(self, number, order, folder):
        env = {
            **{name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"},
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]),
            "AGENTCORE_TEST_NAME": str(connection.settings_dict["NAME"]),
            "SOAK": json.dumps(order),
        }
        self.folder, self.started, self.killed = folder, 0, 0
        with (folder / "farm.log").open("wb") as log:
            self.farm = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "tests.concurrency.soak_worker"],
                cwd=REPOSITORY,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                bufsize=1,
            )
        self.pids = [self._start() for _ in range(number)]

    def kill_one(self):
        """Kill the worker that lives longest, and start another in its place."""
        self._kill(self.pids.pop(0))
        self.killed += 1
        self.pids.append(self._start())

    def stop(self):
        for pid in self.pids:
            self._kill(pid)
        self.pids = []
        self.farm.stdin.close()
        self.farm.stdout.close()
        self.farm.wait(30)

    @property
    def logs(self):
        return "".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    def _start(self):
        self.started += 1
        self.farm.stdin.write(f"{self.folder / f'worker-{self.started}.log'}\n")
        pid = self.farm.stdout.readline()
        assert pid, self.logs[-5000:]
        return int(pid)

    def _kill(self, pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            raise AssertionError(f"a worker ended by itself:\n{self.logs[-5000:]}") from None


class Helper(threading.Thread):
    """Does one thing again and again until it is told to stop; what it raises is raised by `stop`."""

    def __init__(self, action, *, pause):
        super().__init__(daemon=True)
        self._action, self._pause = action, pause
        self._over = threading.Event()
        self._error = None
        self.start()

    def run(self):
        try:
            while not self._over.is_set():
                self._action()
                self._over.wait(self._pause)
        except BaseException as error:
            self._error = error
        finally:
            connections.close_all()

    def check(self):
        if self._error is not None:
            raise self._error

    def stop(self):
        self._over.set()
        self.join(60)
        assert not self.is_alive(), "it hangs"
        self.check()


class Soak:
    """What people do meanwhile: post, cancel, decide. No call of theirs may meet anything but a refusal."""

    def __init__(self, turns, ledger):
        self.owner = make_user("owner")
        self.reviewers = [make_user(name, permissions=(DECIDE,)) for name in ("anna", "ben")]
        self.ledger_path = ledger
        self.sessions = [make_session(soak_worker.AGENT, user=self.owner).session_id for _ in range(turns)]
        self.said = defaultdict(list)  # call_id -> [(kind, verdict)] as reviewers remember it
        self.waits = []
        self.cancelled = self.posted = 0
        self.goes_on = True
        self._random = random.Random(1)

    def post(self):
        """Give each session without an active turn its next one."""
        busy = set(AgentContext.objects.filter(state__in=ACTIVE).values_list("session__session_id", flat=True))
        for session_id in self.sessions if self.goes_on else ():
            if session_id not in busy:
                self._timed(lambda session_id=session_id: runtime.enqueue(session_id, "go", user=self.owner))
                self.posted += 1

    def cancel_one(self):
        session_id = self._random.choice(self.sessions)
        try:
            self._timed(lambda: runtime.cancel(session_id))
        except Conflict:
            return
        self.cancelled += 1

    def decide(self):
        for approval in runtime.pending_approvals(self.reviewers[0]).select_related("call").order_by("pk")[:50]:
            self._decide(approval)

    def ledger(self):
        """Return how often each call took effect, and what it did."""
        lines = self.ledger_path.read_text().splitlines() if self.ledger_path.exists() else []
        return Counter(line.split(maxsplit=1)[0] for line in lines), dict(line.split(maxsplit=1) for line in lines)

    def _decide(self, approval):
        """Decide as a careful person does: who is asked how a call ended looks whether it happened."""
        call_id = approval.call.call_id
        if approval.kind == "outcome":
            verdict = "respond" if self.ledger()[0][call_id] else "approve"
        else:
            verdict = self._random.choice(["approve"] * 6 + ["reject", "respond"])
        self.said[call_id].append((approval.kind, verdict))
        both = [threading.Thread(target=self._say, args=(approval, by, verdict)) for by in self.reviewers]
        if self._random.random() < 0.2:
            for thread in both:
                thread.start()
            for thread in both:
                thread.join()
        else:
            self._say(approval, self.reviewers[0], verdict)

    def _say(self, approval, by, verdict):
        try:
            if verdict == "approve":
                self._timed(lambda: runtime.approve(approval.pk, by))
            elif verdict == "reject":
                self._timed(lambda: runtime.reject(approval.pk, by, reason="no"))
            else:
                self._timed(lambda: runtime.respond(approval.pk, by, {"by": by.get_username()}))
        except Conflict:
            pass  # the other one was faster, or the turn was cancelled
        finally:
            if threading.current_thread() is not threading.main_thread():
                connections.close_all()

    def _timed(self, function):
        began = time.monotonic()
        try:
            return function()
        finally:
            self.waits.append(time.monotonic() - began)


@contextmanager
def broker():
    """Point Celery to a Redis database that is this test's own."""
    before, before_default = current_app._get_current_object(), _state.default_app
    with own_redis_database() as url:
        app = Celery("soak", broker=url, set_as_current=False)
        app.set_current()
        app.set_default()
        try:
            yield url
        finally:
            before.set_current()
            _state.set_default_app(before_default)
            app.close()


def soak(folder, *, turns, workers, seconds, pause):
    """Post, decide, cancel and kill for so long, then let all turns settle; return the numbers."""
    ledger = folder / "ledger"
    soak_worker.define_agent(str(ledger))
    began, deadlocks = time.monotonic(), count_deadlocks()
    with ExitStack() as stack:
        stack.callback(soak_worker.forget_agent)
        stack.enter_context(override_settings(AGENTCORE={"DISPATCH": "celery", "LEASE_SECONDS": LEASE_SECONDS}))
        order = {
            "broker": stack.enter_context(broker()),
            "ledger": str(ledger),
            "lease": LEASE_SECONDS,
            "threads": THREADS,
        }
        people = Soak(turns, ledger)
        people.post()
        farm = Workers(workers, order, folder)
        stack.callback(farm.stop)
        helpers = [
            Helper(people.post, pause=0.5),
            Helper(people.decide, pause=0.2),
            Helper(people.cancel_one, pause=3.0),
            # What the beat does.
            Helper(runtime.tick, pause=1.0),
        ]
        while time.monotonic() - began < seconds:
            time.sleep(pause)
            farm.kill_one()
            for helper in helpers:
                helper.check()
        people.goes_on = False
        wait_until_settled(helpers, farm)
        for helper in helpers:
            helper.stop()
        settled = time.monotonic() - began
    check(people, farm)
    assert count_deadlocks() == deadlocks
    states = Counter(AgentContext.objects.values_list("state", flat=True))
    effects = people.ledger()[0]
    print(
        f"\n{turns} sessions, {workers} workers, {farm.killed} killed in {seconds} s,"
        f" all settled after {settled:.0f} s:"
        f" {people.posted} turns ({', '.join(f'{state} {count}' for state, count in sorted(states.items()))}),"
        f" {sum(effects.values())} effects of {len(effects)} calls,"
        f" {ToolApproval.objects.count()} approvals, of which {ToolApproval.objects.filter(kind='outcome').count()}"
        f" of outcomes, {sum(AgentContext.objects.values_list('takeovers', flat=True))} takeovers,"
        f" {people.cancelled} cancels, slowest of {len(people.waits)} requests {max(people.waits):.2f} s"
    )
    return states


def wait_until_settled(helpers, farm):
    until = time.monotonic() + SETTLE_SECONDS
    while AgentContext.objects.filter(state__in=ACTIVE).exists():
        for helper in helpers:
            helper.check()
        left = AgentContext.objects.filter(state__in=ACTIVE)
        assert time.monotonic() < until, (Counter(left.values_list("state", flat=True)), farm.logs[-5000:])
        time.sleep(0.5)


def check(people, farm):
    """Each turn has ended as it may, and the ledger is what approvals and results say."""
    assert_invariants()
    for turn in AgentContext.objects.all():
        assert turn.state in TERMINAL
        code = (turn.error or {}).get("code")
        allowed = {"completed": None, "cancelled": "cancelled", "interrupted": "process_restarted"}
        assert code == allowed.get(turn.state, "none"), (turn.state, turn.error)
    done, what = people.ledger()
    calls = {call.call_id: call for call in ToolCall.objects.select_related("turn")}
    assert set(done) <= set(calls)
    for call_id, call in calls.items():
        check_call(call, done[call_id], what.get(call_id), people.said[call_id])
    faults = [line for line in farm.logs.splitlines() if FAULTS.search(line)]
    assert not faults, "\n".join(faults[:20])


def check_call(call, times, what, said):
    assert times <= call.attempts, (call.tool, times, call.attempts)
    if times:
        assert what == f"{call.tool} {call.arguments['n']}"
    if call.tool == "lookup":
        return
    # A careful person lets a call run again only when it did not happen.
    assert times <= 1, f"{call.tool} happened {times} times: {said}"
    if call.status == "completed" and ("call", "respond") not in said:
        assert times == 1, f"{call.tool} is completed and did not happen: {said}"
    if call.tool == "pay" and times:
        assert ("call", "approve") in said


def count_deadlocks():
    with connection.cursor() as cursor:
        cursor.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return cursor.fetchone()[0]


@pytest.mark.timeout(180)
def test_a_sample_of_turns_outlives_killed_workers(tmp_path, capsys):
    with capsys.disabled():
        states = soak(tmp_path, turns=30, workers=2, seconds=20, pause=4)
    assert states[TurnState.COMPLETED] > 10


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_turns_outlive_killed_workers(tmp_path, capsys):
    turns = int(os.environ.get("AGENTCORE_SOAK_TURNS", "200"))
    seconds = float(os.environ.get("AGENTCORE_SOAK_SECONDS", "120"))
    with capsys.disabled():
        states = soak(tmp_path, turns=turns, workers=4, seconds=seconds, pause=5)
    assert states[TurnState.COMPLETED] > turns
