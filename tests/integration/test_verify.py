"""`agentcore_verify`: what was altered, removed or added by hand is found, named, and makes the command fail."""

import io
import os
import pty
import re
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from agentcore import ApprovalPolicy, ToolError, agent, canonical, runtime, tool
from agentcore.agents.registry import registry
from agentcore.approvals import agreement, ending
from agentcore.engine import loop
from agentcore.exceptions import Conflict
from agentcore.messages import ModelReply
from agentcore.models import (
    AgentContext,
    AgentRevision,
    AgentSession,
    AgentStep,
    ApprovalDecision,
    SessionEvent,
    ToolApproval,
    ToolCall,
)
from agentcore.testing import calls, make_session, make_user
from agentcore.tools.masking import MASK
from agentcore.turns import steps
from tests import settings

pytestmark = pytest.mark.django_db

REPOSITORY = Path(__file__).resolve().parents[2]
DECIDE = "agentcore.decide_toolapproval"


@pytest.fixture
def ended(scripted, run_turns):
    """A session whose turn ended, with a free call and an approved one behind it."""
    provider = scripted([calls(("lookup", {"q": "a"}), ("pay", {"amount": 1, "to": "x"})), "Done."])
    found = runtime.execute("testing-agent", "hi", session_id="ended", user=make_user("owner"))
    runtime.approve(found.pending_approvals[0].id, make_user("reviewer", permissions=(DECIDE,)))
    run_turns()
    provider.assert_valid()
    return AgentSession.objects.get(session_id="ended")


@pytest.fixture
def waiting(make_approval, make_session):
    return make_approval(session=make_session(session_id="waiting")).session


def verify(*arguments):
    """Return what the command prints, and the error it ends with or None."""
    out = io.StringIO()
    try:
        call_command("agentcore_verify", *arguments, stdout=out, no_color=True)
    except CommandError as error:
        return out.getvalue(), error
    return out.getvalue(), None


def assert_found(session_id, *words):
    """Assert that the command fails, and that a line which names the session holds the words."""
    printed, error = verify()
    assert error is not None
    assert error.returncode == 1
    lines = [line for line in printed.splitlines() if line.startswith(f"{session_id}: ")]
    assert any(all(word in line for word in words) for line in lines), printed
    assert lines == printed.splitlines(), "a session that is whole is not named"
    count = len(lines)
    assert str(error) == f"{count} problems in {AgentSession.objects.count()} sessions."


def events(session):
    return SessionEvent.objects.filter(session=session)


def test_whole_sessions_have_no_problems(ended, waiting):
    assert verify() == ("2 sessions checked, nothing is wrong.\n", None)


def test_an_empty_database_has_no_problems():
    assert verify() == ("0 sessions checked, nothing is wrong.\n", None)


def test_one_session_can_be_checked_by_itself(ended, waiting):
    events(ended).filter(sequence=3).delete()
    assert verify("waiting") == ("1 sessions checked, nothing is wrong.\n", None)
    printed, error = verify("ended")
    assert "ended: Event 3 is missing." in printed
    assert "in 1 sessions" in str(error)


def test_a_session_that_does_not_exist_is_an_error(ended):
    printed, error = verify("nowhere")
    assert (printed, str(error)) == ("", "There is no session 'nowhere'.")
    assert error.returncode == 1


def test_the_session_of_somebody_who_deleted_it_is_checked_too(ended):
    AgentSession.objects.update(deleted_at=F("created_at"))
    events(ended).filter(sequence=3).delete()
    assert_found("ended", "Event 3 is missing.")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data": {"message": {"role": "user", "content": "something else"}}}, ("data of event", "turn.input")),
        ({"type": "turn.other"}, ("does not continue the chain",)),
        ({"created_at": "2020-01-01T00:00:00Z"}, ("does not continue the chain",)),
        ({"data_digest": "0" * 64}, ("does not continue the chain",)),
        ({"hash": "0" * 64}, ("does not continue the chain",)),
        ({"turn_id": None}, ("does not continue the chain",)),
    ],
)
def test_an_altered_event_is_found(ended, waiting, change, words):
    assert events(ended).filter(type="turn.input").update(**change) == 1
    assert_found("ended", *words)


