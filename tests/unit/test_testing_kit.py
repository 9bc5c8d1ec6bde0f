"""The kit that users test with: a scripted model that is strict, a clock, makers, fixtures, and Django's TestCase."""

import json
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase

import agentcore.testing
from agentcore import TurnState, runtime
from agentcore import clock as app_clock
from agentcore.exceptions import ConfigurationError, ProviderOverloaded
from agentcore.messages import Message, ModelDelta, ModelReply, ModelRequest, ToolRequest, ToolSpec
from agentcore.models import AgentContext, AgentSession, ToolApproval
from agentcore.providers import registry
from agentcore.testing import (
    TESTING_AGENT,
    ScriptedProvider,
    assert_invariants,
    calls,
    make_approval,
    make_session,
    make_turn,
    make_user,
    run_turns,
    text,
)
from agentcore.testing import clock as test_clock
from agentcore.testing.agents import ledger
from agentcore.testing.provider import violations

SYSTEM = Message(role="system", content="You are tested.")
USER = Message(role="user", content="hi")
ANSWER = Message(role="assistant", content="hello")


def asks(*ids, content=None):
    requests = tuple(ToolRequest(id=id, name="lookup", arguments="{}") for id in ids)
    return Message(role="assistant", content=content, tool_calls=requests)


def result(id, content="found"):
    return Message(role="tool", content=content, tool_call_id=id)


def request(*messages, tools=()):
    return ModelRequest(model="any", messages=messages, tools=tools)


@pytest.mark.parametrize(
    "messages",
    [
        (USER,),
        (SYSTEM, USER),
        (SYSTEM, USER, ANSWER, USER),
        (SYSTEM, USER, asks("c1"), result("c1")),
        (SYSTEM, USER, asks("c1", "c2", content="looking"), result("c1"), result("c2", content=""), ANSWER, USER),
        (SYSTEM, USER, asks("c1"), result("c1"), asks("c2"), result("c2")),
        (SYSTEM, USER, USER),
    ],
)
def test_a_request_that_a_strict_api_takes_is_valid(messages):
    assert list(violations(request(*messages))) == []


