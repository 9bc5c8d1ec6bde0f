"""Values that databases, encoders or models choke on, on their whole way: message, arguments, result, prompt, log."""

import dataclasses
import enum
import json
import threading
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.utils.functional import lazystr

from agentcore import AgentError, ToolContext, ToolError, TurnState, agent, canonical, runtime, tool
from agentcore.agents.registry import registry
from agentcore.exceptions import InvalidInput
from agentcore.messages import ModelReply
from agentcore.models import AgentContext, ContextEntry, SessionEvent, ToolApproval, ToolCall
from agentcore.testing import assert_invariants, calls, make_user, text

pytestmark = pytest.mark.django_db(transaction=True)

AGENT = "values-agent"
SECRET = "hunter2"
NUL = "a\x00b"
CLEANED = "a\ufffdb"


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    y: float


class Rude:
    def __str__(self):
        raise RuntimeError(SECRET)


class Ledger(list):
    """What tools did, outside every transaction."""


ledger = Ledger()


def endless():
    return endless()


def break_a_transaction():
    with connection.cursor() as cursor:
        cursor.execute("SELECT nothing FROM nowhere")


def leave_a_transaction_open():
    connection.set_autocommit(False)
    get_user_model().objects.create_user("left-behind")


def itself():
    value: dict[str, Any] = {}
    value["self"] = value
    return value


