"""However long a session and its results are, a request keeps to its tokens, and its making to a bounded work."""

import json

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agentcore import ToolContext, TurnState, agent, canonical, clock, runtime, tool
from agentcore.agents.registry import registry
from agentcore.engine import budget, history
from agentcore.models import AgentContext, AgentStep, ToolCall
from agentcore.providers import registry as providers
from agentcore.testing import ScriptedProvider, assert_invariants, calls, make_session, make_user

pytestmark = pytest.mark.django_db(transaction=True)

AGENT = "talkative-agent"


@agent(name=AGENT, system_prompt="You talk.", model="scripted:any", max_steps=30)
class TalkativeAgent:
    @tool(description="Return so much text", idempotent=True)
    def read(self, size: int, letter: str = "x") -> str:
        return letter * size

    @tool(description="Remember so much text")
    def remember(self, size: int, ctx: ToolContext) -> str:
        ctx.working_memory["note"] = "x" * size
        return "remembered"

    @tool(description="Needs a person", requires_approval=True)
    def pay(self, amount: int) -> str:
        return "paid"


registry.unregister(AGENT)


@pytest.fixture(autouse=True)
def _agent():
    runtime.register(TalkativeAgent)
    yield
    registry.unregister(AGENT)


@pytest.fixture
def window(settings):
    """Set the tokens of a request."""

    def narrow(tokens):
        settings.AGENTCORE = {"CONTEXT_TOKENS": tokens}
        return tokens

    return narrow


def cost(request):
    return sum(map(budget.message_tokens, request.messages)) + budget.tools_tokens(request.tools)


def contents(request, role="user"):
    return [message.content for message in request.messages if message.role == role]


def assert_within(provider, tokens):
    provider.assert_valid()
    assert max(map(cost, provider.requests)) <= tokens


def seed(session, turns, *, text=200, with_calls=0):
    """Store ended turns as they are stored by working, quickly; the last `with_calls` of them had a call."""
    now = clock.now()
    stored = [
        AgentContext(
            session=session,
            agent=session.agent,
            revision=session.revision,
            input={"role": "user", "content": f"question {n} {'q' * text}"},
            state=TurnState.COMPLETED,
            response=f"answer {n} {'a' * text}",
            idempotency_key=f"k{n}",
            idempotency_digest=canonical.text_digest(f"k{n}"),
            body_digest="0" * 64,
            max_steps=10,
            turn_timeout=300,
            step_count=2 if n >= turns - with_calls else 1,
            created_at=now,
            updated_at=now,
            completed_at=now,
        )
        for n in range(turns)
    ]
    AgentContext.objects.bulk_create(stored, batch_size=200)
    steps, asked = [], []
    for n, turn in enumerate(AgentContext.objects.filter(session=session).order_by("pk")):
        common = {"turn": turn, "state": "completed", "started_at": now, "completed_at": now}
        if turn.step_count == 2:
            request = {"id": f"c{n}", "name": "read", "arguments": '{"size":3}'}
            message = {"role": "assistant", "tool_calls": [request]}
            steps.append(AgentStep(number=1, action="use_tool", message=message, **common))
        message = {"role": "assistant", "content": turn.response}
        steps.append(AgentStep(number=turn.step_count, action="respond", message=message, **common))
    AgentStep.objects.bulk_create(steps, batch_size=200)
    for n, step in enumerate(AgentStep.objects.filter(turn__session=session, action="use_tool").order_by("pk")):
        asked.append(
            ToolCall(
                turn_id=step.turn_id,
                step=step,
                position=0,
                provider_call_id=f"c{n}",
                tool="read",
                raw_arguments='{"size":3}',
                arguments={"size": 3},
                status="completed",
                result="xxx",
                completed_at=now,
            )
        )
    ToolCall.objects.bulk_create(asked, batch_size=200)


# Results


@pytest.mark.parametrize(("letter", "size"), [("x", 5_000_000), ("字", 400_000), ("😀", 400_000)])
def test_prv_17_one_huge_result_does_not_end_the_session(letter, size, scripted, window):
    tokens = window(8_000)
    provider = scripted([calls(("read", {"size": size, "letter": letter})), "Long.", "Hi."])
    first = runtime.execute(AGENT, "read it")
    second = runtime.execute(AGENT, "hi", session_id=first.session_id)
    assert (first.response, second.response) == ("Long.", "Hi.")
    assert_within(provider, tokens)
    [told] = contents(provider.requests[1], "tool")
    assert f"[cut: the result has {size} characters, the first" in told
    assert len(told) > 2_000
    assert len(ToolCall.objects.get().result) == size
    assert_invariants()