def test_an_event_whose_hashes_were_made_to_fit_is_found_by_the_next_one(ended):
    from agentcore import canonical
    from agentcore.events import chain

    first, second = events(ended).order_by("sequence")[:2]
    second.data = {"message": {"role": "user", "content": "something else"}}
    second.data_digest = canonical.digest(second.data)
    second.hash = chain.link(
        first.hash,
        sequence=second.sequence,
        type=second.type,
        execution_id=second.turn_id,
        created_at=second.created_at,
        data_digest=second.data_digest,
    )
    second.save()
    assert_found("ended", "Event 3", "does not continue the chain")


def test_a_removed_event_is_found(ended, waiting):
    events(ended).filter(sequence=4).delete()
    assert_found("ended", "Event 4 is missing.")


def test_a_removed_tail_is_found(ended, waiting):
    last = ended.last_sequence
    events(ended).filter(sequence__gt=last - 2).delete()
    assert_found("ended", f"The log ends at {last - 2}, the session says {last}.")


def test_a_log_that_was_removed_whole_is_found(ended):
    last = ended.last_sequence
    events(ended).delete()
    assert_found("ended", f"The log ends at 0, the session says {last}.")


def test_an_added_event_is_found(ended, waiting):
    last = events(ended).get(sequence=ended.last_sequence)
    last.pk, last.sequence = None, last.sequence + 1
    last.save(force_insert=True)
    assert_found("ended", f"The log ends at {last.sequence}, the session says {last.sequence - 1}.")
    AgentSession.objects.filter(pk=ended.pk).update(last_sequence=last.sequence)
    assert_found("ended", f"Event {last.sequence}", "does not continue the chain")


def test_erased_content_is_no_problem(ended, waiting):
    events(ended).update(data=None)
    assert verify()[1] is None


@pytest.mark.parametrize("data", [{}, [], "text", 7, {"previous": [], "new": "thinking"}, None])
def test_no_altered_event_stops_the_check(ended, waiting, data):
    """What somebody wrote over an event is reported, whatever it is; the sessions after it are checked too."""
    events(waiting).filter(sequence=2).delete()
    for event in events(ended):
        event_of = events(ended).filter(pk=event.pk)
        event_of.update(data=data)
        printed, error = verify()
        assert error is not None
        assert (f"ended: The data of event {event.sequence} " in printed) is (data is not None)
        assert "waiting: Event 2 is missing." in printed
        event_of.update(data=event.data)


def test_a_broken_invariant_is_found(ended, waiting):
    ToolApproval.objects.filter(session=waiting).update(status="approved")
    assert_found("waiting", "it waits for approval, and no request is pending")


def test_a_call_that_ran_without_an_approval_is_found(ended, waiting):
    ToolApproval.objects.filter(session=ended).update(approved_arguments={"amount": 2, "to": "x"})
    assert_found("ended", "pay", "it began without an approval")


def test_a_call_that_ran_twice_is_found(ended, waiting):
    assert ToolCall.objects.filter(tool="pay", turn__session=ended).update(attempts=2) == 1
    assert_found("ended", "pay", "it is not idempotent and was attempted 2 times")


def test_a_turn_whose_state_was_set_by_hand_is_found(ended, waiting):
    AgentContext.objects.filter(session=ended).update(state="failed")
    assert_found("ended", "it is failed, and its log says completed")


def test_an_altered_revision_is_found(ended):
    revision = AgentRevision.objects.get()
    AgentRevision.objects.update(definition={**revision.definition, "system_prompt": "Obey."})
    assert_found("ended", "is not what its hash says")


# Rows that the log speaks of


@pytest.fixture
def decided(scripted, run_turns):
    """A session with a free call, an edited and approved one, a rejected one and one a person answered."""
    asked = [
        ("lookup", {"q": "a"}),
        ("pay", {"amount": 1, "to": "x"}),
        ("wipe", {"path": "/a"}),
        ("wipe", {"path": "/b"}),
    ]
    scripted([calls(*asked, content="Let me see."), "Done."])
    runtime.execute("testing-agent", "hi", session_id="decided", user=make_user("owner"))
    reviewer = make_user("reviewer", permissions=(DECIDE,))
    pay, reject, respond = ToolApproval.objects.order_by("pk")
    runtime.approve(pay.pk, reviewer, arguments={"amount": 2, "to": "x"})
    runtime.reject(reject.pk, reviewer, reason="Never.")
    runtime.respond(respond.pk, reviewer, {"wiped": False})
    run_turns()
    assert verify() == ("1 sessions checked, nothing is wrong.\n", None)
    return AgentSession.objects.get()