# What a tool may hand back: each with the JSON that is stored, or a test of it.
RESULTS = {
    "aware": (lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05+00:00"),
    "naive": (lambda: datetime(2026, 1, 2, 3, 4, 5), "2026-01-02T03:04:05"),  # noqa: DTZ001 - tools do return them
    "date": (lambda: date(2026, 1, 2), "2026-01-02"),
    "timedelta": (lambda: timedelta(hours=2), "P0DT02H00M00S"),
    "decimal": (lambda: Decimal("0.10"), "0.10"),
    "uuid": (lambda: uuid.UUID(int=7), "00000000-0000-0000-0000-000000000007"),
    "bytes": (lambda: b"\x00\xff", {"base64": "AP8=", "bytes": 2}),
    "set": (lambda: {3, 1, 2}, [1, 2, 3]),
    "enum": (lambda: Colour.RED, "red"),
    "dataclass": (lambda: Point(1, 2.5), {"x": 1, "y": 2.5}),
    "lazy text": (lambda: lazystr("later"), "later"),
    "rude object": (Rude, {"unserialisable": "Rude"}),
    "itself": (itself, {"self": {"omitted": "a reference to itself"}}),
    "int keys": (lambda: {1: "a", (2, 3): "b"}, {"1": "a", "[2,3]": "b"}),
    "generator": (lambda: (n * n for n in range(3)), [0, 1, 4]),
    "nan": (lambda: [float("nan"), float("inf")], ["NaN", "Infinity"]),
    "huge integer": (lambda: 10**5000, {"omitted": "an integer of 16610 bits"}),
    "nothing": (lambda: None, None),
    "nul": (lambda: {NUL: [NUL]}, {CLEANED: [CLEANED]}),
    "lone surrogate": (lambda: "\udc97", "\ufffd"),
    "pair": (lambda: "\ud83d\ude00", "😀"),
    "deep": (lambda: json.loads("[" * 60 + "]" * 60), None),
    "user": (lambda: get_user_model().objects.get(username="owner"), None),
    "queryset": (lambda: get_user_model().objects.all(), None),
}
FAILURES = {
    "value error": lambda: (_ for _ in ()).throw(ValueError(f"db password={SECRET}")),
    "exit": lambda: (_ for _ in ()).throw(SystemExit(SECRET)),
    "interrupt": lambda: (_ for _ in ()).throw(KeyboardInterrupt(SECRET)),
    "recursion": endless,
    "broken transaction": break_a_transaction,
    "open transaction": leave_a_transaction_open,
}


@agent(name=AGENT, system_prompt="You store.", model="scripted:any", max_steps=100)
class ValuesAgent:
    @tool(description="Return a value of some kind")
    def give(self, kind: str) -> object:
        ledger.append(kind)
        return RESULTS[kind][0]()

    @tool(description="Fail in some way")
    def fail(self, kind: str) -> object:
        ledger.append(kind)
        return FAILURES[kind]()

    @tool(description="Give back what came in")
    def echo(self, q: str, more: dict[str, Any] | None = None) -> dict[str, object]:
        ledger.append(q)
        return {"q": q, "more": more}

    @tool(description="Tell the model what went wrong")
    def tell(self, why: str) -> str:
        ledger.append(why)
        raise ToolError(f"Not {NUL} \ud83d possible {why}")

    @tool(description="Emit and remember")
    def note(self, kind: str, ctx: ToolContext) -> str:
        ledger.append(kind)
        data = {"nul": {NUL: NUL}, "surrogate": {"q": "\ud83d"}, "plain": {"n": 1.0}}[kind]
        ctx.emit("shop.noted", data)
        ctx.working_memory["k" + next(iter(data))] = data
        return kind

    @tool(description="Emit what cannot be an event")
    def misuse(self, kind: str, ctx: ToolContext) -> str:
        bad: dict[str, tuple[Any, Any]] = {
            "large": ("shop.noted", {"x": "y" * 70_000}),
            "deep": ("shop.noted", {"x": RESULTS["deep"][0]()}),
            "no json": ("shop.noted", {"x": object()}),
            "nan": ("shop.noted", {"x": float("nan")}),
            "reserved": ("turn.completed", {}),
            "nul in type": ("shop.\x00", {}),
        }
        try:
            ctx.emit(*bad[kind])
        except AgentError as error:
            return error.code
        return "taken"

    @tool(description="Needs a person", requires_approval=True)
    def pay(self, amount: int, to: str) -> str:
        ledger.append((amount, to))
        return "paid"

    @pay.preview
    def _(self, amount: int, to: str) -> str:
        return f"Pays {NUL} \ud83d {to}"


registry.unregister(AGENT)


@pytest.fixture(autouse=True)
def _agent():
    runtime.register(ValuesAgent)
    ledger.clear()
    yield
    registry.unregister(AGENT)


@pytest.fixture
def owner():
    return make_user("owner", password="pbkdf2-would-be-here")


@pytest.fixture
def reviewer():
    return make_user("reviewer", permissions=("agentcore.decide_toolapproval",))


def run(scripted, *requests, answer="Done.", **options):
    provider = scripted([calls(*requests), answer])
    result = runtime.execute(AGENT, "go", **options)
    assert (result.state, result.response) == (TurnState.COMPLETED, answer)
    assert_invariants()
    provider.assert_valid()
    return result, provider


def test_prv_20_each_result_is_stored_once_and_reaches_the_model(scripted, owner):
    result, provider = run(scripted, *(("give", {"kind": kind}) for kind in RESULTS), user=owner)
    assert ledger == list(RESULTS)
    stored = dict(zip(RESULTS, (call.result for call in result.steps[0].tool_calls), strict=True))
    for kind, (_, expected) in RESULTS.items():
        if kind not in ("deep", "user", "queryset"):
            assert stored[kind] == expected, kind
    assert {call.status for call in result.steps[0].tool_calls} == {"completed"}
    assert "nested deeper" in json.dumps(stored["deep"])
    assert stored["user"] == {"model": "auth.user", "pk": owner.pk, "text": "owner"}
    assert stored["queryset"] == [stored["user"]]
    told = " ".join(message.content for message in provider.requests[1].messages if message.role == "tool")
    assert "2026-01-02T03:04:05+00:00" in told
    assert owner.password not in told + json.dumps(stored)
    assert SECRET not in told + json.dumps(stored)


def test_prv_20_each_result_has_the_same_digest_in_the_log(scripted, owner):
    run(scripted, *(("give", {"kind": kind}) for kind in RESULTS), user=owner)
    for event in SessionEvent.objects.all():
        assert canonical.digest(event.data) == event.data_digest


def test_prv_22_nul_of_a_model_and_a_tool_becomes_a_replacement_character(scripted):
    arguments = json.dumps({"q": NUL, "more": {NUL: [NUL]}})
    result, provider = run(scripted, ("echo", arguments), answer=text(CLEANED).content)
    [call] = result.steps[0].tool_calls
    assert ledger == [CLEANED]
    assert call.result == {"q": CLEANED, "more": {CLEANED: [CLEANED]}}
    assert "\x00" not in "".join(message.content or "" for message in provider.requests[1].messages)


def test_prv_22_nul_in_a_models_text_call_id_and_tool_name(scripted):
    strange = calls(("echo", {"q": "x"}), ("ec\x00ho", {"q": "x"}), content=f"Thinking {NUL}")
    strange = ModelReply(
        content=strange.content,
        tool_calls=tuple(dataclasses.replace(call, id=f"c\x00{n}") for n, call in enumerate(strange.tool_calls)),
        finish_reason="tool_calls",
        model="m\x00",
    )
    provider = scripted([strange, f"Done {NUL} \ud83d"])
    result = runtime.execute(AGENT, "go")
    assert result.response == f"Done {CLEANED} \ufffd"
    assert [call.status for call in result.steps[0].tool_calls] == ["completed", "failed"]
    assert result.steps[0].message["content"] == f"Thinking {CLEANED}"
    provider.assert_valid()
    assert_invariants()


def test_prv_22_nul_in_what_a_tool_raises_emits_and_remembers(scripted):
    result, _ = run(scripted, ("tell", {"why": "x"}), ("note", {"kind": "nul"}), ("note", {"kind": "surrogate"}))
    failed, first, second = result.steps[0].tool_calls
    assert failed.error["message"] == f"Not {CLEANED} \ufffd possible x"
    assert (first.status, second.status) == ("completed", "completed")
    events = [event.data for event in SessionEvent.objects.filter(type="shop.noted").order_by("sequence")]
    assert events == [{CLEANED: CLEANED}, {"q": "\ufffd"}]
    assert dict(ContextEntry.objects.values_list("key", "value")) == {
        f"k{CLEANED}": {CLEANED: CLEANED},
        "kq": {"q": "\ufffd"},
    }


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("large", "too_large"),
        ("deep", "invalid_input"),
        ("no json", "invalid_input"),
        ("nan", "invalid_input"),
        ("reserved", "invalid_input"),
        ("nul in type", "invalid_input"),
    ],
)
def test_an_event_that_cannot_be_is_refused_to_the_tool_and_harms_nothing(kind, answer, scripted):
    result, _ = run(scripted, ("misuse", {"kind": kind}))
    assert result.steps[0].tool_calls[0].result == answer
    assert not SessionEvent.objects.filter(type__startswith="shop.").exists()