def test_prv_18_many_results_of_one_turn_add_up(scripted, window):
    tokens = window(8_000)
    one = calls(("read", {"size": 4_500}))
    provider = scripted([one] * 20 + ["Enough.", "Hi."])
    first = runtime.execute(AGENT, "read all of it")
    second = runtime.execute(AGENT, "hi", session_id=first.session_id)
    assert (first.response, second.response) == ("Enough.", "Hi.")
    assert_within(provider, tokens)
    assert {contents(request)[0] for request in provider.requests} == {"read all of it"}
    assert {len(contents(request, "tool")[-1]) for request in provider.requests[1:21]} == {4_500}
    assert contents(provider.requests[-1])[-1] == "hi"
    assert_invariants()


def test_prv_18_many_results_of_one_reply_add_up(scripted, window):
    tokens = window(8_000)
    provider = scripted([calls(*[("read", {"size": 4_500})] * 20), "Enough.", "Hi."])
    first = runtime.execute(AGENT, "read all of it")
    second = runtime.execute(AGENT, "hi", session_id=first.session_id)
    assert (first.response, second.response) == ("Enough.", "Hi.")
    assert_within(provider, tokens)
    told = contents(provider.requests[1], "tool")
    assert len(told) == 20
    assert all("[cut: the result has 4500 characters" in text for text in told)


def test_a_huge_call_does_not_end_the_session(scripted, window):
    tokens = window(4_000)
    provider = scripted([calls(("read", json.dumps({"size": 3, "letter": "x" * 300_000}))), "Done.", "Hi."])
    first = runtime.execute(AGENT, "go")
    assert runtime.execute(AGENT, "hi", session_id=first.session_id).response == "Hi."
    assert_within(provider, tokens)


# Messages


def test_the_oldest_are_left_out_and_the_first_and_the_own_message_stay(scripted, window):
    tokens = window(2_000)
    session = make_session(AGENT)
    seed(session, 60)
    provider = scripted([calls(("read", {"size": 900})), "Done."])
    runtime.execute(AGENT, "now", session_id=session.session_id)
    assert_within(provider, tokens)
    for request in provider.requests:
        asked = [text.split()[:2] for text in contents(request)]
        assert (asked[0], asked[-1]) == (["question", "0"], ["now"])
        numbers = [int(words[1]) for words in asked[1:-1]]
        assert numbers == list(range(60 - len(numbers), 60))
        assert request.messages[0].content == "You talk."
    assert contents(provider.requests[1], "tool") == ["x" * 900]


def test_a_first_message_that_fills_the_window_does_not_end_the_session(scripted, window):
    session = make_session(AGENT)
    provider = scripted(["Long.", "Hi."])
    runtime.execute(AGENT, "word " * 10_000, session_id=session.session_id)
    tokens = window(2_000)
    assert runtime.execute(AGENT, "hi", session_id=session.session_id).response == "Hi."
    assert cost(provider.requests[1]) <= tokens
    first, own = contents(provider.requests[1])
    assert "[cut: the message has 50000 characters" in first
    assert own == "hi"


def test_a_window_too_small_for_the_message_is_a_clear_failure(scripted, window):
    window(2_000)
    provider = scripted(["Hi."])
    result = runtime.execute(AGENT, "word " * 10_000)
    assert (result.state, result.error["code"]) == (TurnState.FAILED, "too_large")
    assert "CONTEXT_TOKENS" in result.error["message"]
    assert provider.call_count == 0
    assert runtime.execute(AGENT, "hi", session_id=result.session_id).response == "Hi."
    assert_within(provider, 2_000)
    assert_invariants()


def test_a_window_too_small_for_the_tools_is_a_clear_failure(scripted, window):
    window(20)
    provider = scripted(["Hi."])
    assert runtime.execute(AGENT, "hi").error["code"] == "too_large"
    assert provider.call_count == 0


