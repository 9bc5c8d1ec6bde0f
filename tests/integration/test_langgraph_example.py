"""The code of docs/how-to/run-a-langgraph-graph.md runs as it stands there."""

import importlib
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("langgraph", reason="needs langgraph, of the extra dev")

from agentcore import TurnState, runtime
from agentcore.agents.registry import registry as agents
from agentcore.drivers.registry import registry as drivers
from agentcore.models import AgentSession, SessionEvent

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = Path(__file__).parents[2] / "docs/how-to/run-a-langgraph-graph.md"


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Write the page's files as the package `desk`, import its agents, and return the page's dialogue."""
    text = PAGE.read_text()
    package = tmp_path / "desk"
    package.mkdir()
    (package / "__init__.py").touch()
    files = re.findall(r"```python\n# desk/(\w+\.py)\n(.*?)```", text, re.DOTALL)
    assert [name for name, _ in files] == ["graph.py", "drivers.py", "agents.py"]
    for name, code in files:
        (package / name).write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("desk.agents")
    yield re.findall(r"^'(.*)'$", text, re.MULTILINE)
    agents.unregister("graph-desk")
    drivers.unregister("desk-graph")
    for name in [name for name in sys.modules if name.partition(".")[0] == "desk"]:
        del sys.modules[name]


def test_the_graph_of_the_page_answers_as_the_page_says(page, assert_invariants):
    first = runtime.execute("graph-desk", "Where is 4711?")
    second = runtime.execute("graph-desk", "And 4712?", session_id=first.session_id)
    assert [first.response, second.response] == page
    assert (first.state, second.state) == (TurnState.COMPLETED, TurnState.COMPLETED)
    nodes = SessionEvent.objects.filter(type="desk.node", turn_id=first.execution_id).order_by("sequence")
    assert [event.data for event in nodes] == [
        {"node": "decide", "calls": ["find_order"]},
        {"node": "tools", "calls": []},
        {"node": "decide", "calls": []},
    ]
    assert_invariants()


def test_each_session_has_a_thread_of_its_own(page):
    threads = set()
    for _ in range(2):
        result = runtime.execute("graph-desk", "Where is 4711?")
        assert result.response.endswith("(You asked 1 times.)")
        threads.add(AgentSession.objects.get(session_id=result.session_id).driver_session_id)
    assert len(threads) == 2
    assert all(re.fullmatch("[0-9a-f]{32}", thread) for thread in threads)