@pytest.mark.parametrize("bad", [NUL, "\ud83d"])
def test_prv_22_unstorable_text_of_a_user_is_refused_and_stores_nothing(bad, scripted, owner, reviewer):
    scripted([calls(("pay", {"amount": 1, "to": "x"}))])
    for refused in (
        lambda: runtime.execute(AGENT, bad, user=owner),
        lambda: runtime.execute(AGENT, "hi", user=owner, metadata={"k": bad}),
        lambda: runtime.execute(AGENT, "hi", user=owner, metadata={bad: 1}),
        lambda: runtime.execute(AGENT, "hi", user=owner, idempotency_key=bad),
        lambda: runtime.create_session(AGENT, title=bad),
    ):
        with pytest.raises(InvalidInput):
            refused()
    assert not AgentContext.objects.exists()
    result = runtime.execute(AGENT, "pay", user=owner)
    [pending] = result.pending_approvals
    for refused in (
        lambda: runtime.reject(pending.id, reviewer, reason=bad),
        lambda: runtime.approve(pending.id, reviewer, note=bad),
        lambda: runtime.respond(pending.id, reviewer, "ok", note=bad),
    ):
        with pytest.raises(InvalidInput):
            refused()
    approval = ToolApproval.objects.get()
    assert (approval.status, approval.preview) == ("pending", f"Pays {CLEANED} \ufffd x")
    assert ledger == []
    assert_invariants()


def test_prv_23_surrogates_of_a_model_do_not_poison_the_session(scripted, run_turns):
    provider = scripted(
        [
            calls(("echo", '{"q":"\\ud83d"}'), ("echo", '{"q":"\\ud83d\\ude00"}'), ("echo", '{"q":"\ud83d"}')),
            "One \ud83d\ude00 and \ud83d.",
            "Next.",
        ]
    )
    first = runtime.execute(AGENT, "go 😀")
    assert ledger == ["\ufffd", "😀", "\ufffd"]
    assert first.response == "One 😀 and \ufffd."
    second = runtime.execute(AGENT, "next", session_id=first.session_id)
    assert second.response == "Next."
    provider.assert_valid()
    json.dumps([event.data for event in SessionEvent.objects.all()], ensure_ascii=False).encode()
    for call in ToolCall.objects.all():
        assert canonical.digest(call.arguments) == call.arguments_digest
    assert_invariants()


def test_prv_23_what_was_approved_is_what_runs_after_cleaning(scripted, owner, reviewer, run_turns):
    scripted([calls(("pay", '{"amount": 1, "to": "\\ud83d\\u0000"}')), "Paid."])
    result = runtime.execute(AGENT, "pay", user=owner)
    runtime.approve(result.pending_approvals[0].id, reviewer)
    run_turns()
    assert ledger == [(1, "\ufffd\ufffd")]
    assert runtime.result(result.execution_id).response == "Paid."
    assert_invariants()


def test_prv_25_whatever_a_tool_raises_the_turn_goes_on_and_nothing_leaks(scripted, owner, caplog):
    result, provider = run(
        scripted, *(("fail", {"kind": kind}) for kind in FAILURES), ("echo", {"q": "after"}), user=owner
    )
    assert ledger == [*FAILURES, "after"]
    *failed, after = result.steps[0].tool_calls
    statuses = dict(zip(FAILURES, (call.status for call in failed), strict=True))
    assert statuses == dict.fromkeys(FAILURES, "failed") | {"open transaction": "completed"}
    assert after.status == "completed"
    shown = json.dumps([event.data for event in SessionEvent.objects.all()]) + str(provider.requests) + str(result)
    assert SECRET not in shown
    assert "The tool ran and failed (ValueError)" in shown
    assert SECRET in caplog.text  # the protected log has what people who mend it need
    assert not get_user_model().objects.filter(username="left-behind").exists()