def test_working_memory_takes_a_part_of_the_window(scripted, window, run_turns):
    tokens = window(2_000)
    provider = scripted([calls(("remember", {"size": 100_000})), calls(("pay", {"amount": 1})), "Done."])
    result = runtime.execute(AGENT, "go")
    runtime.approve(result.pending_approvals[0].id, make_user(permissions=("agentcore.decide_toolapproval",)))
    run_turns()
    assert runtime.result(result.execution_id).response == "Done."
    assert "[cut: the context has" in provider.requests[-1].messages[0].content
    assert_within(provider, tokens)


class Window(ScriptedProvider):
    """A provider of a project's own."""

    made: list["Window"] = []

    def __init__(self):
        super().__init__(lambda request: "Done.")
        self.made.append(self)


@pytest.mark.parametrize(("given", "code"), [(1_000, None), ("1000", "driver_unavailable"), (0, "driver_unavailable")])
def test_a_provider_has_its_own_window(given, code, settings):
    settings.AGENTCORE = {
        "PROVIDERS": {"scripted": {"class": f"{__name__}.Window", "context_tokens": given}},
        "CONTEXT_TOKENS": 50,
    }
    session = make_session(AGENT)
    seed(session, 30)
    result = runtime.execute(AGENT, "hi", session_id=session.session_id)
    assert (result.error or {}).get("code") == code
    if code is None:
        assert 500 < cost(Window.made[-1].requests[0]) <= given
        assert providers.get_context_tokens("scripted") == given


# The work of it


@pytest.mark.parametrize(("text", "with_calls"), [(200, 0), (0, 2_500), (2_000, 100)])
def test_mem_07_the_work_of_a_turn_is_bounded_with_5000_messages(text, with_calls, scripted, monkeypatch):
    session = make_session(AGENT)
    seed(session, 2_500, text=text, with_calls=with_calls)
    provider = scripted(["Done.", "Done."])
    usual = queries_of_a_turn(make_session(AGENT))
    turns = []
    monkeypatch.setattr(history, "_TurnRow", _noting(history._TurnRow, turns))
    assert queries_of_a_turn(session) - usual <= 16
    assert len(turns) <= 1 + history.MAX_MESSAGES / 2 + 10
    request = provider.requests[-1]
    assert cost(request) <= 100_000
    assert len(request.messages) <= history.MAX_MESSAGES + 10
    assert contents(request)[0].startswith("question 0")
    assert contents(request)[-1] == "now"
    provider.assert_valid()


def queries_of_a_turn(session):
    turn = runtime.enqueue(session.session_id, "now").turn
    with CaptureQueriesContext(connection) as captured:
        runtime.resume(turn.execution_id)
    assert runtime.result(turn.execution_id).response == "Done."
    return len(captured)


def _noting(row_class, seen):
    def make(*fields):
        seen.append(fields[0])
        return row_class(*fields)

    return make


def test_mem_07_a_session_with_little_in_it_is_read_with_one_query(scripted):
    session = make_session(AGENT)
    seed(session, 20)
    turn = runtime.enqueue(session.session_id, "now").turn
    provider = scripted(["Done."])
    with CaptureQueriesContext(connection) as captured:
        runtime.resume(turn.execution_id)
    reading = [query["sql"] for query in captured if "step_count" in query["sql"] and "DESC LIMIT 50" in query["sql"]]
    assert len(reading) == 1
    assert len(provider.requests[0].messages) == 1 + 2 * 20 + 1


def test_what_is_read_is_what_was_added_in_memory(scripted, run_turns):
    """After a pause the rows give the same conversation that grew in memory before it."""
    both = calls(("read", {"size": 3}), ("read", "nonsense"), content="Reading.")
    provider = scripted(["One.", both, calls(("read", {"size": 4})), calls(("pay", {"amount": 1})), "Done."])
    first = runtime.execute(AGENT, "first")
    second = runtime.execute(AGENT, "second", session_id=first.session_id)
    runtime.approve(second.pending_approvals[0].id, make_user(permissions=("agentcore.decide_toolapproval",)))
    run_turns()
    before, after = provider.requests[3], provider.requests[4]
    assert after.messages[: len(before.messages)] == before.messages
    assert [message.role for message in after.messages[len(before.messages) :]] == ["assistant", "tool"]
    provider.assert_valid()