EVIL = {"amount": 666, "to": "evil"}
WITH_DIGEST = {"arguments": EVIL, "arguments_digest": canonical.digest(EVIL)}
EVIL_ERROR = {"code": "rejected", "message": "evil", "details": {}}
EVIL_MESSAGE = {"role": "assistant", "content": "evil"}
PAY, DENIED, ANSWERED, APPROVED = (
    {"tool": "pay"},
    {"status": "rejected"},
    {"status": "responded"},
    {"status": "approved"},
)

TAMPERING = {
    "input": (AgentContext, {}, {"input": {"role": "user", "content": "evil"}}, "its input and event 2 (turn.input)"),
    "response": (AgentContext, {}, {"response": "evil"}, "its response and event"),
    "no response": (AgentContext, {}, {"response": None}, "its response and event"),
    "error of a completed turn": (AgentContext, {}, {"error": EVIL_ERROR}, "it has error set"),
    "message": (AgentStep, {"number": 2}, {"message": EVIL_MESSAGE}, "step 2: its message and event"),
    "requests of a message": (
        AgentStep,
        {"number": 1},
        {"message": {"role": "assistant", "content": "Let me see.", "tool_calls": []}},
        "step 1: its calls are not those",
    ),
    "error of a step": (AgentStep, {"number": 1}, {"error": EVIL_ERROR}, "step 1: it has error set"),
    "raw arguments": (ToolCall, PAY, {"raw_arguments": "evil"}, "step 1: its calls are not those"),
    "name of a call": (ToolCall, PAY, {"tool": "wipe"}, "its tool and event"),
    "arguments": (ToolCall, PAY, {"arguments": EVIL}, "its arguments are not what their digest says"),
    "arguments and digest": (ToolCall, PAY, WITH_DIGEST, "its arguments and event"),
    "arguments that were not approved": (ToolCall, PAY, WITH_DIGEST, "its arguments are not those of approval"),
    "proposed arguments": (ToolCall, PAY, {"proposed_arguments": EVIL}, "its proposed arguments are not those"),
    "arguments of a rejected call": (ToolCall, DENIED, WITH_DIGEST, "its arguments are not those of approval"),
    "result": (ToolCall, PAY, {"result": "evil"}, "its result and event"),
    "result of a free call": (ToolCall, {"tool": "lookup"}, {"result": None}, "its result and event"),
    "result that a person gave": (ToolCall, {"provider_call_id": "c4"}, {"result": "evil"}, "is not the response of"),
    "error of a completed call": (ToolCall, PAY, {"error": EVIL_ERROR}, "it has error set"),
    "error of a rejected call": (ToolCall, DENIED, {"error": EVIL_ERROR}, "its error and the reason of event"),
    "result of a rejected call": (ToolCall, DENIED, {"result": "evil"}, "it has result set"),
    "status of a call": (ToolCall, PAY, {"status": "failed"}, "it is failed, and event"),
    "status of a rejected call": (ToolCall, DENIED, {"status": "completed"}, "it is completed, and neither"),
    "attempts": (ToolCall, PAY, {"attempts": 0}, "its attempt and event"),
    "attempts at a rejected call": (ToolCall, DENIED, {"attempts": 1}, "its log does not say so"),
    "request": (ToolApproval, APPROVED, {"arguments": EVIL}, "its arguments are not what their digest says"),
    "request and digest": (ToolApproval, APPROVED, WITH_DIGEST, "its arguments and event"),
    "tool of a request": (ToolApproval, APPROVED, {"tool": "wipe"}, "its tool and event"),
    "approved arguments": (ToolApproval, APPROVED, {"approved_arguments": EVIL}, "its approved_arguments and event"),
    "response of a request": (ToolApproval, ANSWERED, {"response": "evil"}, "its result is not the response of"),
    "rejection": (ToolApproval, DENIED, {"status": "approved"}, "it is approved, and event"),
    "answer": (ToolApproval, ANSWERED, {"status": "approved", "approved_arguments": {}}, "it is approved, and event"),
    "digest of a vote": (ApprovalDecision, {}, {"arguments_digest": "0" * 64}, "the votes that count are not for"),
    "verdict": (
        ApprovalDecision,
        {"verdict": "reject"},
        {"verdict": "approve"},
        "no vote that counts is that of event",
    ),
    "who decided": (ApprovalDecision, {}, {"actor_name": "evil"}, "no vote that counts is that of event"),
    "reason": (ApprovalDecision, {"verdict": "reject"}, {"note": "evil"}, "no vote that counts is that of event"),
}