VIOLATIONS = {
    "no message at all": ((), "last message is not a user's or a tool's"),
    "the system speaks last": ((USER, SYSTEM), "last message is not a user's or a tool's"),
    "the assistant speaks last": ((USER, ANSWER), "last message is not a user's or a tool's"),
    "a call without a result": ((USER, asks("c1"), USER), "asks for ['c1']"),
    "a call without a result at the end": ((USER, asks("c1")), "asks for ['c1']"),
    "one of two results is missing": ((USER, asks("c1", "c2"), result("c1"), USER), "asks for ['c1', 'c2']"),
    "results in another order": ((USER, asks("c1", "c2"), result("c2"), result("c1")), "come results of ['c2', 'c1']"),
    "two results of one call": ((USER, asks("c1"), result("c1"), result("c1")), "come results of ['c1', 'c1']"),
    "a result of another call": ((USER, asks("c1"), result("c9")), "come results of ['c9']"),
    "a result not right after its call": ((USER, asks("c1"), USER, result("c1")), "asks for ['c1']"),
    "a result without a call": ((USER, result("c1")), "message 1 is a result without a call"),
    "a result after an answer": ((USER, ANSWER, result("c1")), "message 2 is a result without a call"),
    "a result first of all": ((result("c1"),), "message 0 is a result without a call"),
    "a result without an id": ((USER, asks("c1"), result(None)), "without tool_call_id"),
    "an id used twice in a reply": ((USER, asks("c1", "c1"), result("c1"), result("c1")), "repeats or leaves out"),
    "an empty id": ((USER, asks(""), result("")), "repeats or leaves out"),
    "no content": ((Message(role="user"),), "message 0 (user) has null content"),
    "no content of an answer": ((USER, Message(role="assistant"), USER), "message 1 (assistant) has null content"),
    "no content of a result": ((USER, asks("c1"), result("c1", content=None)), "message 2 (tool) has null content"),
    "an empty answer": ((USER, Message(role="assistant", content=""), USER), "message 1 is an empty answer"),
    "a lone surrogate": ((Message(role="user", content="\ud83d"),), "message 0 cannot be encoded"),
    "a lone surrogate in arguments": (
        (
            USER,
            Message(role="assistant", tool_calls=(ToolRequest(id="c1", name="lookup", arguments='"\ud83d"'),)),
            result("c1"),
        ),
        "message 1 cannot be encoded",
    ),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_each_violation_is_found_and_told_twice(name):
    messages, expected = VIOLATIONS[name]
    assert any(expected in found for found in violations(request(*messages)))
    provider = ScriptedProvider(["never given"])
    with pytest.raises(AssertionError, match="Request 1 is not valid"):
        provider.complete(request(*messages))
    with pytest.raises(AssertionError) as told:
        provider.assert_valid()
    assert expected in str(told.value)


def test_an_id_that_an_earlier_reply_used_is_a_violation():
    messages = (USER, asks("c1"), result("c1"), asks("c1"), result("c1"))
    assert any("used before" in found for found in violations(request(*messages)))


def test_tools_that_share_a_name_are_a_violation():
    specs = tuple(ToolSpec(name=name, description="", parameters={}) for name in ("Pay", "pay"))
    assert any("share a name" in found for found in violations(request(USER, tools=specs)))


def test_replies_are_replayed_in_order_and_counted():
    provider = ScriptedProvider(["one", text("two"), calls(("lookup", {"q": "a"})), ProviderOverloaded("busy")])
    assert provider.complete(request(USER)).content == "one"
    assert provider.complete(request(USER)) == text("two")
    [call] = provider.complete(request(USER)).tool_calls
    assert (call.id, call.name, json.loads(call.arguments)) == ("c1", "lookup", {"q": "a"})
    with pytest.raises(ProviderOverloaded, match="busy"):
        provider.complete(request(USER))
    with pytest.raises(AssertionError, match="4 replies; this is request 5"):
        provider.complete(request(USER))
    assert provider.call_count == len(provider.requests) == 5
    provider.assert_valid()


def test_a_script_may_be_a_function_of_the_request():
    provider = ScriptedProvider(lambda asked: f"You said {asked.messages[-1].content}.")
    assert provider.complete(request(USER)).content == "You said hi."


def test_arguments_given_as_text_are_sent_as_they_are():
    [call] = calls(("pay", '{"amount": ')).tool_calls
    assert call.arguments == '{"amount": '


def test_a_scripted_reply_can_be_streamed():
    provider = ScriptedProvider(["one", calls(("lookup", {"q": "a"}))])
    assert list(provider.stream(request(USER))) == [ModelDelta(text="one"), text("one")]
    [reply] = provider.stream(request(USER))
    assert isinstance(reply, ModelReply)


def test_threads_that_ask_at_once_get_each_reply_once():
    provider, barrier, given = ScriptedProvider([str(n) for n in range(80)]), threading.Barrier(8), []

    def ask():
        barrier.wait(10)
        for _ in range(10):
            given.append(provider.complete(request(USER)).content)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(given, key=int) == [str(n) for n in range(80)]


def test_a_provider_is_installed_until_the_block_ends():
    outer, inner = ScriptedProvider(), ScriptedProvider()
    with outer.installed(), outer.installed("mine"):
        assert registry.get_provider("scripted") is registry.get_provider("mine") is outer
        with inner.installed():
            assert registry.get_provider("scripted") is inner
        assert registry.get_provider("scripted") is outer
    with pytest.raises(ConfigurationError):
        registry.get_provider("mine")


def test_the_fixture_installs_until_the_test_ends(scripted):
    first = scripted(["one"])
    assert registry.get_provider("scripted") is first
    second = scripted(["two"])
    assert registry.get_provider("scripted") is second


def test_the_fixtures_bear_the_names_of_what_they_give(
    clock, make_session, make_turn, make_approval, run_turns, assert_invariants
):
    kit = agentcore.testing
    assert clock is kit.clock
    assert (make_session, make_turn, make_approval) == (kit.make_session, kit.make_turn, kit.make_approval)
    assert (run_turns, assert_invariants) == (kit.run_turns, kit.assert_invariants)


def test_everything_the_kit_names_is_there():
    for name in agentcore.testing.__all__:
        assert getattr(agentcore.testing, name) is not None
    with pytest.raises(AttributeError):
        _ = agentcore.testing.nothing


CHECKED_WITH_THE_KIT = """
import django
django.setup()
import agentcore.testing
from agentcore.testing import ScriptedProvider, make_turn
from django.core.checks import run_checks
print([message.id for message in run_checks() if message.is_serious()])
"""


def test_a_project_that_imports_the_kit_passes_its_system_checks():
    """Django's test runner checks the project after it has imported the tests, and the kit with them."""
    done = subprocess.run(
        [sys.executable, "-c", CHECKED_WITH_THE_KIT],
        capture_output=True,
        text=True,
        timeout=50,
        env={"DJANGO_SETTINGS_MODULE": "tests.settings", "PATH": ""},
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stdout + done.stderr


def test_without_a_script_the_agent_of_the_kit_says_what_is_missing(db):
    turn = runtime.execute(TESTING_AGENT, "hi")
    assert turn.state == TurnState.FAILED
    assert "'scripted'" in turn.error["message"]


class TestClock:
    def test_advance_takes_a_duration_or_seconds(self, clock):
        before = clock.now()
        clock.advance(timedelta(hours=1))
        clock.advance(60)
        clock.advance(0.5)
        assert timedelta(seconds=3660.5) <= clock.now() - before < timedelta(seconds=3670)

    def test_set_goes_to_a_moment_from_which_time_goes_on(self, clock):
        clock.set(datetime(2030, 1, 1, tzinfo=UTC))
        first = clock.now()
        assert datetime(2030, 1, 1, tzinfo=UTC) <= first <= clock.now()
        clock.advance(10)
        assert clock.now() >= first + timedelta(seconds=10)

    def test_reset_goes_back(self, clock):
        clock.advance(10_000)
        clock.reset()
        assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=5)


@pytest.mark.django_db
class TestMakers:
    def test_a_session_is_made_as_the_product_makes_it(self):
        session = make_session(title="T", user=make_user("owner"))
        assert (session.title, session.user_name, session.last_sequence) == ("T", "owner", 1)
        assert_invariants()

    def test_a_turn_has_a_session_and_waits_in_the_queue(self):
        turn = make_turn(message="hello")
        assert (turn.state, turn.input["content"]) == ("queued", "hello")
        owner = make_user()
        assert make_turn(user=owner).session.user == owner

    def test_an_approval_waits_with_its_turn(self):
        approval = make_approval()
        assert (approval.tool, approval.arguments) == ("pay", {"amount": 10, "to": "acme"})
        assert (approval.status, approval.turn.state) == ("pending", "waiting_for_approval")
        assert make_approval("wipe", {"path": "/t"}, user=make_user("owner")).requester_name == "owner"
        assert_invariants()

    def test_a_tool_that_is_not_asked_about_is_no_approval(self):
        with pytest.raises(AssertionError, match="'lookup' was not asked about"):
            make_approval("lookup", {"q": "a"})

    def test_the_script_of_the_test_goes_on_after_the_approval(self, scripted):
        ledger.clear()
        provider = scripted(["Paid."])
        approval = make_approval()
        runtime.approve(approval.pk, make_user(permissions=("agentcore.decide_toolapproval",)))
        assert run_turns() == 1
        assert ledger.entries == [("pay", 10, "acme")]
        assert provider.call_count == 1

    def test_run_turns_works_until_the_queue_is_empty(self, scripted):
        scripted(["one", "two", "three"])
        for _ in range(3):
            make_turn()
        assert run_turns() == 3
        assert run_turns() == 0
        assert set(AgentContext.objects.values_list("state", flat=True)) == {"completed"}

    def test_a_user_has_the_permissions_that_are_named(self):
        user = make_user(permissions=("agentcore.decide_toolapproval", "agentcore.view_agentsession"))
        assert user.has_perm("agentcore.decide_toolapproval")
        assert not user.has_perm("agentcore.view_metrics")


class InATestCaseTests(TestCase):
    """Nothing commits here: the whole story runs in the test's transaction and thread."""

    @classmethod
    def setUpTestData(cls):
        cls.reviewer = make_user("reviewer", permissions=("agentcore.decide_toolapproval",))
        cls.session = make_session(user=make_user("owner"))

    def setUp(self):
        ledger.clear()
        self.addCleanup(test_clock.reset)

    def test_a_turn_waits_and_goes_on(self):
        with ScriptedProvider([calls(("pay", {"amount": 10, "to": "acme"})), "Paid."]).installed() as provider:
            waiting = runtime.execute(TESTING_AGENT, "pay", session_id=self.session.session_id, user=self.session.user)
            assert waiting.state == TurnState.WAITING_FOR_APPROVAL
            runtime.approve(waiting.pending_approvals[0].id, self.reviewer)
            run_turns()
        assert runtime.result(waiting.execution_id).response == "Paid."
        assert ledger.entries == [("pay", 10, "acme")]
        provider.assert_valid()
        assert_invariants()

    def test_models_and_tools_run_in_the_thread_of_the_test_and_see_its_rows(self):
        seen = []

        def answer(asked):
            seen.append((threading.current_thread(), AgentSession.objects.count(), connection.in_atomic_block))
            return "ok"

        with ScriptedProvider(answer).installed():
            runtime.execute(TESTING_AGENT, "hi")
        assert seen == [(threading.current_thread(), 2, True)]

    def test_the_clock_expires_an_approval(self):
        approval = make_approval(session=self.session, user=self.session.user)
        test_clock.advance(timedelta(days=8))
        with ScriptedProvider(["Nobody was there."]).installed():
            assert runtime.tick()["expired"] == 1
            run_turns()
        approval.refresh_from_db()
        assert approval.status == "expired"
        assert_invariants()

    def test_a_block_inside_the_test_is_a_transaction_as_any_other(self):
        with pytest.raises(RuntimeError, match="open transaction"):
            self._execute_in_a_block()
        assert AgentContext.objects.count() == 0

    def _execute_in_a_block(self):
        with transaction.atomic():
            runtime.execute(TESTING_AGENT, "hi")

    def test_rows_of_one_test_are_gone_in_the_next(self):
        make_approval(session=self.session, user=self.session.user)
        assert ToolApproval.objects.count() == 1

    def test_rows_of_one_test_are_gone_in_the_next_2(self):
        assert ToolApproval.objects.count() == 0


class InATransactionTestCaseTests(TransactionTestCase):
    """Everything commits here, and tools run in threads of their own."""

    def test_the_whole_story(self):
        ledger.clear()
        reviewer = make_user("reviewer", permissions=("agentcore.decide_toolapproval",))
        threads = []

        def answer(asked):
            threads.append(threading.current_thread())
            return calls(("pay", {"amount": 1, "to": "x"})) if len(threads) == 1 else "Paid."

        with ScriptedProvider(answer).installed():
            waiting = runtime.execute(TESTING_AGENT, "pay", user=make_user("owner"))
            runtime.approve(waiting.pending_approvals[0].id, reviewer)
            run_turns()
        assert runtime.result(waiting.execution_id).response == "Paid."
        assert threading.current_thread() not in threads
        assert_invariants()


def test_the_clock_of_the_kit_moves_the_clock_of_the_app(clock):
    before = app_clock.now()
    clock.advance(100)
    assert app_clock.now() - before >= timedelta(seconds=100)


def test_a_reply_can_be_changed_as_any_value():
    assert replace(text("a"), finish_reason="length").finish_reason == "length"
