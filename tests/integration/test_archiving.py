"""Archive what nobody has touched for long: by the periodic work, by command and in Python."""

import io
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command

from agentcore import runtime
from agentcore.keeping import archiving
from agentcore.models import AgentSession, SessionEvent
from agentcore.testing import assert_invariants, make_approval, make_session, make_turn
from agentcore.turns import sessions

pytestmark = pytest.mark.django_db

AUTO = {"AUTO_ARCHIVE": True, "ARCHIVE_AFTER_DAYS": 30}


def statuses():
    return dict(AgentSession.objects.values_list("session_id", "status"))


def archive(*arguments):
    out = io.StringIO()
    call_command("agentcore_archive", *arguments, stdout=out)
    return out.getvalue()


def test_the_periodic_work_archives_what_nobody_touched_and_says_so_in_the_log(clock, settings):
    settings.AGENTCORE = {**settings.AGENTCORE, **AUTO}
    make_session(session_id="old")
    clock.advance(timedelta(days=29))
    make_session(session_id="young")
    assert runtime.tick()["archived"] == 0
    clock.advance(timedelta(days=2))
    assert runtime.tick()["archived"] == 1
    assert statuses() == {"old": "archived", "young": "active"}
    old = AgentSession.objects.get(session_id="old")
    assert old.archived_at == SessionEvent.objects.get(session=old, type="session.archived").created_at
    assert runtime.tick()["archived"] == 0
    assert_invariants()


def test_nothing_is_archived_unless_the_setting_says_so(clock):
    make_session(session_id="old")
    clock.advance(timedelta(days=400))
    assert runtime.tick()["archived"] == 0
    assert statuses() == {"old": "active"}


def test_a_turn_or_a_change_of_title_makes_a_session_look_used(clock, scripted):
    scripted(["Here."])
    for name in ("used", "named", "old"):
        make_session(session_id=name)
    clock.advance(timedelta(days=20))
    runtime.execute("testing-agent", "hi", session_id="used")
    sessions.change(sessions.get("named"), title="New")
    clock.advance(timedelta(days=20))
    assert runtime.archive_idle(30) == 1
    assert statuses() == {"used": "active", "named": "active", "old": "archived"}


def test_what_waits_or_works_is_never_archived(clock):
    make_turn(make_session(session_id="queued"))
    make_approval(session=make_session(session_id="waiting"))
    clock.advance(timedelta(days=400))
    assert runtime.archive_idle(1) == 0
    assert set(statuses().values()) == {"active"}
    assert_invariants()


def test_a_deleted_session_is_left_as_it_is(clock):
    make_session(session_id="gone")
    runtime.delete("gone")
    clock.advance(timedelta(days=400))
    assert runtime.archive_idle(1) == 0


def test_more_than_a_batch_is_archived_and_a_limit_holds(clock, monkeypatch):
    monkeypatch.setattr(archiving, "BATCH", 3)
    make_turn(make_session(session_id="waits"))
    for _ in range(11):
        make_session()
    clock.advance(timedelta(days=31))
    assert runtime.archive_idle(limit=4) == 4
    assert runtime.archive_idle() == 7
    assert statuses().pop("waits") == "active"
    assert list(statuses().values()).count("archived") == 11


def test_the_command_takes_days_and_a_dry_run_changes_nothing(clock):
    make_session(session_id="a")
    clock.advance(timedelta(days=8))
    make_session(session_id="b")
    assert archive() == "0 sessions archived.\n"
    assert archive("--days", "7", "--dry-run") == "a\n1 sessions would be archived.\n"
    assert statuses() == {"a": "active", "b": "active"}
    assert archive("--days", "7") == "1 sessions archived.\n"
    assert statuses() == {"a": "archived", "b": "active"}


@pytest.mark.parametrize("days", ["0", "-1", "soon", "nan", "inf", "1e9"])
def test_a_number_of_days_that_is_none_is_refused(days):
    with pytest.raises(CommandError) as refused:
        archive(f"--days={days}")
    assert "days" in str(refused.value)