@pytest.mark.parametrize("kind", TAMPERING)
def test_an_altered_row_is_found(decided, waiting, kind):
    model, where, fields, words = TAMPERING[kind]
    assert model.objects.exclude(**_of_waiting(model)).filter(**where).update(**fields)
    assert_found("decided", words)
    printed, _ = verify()
    # An id may hold any digits.
    printed = re.sub(r"[0-9a-f-]{32,36}", "", printed)
    assert "evil" not in printed
    assert "666" not in printed


def _of_waiting(model):
    """Return what picks the rows of the other session."""
    path = {AgentContext: "session", ApprovalDecision: "approval__session"}.get(model, "turn__session")
    return {f"{path}__session_id": "waiting"}


REMOVING = {
    "free call": (lambda: ToolCall.objects.filter(tool="lookup"), "(tool.execution.started) speaks of call call_"),
    "approved call": (lambda: ToolCall.objects.filter(tool="pay"), "(tool.approval.requested) speaks of call call_"),
    "approval": (lambda: ToolApproval.objects.filter(status="rejected"), "speaks of approval"),
    "step": (lambda: AgentStep.objects.filter(number=2), "(message) speaks of step 2, and there is none"),
    "vote": (lambda: ApprovalDecision.objects.filter(verdict="approve"), "the votes that count are not for"),
    "rejection": (lambda: ApprovalDecision.objects.filter(verdict="reject"), "no vote that counts is that of event"),
}


@pytest.mark.parametrize("kind", REMOVING)
def test_a_removed_row_is_found(decided, kind):
    rows, words = REMOVING[kind]
    assert rows().delete()[0]
    assert_found("decided", words)


def test_an_added_call_and_an_added_approval_are_found(decided):
    approval = ToolApproval.objects.get(status="approved")
    approval.pk = None
    approval.save(force_insert=True)
    assert_found("decided", "approval", "its log does not speak of it")
    call = ToolCall.objects.get(tool="pay")
    call.pk, call.position, call.call_id = None, 9, "call_added"
    call.save(force_insert=True)
    assert_found("decided", "step 1: its calls are not those that its reply asks for")
    assert_found("decided", "call_added", "it is completed, and neither its log nor a request says so")


def test_erased_events_prove_nothing_and_the_others_still_do(decided):
    events(decided).filter(type__startswith="tool.").update(data=None)
    assert verify()[1] is None
    ToolCall.objects.filter(tool="lookup").update(result="evil")
    assert verify()[1] is None, "its log does not say any more what it was"
    AgentContext.objects.update(response="evil")
    assert_found("decided", "its response and event")


def test_each_event_of_a_history_can_be_erased_by_itself(decided):
    for event in events(decided):
        event_of = events(decided).filter(pk=event.pk)
        event_of.update(data=None)
        assert verify()[1] is None, event.type
        event_of.update(data=event.data)


def test_values_that_are_masked_or_too_large_for_an_event_are_compared(vault, run_turns):
    assert verify()[1] is None
    call = ToolCall.objects.get()
    assert events(vault).get(type="tool.execution.completed").data["result"].keys() == {"ref", "bytes", "sha256"}
    assert events(vault).get(type="tool.execution.started").data["arguments"]["password"] == MASK
    ToolCall.objects.update(result={**call.result, "text": call.result["text"] + "!"})
    assert_found("vault", "its result and event")
    ToolCall.objects.update(result=call.result, arguments={**call.arguments, "password": "other"})
    assert_found("vault", "its arguments are not what their digest says")
    ToolCall.objects.update(arguments=call.arguments)
    AgentContext.objects.update(response="ü" * 5001)
    assert_found("vault", "its response and event")


def test_what_json_cannot_hold_is_told_and_does_not_stop_the_check(decided):
    with connection.cursor() as cursor:
        if connection.vendor != "sqlite":
            pytest.skip("the database refuses it")
        cursor.execute("PRAGMA ignore_check_constraints = ON")
        cursor.execute("UPDATE agentcore_toolcall SET arguments = 'NaN', result = 'NaN' WHERE tool = 'pay'")
        cursor.execute("PRAGMA ignore_check_constraints = OFF")
    assert_found("decided", "its arguments are not what their digest says")
    assert_found("decided", "its result and event")


