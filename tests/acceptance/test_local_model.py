"""A real small model on this machine, end to end: it asks for a tool, a person approves, the turn goes on.

AGENTCORE_LOCAL_MODEL says where it is, and without it these tests are skipped:

- the address of a running server that speaks OpenAI's chat completions and knows response formats, as
  http://127.0.0.1:8080/v1 (AGENTCORE_LOCAL_MODEL_NAME is the model's name there), or
- a folder with one *.gguf and node_modules/node-llama-cpp; it is served by local_model/serve.mjs, with Node.js.

A model of a few hundred million parameters does, so nothing is said about its words: only that what it asks for
is a call that fits the tool.
"""

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import override_settings

from agentcore import TurnState, agent, runtime, tool
from agentcore.agents.registry import registry
from agentcore.messages import Message, ModelReply, ModelRequest, ToolSpec
from agentcore.models import ToolApproval, ToolCall
from agentcore.providers.registry import get_provider
from agentcore.testing import assert_invariants, make_session, make_turn, run_turns
from agentcore.testing.makers import make_user
from agentcore.tools import schema

PLACE = os.environ.get("AGENTCORE_LOCAL_MODEL", "")
MODEL = os.environ.get("AGENTCORE_LOCAL_MODEL_NAME", "local")
SERVE = Path(__file__).parent / "local_model" / "serve.mjs"
SECONDS_TO_START = 120
AGENT = "refund-desk"

WISHES = [
    "Refund 30 euros for order 5512.",
    "Please refund order 77123, the amount is 12.",
    "Look up order 90817.",
    "Where is my order 90817?",
]


def why_not() -> str | None:
    if not PLACE:
        return "no model: set AGENTCORE_LOCAL_MODEL to the address of a server or to a folder with a model"
    if PLACE.startswith(("http://", "https://")):
        return None
    if shutil.which("node") is None:
        return f"no Node.js to serve the model in {PLACE}"
    if len(list(Path(PLACE).glob("*.gguf"))) != 1:
        return f"no weights: there is not one *.gguf in {PLACE}"
    if not Path(PLACE, "node_modules", "node-llama-cpp").is_dir():
        return f"no node_modules/node-llama-cpp in {PLACE}"
    return None


pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    if PLACE.startswith(("http://", "https://")):
        yield PLACE
        return
    server = subprocess.Popen(["node", str(SERVE), PLACE], stdout=subprocess.PIPE, text=True)
    try:
        yield f"http://127.0.0.1:{_port(server)}/v1"
    finally:
        server.kill()
        server.communicate()


def _port(server: subprocess.Popen[str]) -> int:
    """Return the port that the server prints when it is ready; one that never gets there is killed."""
    late = threading.Timer(SECONDS_TO_START, server.kill)
    late.start()
    try:
        line = server.stdout.readline() if server.stdout else ""
    finally:
        late.cancel()
    if not line.strip():
        raise AssertionError(f"The server of {PLACE} did not start within {SECONDS_TO_START} s.")
    return int(line)


@pytest.fixture(autouse=True)
def _local(address: str) -> Iterator[None]:
    entry = {"class": "openai", "base_url": address, "tool_mode": "json_schema", "timeout": 120}
    with override_settings(AGENTCORE={"PROVIDERS": {"local": entry}, "DISPATCH": "celery"}):
        yield


@pytest.fixture
def refunds() -> Iterator[list[tuple[str, int]]]:
    """An agent that refunds, and what it refunded."""
    done: list[tuple[str, int]] = []

    @agent(
        name=AGENT,
        system_prompt="You are the help desk of a small shop.",
        model=f"local:{MODEL}",
        temperature=0.0,
        max_steps=4,
    )
    class RefundDesk:
        @tool(description="Look up an order by its ID", idempotent=True)
        def lookup_order(self, order_id: str) -> str:
            return f"order {order_id} was delivered on Monday"

        @tool(description="Refund an order", requires_approval=True)
        def refund_order(self, order_id: str, amount: int) -> str:
            done.append((order_id, amount))
            return f"{amount} euros were paid back for order {order_id}"

    yield done
    registry.unregister(AGENT)


@pytest.mark.django_db
def test_a_small_model_asks_waits_for_approval_and_goes_on(refunds):
    turn = make_turn(make_session(AGENT), WISHES[0])
    run_turns()
    turn.refresh_from_db()
    assert turn.state == TurnState.WAITING_FOR_APPROVAL, (turn.state, turn.error, turn.response)
    approval = ToolApproval.objects.get(turn=turn)
    assert (approval.tool, refunds) == ("refund_order", [])

    reviewer = make_user(permissions=("agentcore.decide_toolapproval",))
    runtime.approve(approval.pk, reviewer)
    run_turns()

    turn.refresh_from_db()
    call = ToolCall.objects.get(pk=approval.call_id)
    assert call.status == "completed"
    assert refunds == [(call.arguments["order_id"], call.arguments["amount"])]
    # It may think that it has to do more, which a person would then be asked about.
    assert turn.state in (TurnState.COMPLETED, TurnState.WAITING_FOR_APPROVAL), turn.error
    assert_invariants()


@tool(description="Look up an order by its ID")
def lookup_order(order_id: str) -> str: ...


@tool(description="Refund an order")
def refund_order(order_id: str, amount: int) -> str: ...


TOOLS = {shown.definition.name: shown.definition for shown in (lookup_order, refund_order)}


@pytest.mark.parametrize("streams", [False, True], ids=["complete", "stream"])
def test_every_reply_of_a_small_model_is_an_answer_or_a_call_that_fits(streams):
    provider, calls = get_provider("local"), 0
    for wish in WISHES:
        request = ModelRequest(
            model=MODEL,
            messages=(Message(role="user", content=wish),),
            tools=tuple(
                ToolSpec(name=name, description=definition.description, parameters=definition.parameters)
                for name, definition in TOOLS.items()
            ),
            temperature=0.0,
            max_tokens=150,
            timeout=120,
        )
        *pieces, reply = provider.stream(request) if streams else [provider.complete(request)]
        assert isinstance(reply, ModelReply)
        shown = "".join(piece.text for piece in pieces)
        assert not shown.lstrip().startswith("{"), shown
        if reply.finish_reason == "length":
            continue
        assert bool(reply.content) != bool(reply.tool_calls), reply
        calls += len(reply.tool_calls)
        for call in reply.tool_calls:
            definition = TOOLS[call.name]
            schema.validate_arguments(definition, schema.parse_arguments(definition, call.arguments))
    assert calls
