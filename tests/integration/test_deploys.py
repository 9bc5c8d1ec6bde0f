"""Turns that wait across a deploy: what is stored and sent is read by other code than the one that wrote it."""

import json
import os
import pickletools
import re
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from celery import current_app
from django.apps import apps
from django.core.management import call_command
from django.db import connection, connections, models
from django.db.migrations.loader import MigrationLoader

import agentcore
from agentcore import ApprovalPolicy, TurnState, agent, runtime, tasks, tool
from agentcore.agents.registry import registry
from agentcore.exceptions import Conflict
from agentcore.models import AgentContext, AgentRevision, AgentSession, SessionEvent, ToolApproval, ToolCall
from agentcore.testing import calls, make_user
from tests import settings

REPOSITORY = Path(__file__).resolve().parents[2]
DECIDE = "agentcore.decide_toolapproval"
NAME = "deployed"


@pytest.fixture
def reviewer():
    return make_user("reviewer", permissions=(DECIDE,))


@pytest.fixture
def owner():
    return make_user("owner")


@pytest.fixture(autouse=True)
def _forget_agent():
    yield
    registry.unregister(NAME)


def deploy(prompt, *, model="scripted:first", description="Send it", **options):
    """Define the agent, as a process does that starts with this code."""
    registry.unregister(NAME)

    @agent(name=NAME, system_prompt=prompt, model=model, **options)
    class Deployed:
        @tool(description=description, requires_approval=True)
        def send(self, to: str) -> str:
            return f"sent to {to}"


# What a session began with stays (upg_02)


@pytest.mark.django_db(transaction=True)
def test_upg_02_a_waiting_turn_keeps_its_prompt_model_and_tools(
    scripted, owner, reviewer, run_turns, assert_invariants
):
    provider = scripted([calls(("send", {"to": "x"})), "first done", "second done", "third done"])
    deploy("The first prompt.", max_steps=5)
    waiting = runtime.execute(NAME, "one", session_id="old", user=owner)
    deploy("The second prompt.", model="scripted:second", description="Post it", max_steps=7)
    # The tool means something else now: that is shown to the reviewer first.
    with pytest.raises(Conflict, match="tool changed"):
        runtime.approve(waiting.pending_approvals[0].id, reviewer)
    runtime.approve(waiting.pending_approvals[0].id, reviewer)
    run_turns()
    assert runtime.result(waiting.execution_id).response == "first done"
    # The next turn of the session too; a new session begins with what is deployed now.
    runtime.execute(NAME, "two", session_id="old", user=owner)
    runtime.execute(NAME, "three", session_id="new", user=owner)
    # Without what the new session remembers of the other.
    seen = [
        (ask.messages[0].content.partition("\n\n")[0], ask.model, ask.tools[0].description) for ask in provider.requests
    ]
    assert seen == [("The first prompt.", "first", "Send it")] * 3 + [("The second prompt.", "second", "Post it")]
    limits = AgentContext.objects.order_by("pk").values_list("revision__number", "max_steps")
    assert list(limits) == [(1, 5), (1, 5), (2, 7)]
    assert [session.revision.number for session in AgentSession.objects.order_by("pk")] == [1, 2]
    assert_invariants()


@pytest.mark.django_db(transaction=True)
def test_a_deploy_that_is_rolled_back_makes_the_old_revision_current_again(scripted, owner):
    scripted(["a", "b", "c"])
    for session_id, prompt in (("a", "One."), ("b", "Two."), ("c", "One.")):
        deploy(prompt)
        runtime.execute(NAME, "hi", session_id=session_id, user=owner)
    numbers = [session.revision.number for session in AgentSession.objects.order_by("pk")]
    assert (numbers, AgentRevision.objects.count()) == ([1, 2, 1], 2)


@pytest.mark.django_db(transaction=True)
def test_a_setting_that_changed_does_not_reach_sessions_that_began_before(scripted, settings, owner):
    provider = scripted(["one", "two"])
    deploy("Hi.", model=None)
    settings.AGENTCORE = {"DEFAULT_MODEL": "scripted:old", "MAX_STEPS": 3}
    runtime.execute(NAME, "hi", session_id="s", user=owner)
    settings.AGENTCORE = {"DEFAULT_MODEL": "scripted:new", "MAX_STEPS": 9}
    runtime.execute(NAME, "hi", session_id="s", user=owner)
    assert [request.model for request in provider.requests] == ["old", "old"]
    assert list(AgentContext.objects.values_list("max_steps", flat=True)) == [3, 3]