@pytest.fixture
def vault(scripted, settings):
    """A session with a call that had a password, and with values too large for an event."""
    settings.AGENTCORE = {"MAX_EVENT_BYTES": 2000}

    @agent(name="vault", model="scripted:x")
    class Vault:
        @tool(description="Open", sensitive=["pin"])
        def open(self, password: str, pin: int) -> dict[str, object]:
            return {"token": "hunter2", "pin": pin, "text": "é" * 3000}

    scripted([calls(("open", {"password": "hunter2", "pin": 1234})), "ü" * 5000])
    runtime.execute("vault", "open", session_id="vault", user=make_user("owner"))
    yield AgentSession.objects.get(session_id="vault")
    registry.unregister("vault")


def test_the_check_costs_a_turn_few_queries_however_long_it_is(scripted, make_turn, run_turns):
    def count_queries(number_of_calls):
        scripted([calls(*[("charge", {"n": n}) for n in range(number_of_calls)]), "done"])
        turn = make_turn()
        run_turns()
        turn.refresh_from_db()
        with CaptureQueriesContext(connection) as queries:
            assert list(agreement.problems(turn)) == []
        return len(queries)

    assert count_queries(1) == count_queries(20) <= 5


# A history in which much happened, and nobody altered anything


class Died(BaseException):
    """Stands for SIGKILL: nothing after it is written."""


def die(*args, **kwargs):
    raise Died


@pytest.fixture
def busy(scripted, settings, monkeypatch, clock, run_turns):
    """An agent with tools of every kind. Returns what has it make calls, and what has its worker die after them."""
    settings.AGENTCORE = {"MAX_EVENT_BYTES": 2000}
    release = threading.Event()

    @agent(name="busy", model="scripted:x")
    class Busy:
        @tool(description="Effect", requires_approval=True, approval=ApprovalPolicy(expires_in=timedelta(days=1)))
        def pay(self, amount: int, password: str) -> dict[str, object]:
            return {"token": password, "text": "é" * 3000}

        @tool(description="Effect", requires_approval=True, approval=ApprovalPolicy(votes=2))
        def pay_much(self, amount: int) -> float:
            return amount / 2

        @tool(description="Effect")
        def charge(self, n: int) -> int:
            return n

        @tool(description="Tells", on_unknown="tell")
        def told(self) -> None:
            return None

        @tool(description="Hangs", timeout=0.2)
        def hangs(self) -> str:
            release.wait(20)
            return "late"

        @tool(description="Fails", idempotent=True, retries=1)
        def fails(self) -> None:
            raise ToolError("no")

    def ask(session_id, *requests, answer="done"):
        scripted([calls(*requests, content="Let me see."), answer])
        return runtime.enqueue(session_id, "go").turn.execution_id

    def ask_and_die(session_id, *requests):
        execution_id = ask(session_id, *requests)
        with monkeypatch.context() as patch:
            patch.setattr(steps, "record_result", die)
            with pytest.raises(Died):
                loop.run(execution_id)
        clock.advance(3_600)
        assert runtime.recover()["taken_over"] == 1
        run_turns()

    def session(name):
        return make_session("busy", session_id=name).session_id

    yield SimpleNamespace(ask=ask, ask_and_die=ask_and_die, session=session, release=release)
    release.set()
    registry.unregister("busy")


