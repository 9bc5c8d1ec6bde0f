"""A tool that leaves its connection in the middle of reading takes nobody with it."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission
from django.db import connection

from agentcore import ToolContext, TurnState, agent, runtime, tool
from agentcore.agents.registry import registry
from agentcore.testing import assert_invariants, calls
from tests import settings, sqlite_file

pytestmark = pytest.mark.django_db(transaction=True)

NAME = "reader"


@pytest.fixture(autouse=True)
def _reader():
    @agent(name=NAME, model="scripted:x")
    class Reader:
        @tool(description="Reads, and fails in the middle")
        def fail(self) -> str:
            cursor = connection.cursor()
            cursor.execute("SELECT id FROM auth_permission")
            cursor.fetchone()
            raise ValueError("in the middle")

        @tool(description="Reads, and looks whether it was cancelled")
        def count(self, ctx: ToolContext) -> int:
            return sum(not ctx.cancelled for _ in Permission.objects.iterator(chunk_size=2))

    yield
    registry.unregister(NAME)


@pytest.fixture(params=["as it is", "as Django sets it up"])
def database(request, tmp_path):
    """SQLite both with and without a write-ahead log; the others once."""
    if request.param == "as it is":
        yield
        return
    if settings.TEST_DB != "sqlite":
        pytest.skip("is about SQLite")
    with sqlite_file.plain_copy(tmp_path, {"timeout": 1}):
        yield


def test_an_error_with_an_open_cursor_locks_nobody_out(scripted, database):
    scripted([calls(("fail", {})), "Done."])
    result = runtime.execute(NAME, "go")
    assert (result.state, result.response) == (TurnState.COMPLETED, "Done.")
    assert_invariants()


def test_looking_whether_it_was_cancelled_leaves_the_tools_own_reading_alone(scripted, database, monkeypatch):
    monkeypatch.setattr("agentcore.engine.tool_context.CANCEL_CHECK_SECONDS", 0)
    provider = scripted([calls(("count", {})), "Done."])
    result = runtime.execute(NAME, "go")
    assert result.state == TurnState.COMPLETED
    [told] = [message.content for message in provider.requests[-1].messages if message.role == "tool"]
    assert told == str(Permission.objects.count())
    assert_invariants()