def test_prv_25_a_call_that_was_not_run_reads_otherwise_than_one_that_failed(scripted):
    _, provider = run(scripted, ("fail", {"kind": "value error"}), ("nothing", {}), ("echo", {"wrong": 1}))
    failed, unknown, invalid = (m.content for m in provider.requests[1].messages if m.role == "tool")
    assert "ran and failed" in failed
    assert "nothing was run" in unknown
    assert "was not run" in invalid
    assert ledger == ["value error"]


def test_prv_25_an_error_text_is_bounded(scripted):
    result, _ = run(scripted, ("tell", {"why": "x" * 10_000}))
    assert len(result.steps[0].tool_calls[0].error["message"]) == 2000


def test_tools_run_outside_the_thread_of_the_worker(scripted):
    seen = []
    RESULTS["thread"] = (lambda: seen.append(threading.current_thread().name), None)
    try:
        run(scripted, ("give", {"kind": "thread"}))
    finally:
        del RESULTS["thread"]
    assert seen == ["agentcore-tool"]


def test_a_result_longer_than_the_model_is_shown_is_cut_and_kept_whole(scripted, settings):
    settings.AGENTCORE = {"MAX_RESULT_CHARS": 50}
    result, provider = run(scripted, ("echo", {"q": "x" * 500}))
    assert result.steps[0].tool_calls[0].result["q"] == "x" * 500
    told = provider.requests[1].messages[-1].content
    assert len(told) < 200
    assert "[cut: the result has" in told


def test_apr_33_arguments_over_the_limit_are_refused_to_the_model(scripted, settings):
    settings.AGENTCORE = {"MAX_ARGUMENT_BYTES": 1000}
    result, provider = run(scripted, ("echo", {"q": "x" * 2000}))
    [call] = result.steps[0].tool_calls
    assert (call.status, call.error["code"]) == ("failed", "too_large")
    assert ledger == []
    assert "x" * 1000 not in str(provider.requests[1].messages)


def test_apr_33_large_values_are_in_the_rows_and_by_reference_in_the_log(scripted, settings):
    settings.AGENTCORE = {"MAX_EVENT_BYTES": 2000}
    big = "é" * 3000
    result, _ = run(scripted, ("echo", {"q": big}), answer="ü" * 5000)
    assert result.steps[0].tool_calls[0].result["q"] == big
    assert result.response == "ü" * 5000
    for event in SessionEvent.objects.all():
        assert len(canonical.dumps(event.data).encode()) <= 2000
    reference = SessionEvent.objects.get(type="turn.completed").data["response"]
    assert reference["ref"] == f"turns/{result.execution_id}/"
    assert reference["bytes"] == len(canonical.dumps("ü" * 5000).encode())
    assert reference["sha256"] == canonical.digest("ü" * 5000)


def test_prv_06_a_call_id_of_any_kind_does_no_harm(scripted):
    odd = calls(*(("echo", {"q": str(n)}) for n in range(5)))
    ids = [None, "x" * 500, "é😀", "c1", "c1"]
    odd = dataclasses.replace(
        odd, tool_calls=tuple(dataclasses.replace(c, id=id) for c, id in zip(odd.tool_calls, ids, strict=True))
    )
    provider = scripted([odd, "Done.", "Again."])
    first = runtime.execute(AGENT, "go")
    assert [call.status for call in first.steps[0].tool_calls] == ["completed"] * 5
    runtime.execute(AGENT, "again", session_id=first.session_id)
    provider.assert_valid()
    assert len(set(ToolCall.objects.values_list("call_id", flat=True))) == 5
    assert_invariants()


def test_prv_08_a_broken_history_is_repaired_in_the_request_and_left_as_it_is_in_the_rows(scripted, caplog):
    provider = scripted([calls(("echo", {"q": "a"}), ("echo", {"q": "b"}), content=""), "Done.", "Next."])
    first = runtime.execute(AGENT, "go")
    ToolCall.objects.filter(arguments__q="a").update(status="executing", result=None, completed_at=None)
    ToolCall.objects.filter(arguments__q="b").delete()
    before = list(ToolCall.objects.values())
    assert runtime.execute(AGENT, "next", session_id=first.session_id).response == "Next."
    provider.assert_valid()
    results = [message for message in provider.requests[2].messages if message.role == "tool"]
    assert [message.content for message in results] == ["There is no result of this call."]
    assert list(ToolCall.objects.values()) == before
    [told] = [record for record in caplog.records if "incomplete" in record.message]
    assert (told.calls_missing, told.results_missing) == (1, 1)