@pytest.mark.django_db(transaction=True)
def test_a_busy_and_healthy_history_has_no_problems(busy, run_turns, clock, monkeypatch):
    first, second = (make_user(name, permissions=(DECIDE,)) for name in ("first", "second"))
    pay = ("pay", {"amount": 1, "password": "hunter2"})

    def pending():
        return ToolApproval.objects.pending().get()

    def check(event_type=None):
        run_turns()
        session = AgentSession.objects.latest("pk")
        assert event_type is None or events(session).filter(type=event_type).exists()
        assert verify(session.session_id)[1] is None, verify()[0]

    def edited():
        busy.ask(busy.session("edited"), pay, ("pay_much", {"amount": 5}))
        run_turns()
        one, two = ToolApproval.objects.pending().order_by("pk")
        runtime.approve(one.pk, first, arguments={"amount": 2, "password": MASK})
        runtime.approve(two.pk, first, arguments={"amount": 6}, note="less")
        check("tool.approval.changed")
        runtime.approve(two.pk, first, arguments={"amount": 7})
        check()
        runtime.approve(two.pk, second)
        check("tool.approval.granted")

    def in_doubt(name, decide):
        busy.ask_and_die(busy.session(name), ("charge", {"n": 5}))
        check("tool.execution.unknown")
        decide(pending())
        check()

    def changed(name, decide):
        busy.ask(busy.session(name), pay)
        run_turns()
        runtime.approve(pending().pk, first)
        definition = registry.get("busy").tools["pay"]
        with monkeypatch.context() as patch:
            patch.setitem(definition.__dict__, "fingerprint", f"new {name}")
            check()
            with monkeypatch.context() as again:
                again.setitem(definition.__dict__, "fingerprint", "again")
                with pytest.raises(Conflict, match="tool changed"):
                    runtime.approve(pending().pk, first)
                check()
                decide(pending())
                check()

    def late():
        busy.ask(busy.session("late"), ("hangs", {}))
        check("tool.execution.unknown")
        busy.release.set()
        for _ in range(500):
            if ToolCall.objects.filter(late_result="late").exists():
                break
            threading.Event().wait(0.02)
        check()
        runtime.respond(pending().pk, first, "late")
        check()

    edited()
    in_doubt("repeated", lambda approval: runtime.approve(approval.pk, first))
    in_doubt("answered", lambda approval: runtime.respond(approval.pk, first, {"n": 5}))
    in_doubt("given-up", lambda approval: runtime.reject(approval.pk, first, reason="No."))
    in_doubt("cancelled-in-doubt", lambda approval: runtime.cancel("cancelled-in-doubt"))
    changed("stale", lambda approval: runtime.approve(approval.pk, first, arguments={"amount": 3, "password": "x"}))
    changed("stale-and-rejected", lambda approval: runtime.reject(approval.pk, first, reason="No."))
    changed("stale-and-cancelled", lambda approval: runtime.cancel("stale-and-cancelled"))
    late()
    busy.ask_and_die(busy.session("told"), ("told", {}))
    check()
    busy.ask(busy.session("cancelled"), ("charge", {"n": 1}), pay)
    run_turns()
    runtime.cancel("cancelled")
    check("tool.approval.cancelled")
    busy.ask(busy.session("expired"), pay)
    run_turns()
    clock.advance(90_000)
    assert ending.expire_due() == 1
    check("tool.approval.expired")
    busy.ask(busy.session("wrong"), ("fails", {}), ("nothing", {}), ("charge", "{"), ("charge", {"n": "x" * 99_999}))
    check("tool.execution.failed")
    busy.ask(busy.session("refused"), ("charge", {"n": 1}), answer=ModelReply(content="No.", finish_reason="refusal"))
    check("turn.failed")
    assert verify() == (f"{AgentSession.objects.count()} sessions checked, nothing is wrong.\n", None)


# On a terminal, and as a process


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("stream", "shown"), [(Terminal, True), (io.StringIO, False)])
def test_progress_is_shown_on_a_terminal_only(ended, waiting, monkeypatch, stream, shown):
    stderr = stream()
    monkeypatch.setattr(sys, "stderr", stderr)
    call_command("agentcore_verify", stdout=io.StringIO())
    assert ("2/2" in stderr.getvalue()) is shown
    assert bool(stderr.getvalue()) is shown


def run_in_a_terminal(*arguments):
    """Run the command as a process whose standard error is a terminal; return its exit code and what it wrote."""
    reading, writing = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "django", "agentcore_verify", *arguments],
            cwd=REPOSITORY,
            env={
                **os.environ,
                "DJANGO_SETTINGS_MODULE": "tests.settings",
                "AGENTCORE_TEST_DB": settings.TEST_DB,
                "AGENTCORE_TEST_NAME": str(connection.settings_dict["NAME"]),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=writing,
            text=True,
            timeout=50,
            check=False,
        )
        return done.returncode, done.stdout, os.read(reading, 65_536).decode()
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.django_db(transaction=True)
def test_the_exit_code_says_whether_something_is_wrong(ended):
    code, printed, progress = run_in_a_terminal()
    assert (code, printed) == (0, "1 sessions checked, nothing is wrong.\n")
    assert "1/1" in progress
    events(ended).filter(sequence=3).delete()
    code, printed, progress = run_in_a_terminal("ended")
    assert code == 1
    assert "ended: Event 3 is missing." in printed
    assert "problems in 1 sessions." in progress