@pytest.mark.django_db(transaction=True)
def test_an_agent_that_is_gone_ends_its_turn_and_says_so(scripted, owner, reviewer, run_turns, assert_invariants):
    scripted([calls(("send", {"to": "x"}))])
    deploy("Hi.")
    waiting = runtime.execute(NAME, "one", user=owner)
    registry.unregister(NAME)
    with pytest.raises(Conflict, match="not deployed any more"):
        runtime.approve(waiting.pending_approvals[0].id, reviewer)
    run_turns()
    ended = runtime.result(waiting.execution_id)
    assert (ended.state, ended.error["code"]) == (TurnState.FAILED, "driver_unavailable")
    assert NAME in ended.error["message"]
    assert_invariants()


# Messages between old and new processes


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("extra", [{}, {"priority": 5}, {"of_a_newer_sender": {"a": [1]}, "session_id": "s"}])
def test_a_message_with_more_keywords_is_understood(scripted, make_turn, extra):
    scripted(["Hello."])
    turn = make_turn()
    _deliver({"execution_id": str(turn.execution_id), **extra})
    assert runtime.result(turn.execution_id).response == "Hello."


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("keywords", [{}, {"turn_id": "7"}, {"execution_id": None}])
def test_a_message_without_its_keyword_is_left_to_the_sweep(scripted, make_turn, keywords, clock):
    scripted(["Hello."])
    turn = make_turn()
    _deliver(keywords)
    assert runtime.result(turn.execution_id).state == TurnState.QUEUED
    clock.advance(120)
    assert runtime.recover()["sent_again"] == 1


@pytest.mark.django_db(transaction=True)
def test_a_message_about_a_turn_that_is_not_there_does_nothing(make_turn):
    make_turn()
    before = list(SessionEvent.objects.values())
    _deliver({"execution_id": "7f0ddf0e-68d5-4b12-8b3c-0d3d6f8f7a35"})
    assert list(SessionEvent.objects.values()) == before


@pytest.mark.django_db(transaction=True)
def test_the_periodic_task_takes_keywords_it_does_not_know():
    tasks.tick.apply(kwargs={"of_a_newer_sender": 1}, throw=True)


def test_the_names_and_keywords_of_messages_are_a_published_format():
    assert {"agentcore.run_turn", "agentcore.tick"} <= set(current_app.tasks)


def _deliver(keywords):
    """Have the task done as a worker does it: from the JSON of its message."""
    tasks.run_turn.apply(kwargs=json.loads(json.dumps(keywords)), throw=True)


# What is stored is JSON

# Fields that hold text, numbers, times or JSON: nothing that only Python can read.
PLAIN = (
    models.AutoField,
    models.BinaryField,  # numbers as the model's docstring says: not of Python's own
    models.BooleanField,
    models.CharField,
    models.DateTimeField,
    models.DurationField,
    models.FloatField,
    models.IntegerField,
    models.JSONField,
    models.TextField,
    models.UUIDField,
    models.ForeignKey,
)
# "gASV" is how a pickle of protocol 4 begins in base64.
PICKLE_IN_TEXT = re.compile(r"gASV|gAN9|\x80\x04\x95|cbuiltins|ccopy_reg|py/object|!!python")


@dataclass
class Money:
    amount: Decimal
    at: datetime


def test_every_column_is_of_a_kind_that_any_language_reads():
    for model in apps.get_app_config("agentcore").get_models():
        for field in model._meta.concrete_fields:
            assert isinstance(field, PLAIN), field


def test_nothing_in_the_package_pickles():
    source = Path(agentcore.__file__).parent
    found = re.compile(r"\b(import|from) (pickle|marshal|shelve|dill|cloudpickle|copyreg)\b|picklefield")
    assert [path for path in source.rglob("*.py") if found.search(path.read_text())] == []
    assert current_app.conf.task_serializer == "json"
    assert set(current_app.conf.accept_content) == {"json"}


@pytest.mark.django_db(transaction=True)
def test_what_a_turn_leaves_in_every_column_is_plain(scripted, owner, reviewer, run_turns, assert_invariants):
    @agent(name=NAME, model="scripted:x", metadata={"team": "support"})
    class Deployed:
        @tool(description="Everything Python has")
        def gather(self) -> dict:
            return {
                "money": Money(amount=Decimal("1.10"), at=datetime(2026, 1, 1, tzinfo=UTC)),
                "bytes": b"\x00\xff",
                "set": {1, 2},
                "object": object(),
                "class": Money,
            }

        @tool(description="Send", requires_approval=True, approval=ApprovalPolicy(votes=1))
        def send(self, to: str) -> Money:
            return Money(amount=Decimal(3), at=datetime(2026, 1, 1, tzinfo=UTC))

    scripted([calls(("gather", {}), ("send", {"to": "x"}), ("send", {"to": "y"})), "Done."])
    waiting = runtime.execute(
        NAME, "hi", user=owner, metadata={"k": [1, None]}, initial_context={"price": Decimal("9.90"), "when": UTC}
    )
    first, second = ToolApproval.objects.order_by("pk")
    runtime.approve(first.pk, reviewer, arguments={"to": "z"})
    runtime.respond(second.pk, reviewer, {"at": datetime(2026, 1, 1, tzinfo=UTC)})
    run_turns()
    assert runtime.result(waiting.execution_id).state == TurnState.COMPLETED
    assert ToolCall.objects.filter(status="completed").count() == 3
    checked = [_assert_plain(*column) for column in _columns()]
    assert len(checked) > 200
    assert_invariants()


