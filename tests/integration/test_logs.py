"""Log records say which turn they are about, and nothing of what was said in it."""

import logging
import re
from pathlib import Path

import pytest

import agentcore
from agentcore import agent, logs, runtime, signals, tool
from agentcore.agents.registry import registry
from agentcore.exceptions import ProviderOverloaded
from agentcore.testing import calls

pytestmark = pytest.mark.django_db

SECRET = "xyzzy-4711"
TALKER = "log-talker"


@pytest.fixture
def talker():
    @agent(name=TALKER, model="scripted:talker", system_prompt=SECRET)
    class Talker:
        @tool(description="Logs, then fails")
        def talk(self, about: str) -> object:
            logging.getLogger("other_package").warning("A tool's library speaks")
            raise ValueError

    yield TALKER
    registry.unregister(TALKER)


@pytest.fixture
def handler(caplog):
    """A project's handler with the filter, as the documentation shows it."""
    caplog.handler.addFilter(logs.TurnFilter())
    caplog.set_level(logging.INFO)
    yield caplog
    caplog.handler.filters.clear()


def test_every_record_of_a_turn_names_it_and_none_holds_content(talker, scripted, handler):
    scripted([calls(("talk", {"about": SECRET}), content=SECRET), ProviderOverloaded("busy")] + [SECRET] * 5)
    result = runtime.execute(talker, SECRET, initial_context={"k": SECRET})
    written = [
        record for record in handler.records if record.name.startswith("agentcore") or record.name == "other_package"
    ]
    assert {record.name for record in written} >= {"agentcore.engine", "other_package"}
    assert {record.execution_id for record in written} == {result.execution_id}
    for record in written:
        shown = {key: value for key, value in record.__dict__.items() if key != "exc_info"}
        assert SECRET not in repr(shown)


def test_a_record_outside_of_a_turn_names_none(handler):
    logging.getLogger("agentcore.engine").warning("Nothing is worked on")
    assert handler.records[-1].execution_id is None


def test_a_record_that_names_a_turn_keeps_it():
    record = logging.makeLogRecord({"execution_id": "its own"})
    assert logs.TurnFilter().filter(record)
    assert record.execution_id == "its own"


def test_every_logger_of_the_package_is_seen_to():
    source = Path(agentcore.__file__).parent
    named = {name for path in source.rglob("*.py") for name in re.findall(r'getLogger\("([\w.]+)"\)', path.read_text())}
    assert len(named) > 8
    assert named <= set(logs.LOGGERS)
    assert all(logs._filter in logging.getLogger(name).filters for name in logs.LOGGERS)


@pytest.fixture
def told():
    received = []

    def receive(*, call, **_):
        received.append(call)

    signals.model_called.connect(receive)
    yield received
    signals.model_called.disconnect(receive)


def test_each_model_call_is_told_by_a_signal_without_content(scripted, told):
    scripted([calls(("lookup", {"q": SECRET})), SECRET])
    result = runtime.execute("testing-agent", SECRET)
    assert [(call.provider, call.model, call.attempt, call.error) for call in told] == [("scripted", "any", 1, "")] * 2
    assert [(call.input_tokens, call.output_tokens, call.finish_reason) for call in told] == [
        (7, 3, "tool_calls"),
        (7, 3, "stop"),
    ]
    assert {call.execution_id for call in told} == {result.execution_id}
    assert SECRET not in repr(told)


def test_a_call_that_fails_is_told_with_the_class_of_its_error(scripted, told):
    scripted([ProviderOverloaded(SECRET)] * 5)
    runtime.execute("testing-agent", "hi")
    assert {call.error for call in told} == {"ProviderOverloaded"}
    assert SECRET not in repr(told)


def test_a_receiver_that_fails_changes_nothing(scripted, caplog):
    def fail(**_):
        raise ZeroDivisionError

    scripted(["Hello."])
    signals.model_called.connect(fail)
    try:
        assert runtime.execute("testing-agent", "hi").response == "Hello."
    finally:
        signals.model_called.disconnect(fail)
    assert "A receiver of model_called failed" in caplog.text
