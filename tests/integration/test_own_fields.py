"""The example of the page about a project's own fields and indexes, as it stands there."""

import re
import sys
from pathlib import Path

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection, transaction
from django.test import modify_settings

from agentcore import runtime
from agentcore.models import AgentContext, AgentSession
from agentcore.testing import ScriptedProvider, clock

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs/how-to/your-own-fields-and-indexes.md"
DESK = REPOSITORY / "tests/desk"

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def desk(monkeypatch):
    """The example's app, installed and migrated; gone again afterwards."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "tests"))
    with modify_settings(INSTALLED_APPS={"append": "desk"}):
        call_command("migrate", "desk", verbosity=0)
        yield apps.get_app_config("desk")
        call_command("migrate", "desk", "zero", verbosity=0)
        from desk import handlers

        runtime.off("turn.completed", handlers.keep_up)
    for name in [name for name in sys.modules if name == "desk" or name.startswith("desk.")]:
        del sys.modules[name]
    vars(AgentSession).get("ticket") and delattr(AgentSession, "ticket")


def test_the_page_shows_what_is_tested():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for name in ("models.py", "handlers.py", "migrations/0002_index_on_turns.py"):
        assert (DESK / name).read_text() in blocks, name


def test_a_ticket_goes_with_its_session_and_its_index_is_there_until_it_is_taken_back(desk, settings):
    Ticket = desk.get_model("Ticket")
    with ScriptedProvider(["Hello.", "Again."]).installed():
        with transaction.atomic():
            session = runtime.create_session("testing-agent", session_id="s")
            ticket = Ticket.objects.create(session=session, number="T-1")
        for text in ("hi", "more"):
            runtime.execute("testing-agent", text, session_id="s")
    ticket.refresh_from_db()
    turns = AgentContext.objects.order_by("pk")
    assert ticket.last_answer_at == turns.last().completed_at
    assert ticket.total_tokens == sum(turn.input_tokens + turn.output_tokens for turn in turns)
    assert Ticket.objects.get(session__session_id="s").session.ticket == ticket
    assert "desk_turn_by_agent" in _indexes()
    call_command("makemigrations", "desk", "agentcore", "--check", "--dry-run", verbosity=1)
    call_command("migrate", "desk", "0001", verbosity=0)
    assert "desk_turn_by_agent" not in _indexes()
    runtime.delete("s")
    assert Ticket.objects.exists()
    clock.advance(40 * 86_400)
    try:
        runtime.trim(30)
        assert not Ticket.objects.exists()
    finally:
        clock.reset()


def _indexes():
    with connection.cursor() as cursor:
        return connection.introspection.get_constraints(cursor, AgentContext._meta.db_table)