def _columns():
    """Yield (place, is it JSON, value) of every row of every table, as the database hands them out."""
    for model in apps.get_app_config("agentcore").get_models():
        fields = model._meta.concrete_fields
        with connection.cursor() as cursor:
            names = ", ".join(connection.ops.quote_name(field.column) for field in fields)
            cursor.execute(f"SELECT {names} FROM {connection.ops.quote_name(model._meta.db_table)}")
            for row in cursor.fetchall():
                for field, value in zip(fields, row, strict=True):
                    yield str(field), isinstance(field, models.JSONField), value


def _assert_plain(place, is_json, value):
    if isinstance(value, bytes | bytearray | memoryview):
        # MariaDB's driver hands out some text so; a pickle is not text.
        value = bytes(value).decode()
    if is_json and isinstance(value, str):
        json.loads(value, parse_constant=lambda constant: pytest.fail(f"{place} holds {constant}"))
    if isinstance(value, str):
        assert not PICKLE_IN_TEXT.search(value), (place, value)
        assert not _is_pickle(value), (place, value)


def _is_pickle(text):
    try:
        operations = [operation.name for operation, _, _ in pickletools.genops(text.encode("latin-1", "replace"))]
    except Exception:
        return False
    return "PROTO" in operations or {"GLOBAL", "REDUCE"} & set(operations)


# Migrations


@contextmanager
def a_database_of_its_own(tmp_path):
    """Make an empty database beside the test's, and remove it after the block."""
    if settings.TEST_DB == "sqlite":
        yield str(tmp_path / "deploys.sqlite3")
        return
    name = f"agentcore_deploys_{os.getpid()}"
    quoted = connections["default"].ops.quote_name(name)
    with connections["default"]._nodb_cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {quoted}")
    try:
        yield name
    finally:
        with connections["default"]._nodb_cursor() as cursor:
            cursor.execute(f"DROP DATABASE {quoted}")


def manage(database, *arguments):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "django", *arguments],
        cwd=REPOSITORY,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "AGENTCORE_TEST_DB": settings.TEST_DB,
            "AGENTCORE_TEST_NAME": database,
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# As one child: each process takes seconds to start.
THERE_AND_BACK = """
from django.apps import apps
from django.core.management import call_command
from django.db import connection
from agentcore import runtime
from agentcore.agents.registry import registry
from agentcore.exceptions import Conflict
from agentcore.testing import assert_invariants, calls, make_session, make_turn, run_turns, ScriptedProvider
import agentcore.testing.agents

def tables():
    return {name for name in connection.introspection.table_names() if name.startswith("agentcore_")}

def shape():
    with connection.cursor() as cursor:
        return {
            name: (
                sorted(connection.introspection.get_table_description(cursor, name)),
                sorted(map(repr, connection.introspection.get_constraints(cursor, name).items())),
            )
            for name in tables()
        }

def work():
    script = [calls(("lookup", {"q": "a"})), "Hello.", calls(("pay", {"amount": 1, "to": "x"}))]
    with ScriptedProvider(script).installed():
        make_turn()
        run_turns()
        make_turn()
        run_turns()
    assert_invariants()

call_command("migrate", verbosity=0)
expected = {model._meta.db_table for model in apps.get_app_config("agentcore").get_models()}
assert tables() == expected, tables() ^ expected
before = shape()
work()
call_command("migrate", "agentcore", "zero", verbosity=0)
assert tables() == set(), tables()
call_command("migrate", "agentcore", verbosity=0)
assert shape() == before
work()
print("there and back")
"""


@pytest.mark.django_db
@pytest.mark.timeout(120)
def test_migrations_can_be_taken_back_with_rows_in_the_tables(tmp_path):
    with a_database_of_its_own(tmp_path) as name:
        assert manage(name, "shell", "-v", "0", "-c", THERE_AND_BACK).endswith("there and back\n")


@pytest.mark.django_db
def test_no_migration_is_missing():
    call_command("makemigrations", "agentcore", check_changes=True, dry_run=True, verbosity=0)


def test_every_operation_of_every_migration_can_be_taken_back():
    loader = MigrationLoader(None)
    ours = [migration for (app, _), migration in loader.disk_migrations.items() if app == "agentcore"]
    assert ours
    for migration in ours:
        assert all(operation.reversible for operation in migration.operations), migration
