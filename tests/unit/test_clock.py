"""Time as agentcore sees it: this process's, the database's, and both shifted by a test."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test import override_settings
from django.utils import timezone

from agentcore import clock as real
from agentcore.models import AgentContext, AgentSession

# Two readings of one clock, a query in between.
SOON = timedelta(seconds=5)


@pytest.fixture
def session(make_session):
    return make_session()


def db_time(session, **plus):
    return AgentSession.objects.annotate(time=real.db_now(**plus)).get(pk=session.pk).time


def is_close(one, other):
    return abs(one - other) < SOON


def test_now_is_aware_and_in_utc():
    assert real.now().utcoffset() == timedelta(0)
    assert is_close(real.now(), datetime.now(UTC))


@pytest.mark.django_db
def test_the_databases_time_is_that_of_this_machine(session):
    assert db_time(session).utcoffset() == timedelta(0)
    assert is_close(db_time(session), timezone.now())


@pytest.mark.django_db
@pytest.mark.parametrize("plus", [timedelta(seconds=90), timedelta(days=-3), timedelta(days=3650, milliseconds=1)])
def test_plus_is_added_by_the_database(session, plus):
    assert is_close(db_time(session, plus=plus), timezone.now() + plus)


@pytest.mark.django_db
def test_fractions_of_a_second_count(session):
    rows = AgentSession.objects.filter(pk=session.pk)
    found = rows.annotate(
        time=real.db_now(plus=timedelta(milliseconds=250)), base=real.db_now(), sooner=real.db_now(plus=-SOON)
    ).get()
    # One statement, one time, but for the statement's own course on SQLite.
    assert timedelta(milliseconds=200) < found.time - found.base < timedelta(milliseconds=300)
    assert found.sooner < found.base


@pytest.mark.django_db
@pytest.mark.parametrize("zone", ["+05:00", "-11:00"])
def test_the_zone_of_server_and_project_does_not_matter(session, zone):
    before = set_zone(zone)
    try:
        with override_settings(TIME_ZONE="Asia/Tokyo"), timezone.override("America/Lima"):
            assert is_close(db_time(session), timezone.now())
            AgentSession.objects.filter(pk=session.pk).update(updated_at=real.db_now())
            assert is_close(AgentSession.objects.get(pk=session.pk).updated_at, timezone.now())
    finally:
        set_zone(before)


def set_zone(zone):
    """Set the zone of the open connection, where the database has one, and return the one before."""
    if connection.vendor == "sqlite":
        return None
    show, change = ("SELECT @@session.time_zone", "SET time_zone = %s")
    if connection.vendor == "postgresql":
        show, change = ("SHOW TimeZone", "SELECT set_config('TimeZone', %s, false)")
    with connection.cursor() as cursor:
        cursor.execute(show)
        [before] = cursor.fetchone()
        cursor.execute(change, [zone])
    return before


@pytest.mark.django_db
def test_what_is_stored_from_either_clock_can_be_compared(session):
    rows = AgentSession.objects.filter(pk=session.pk)
    rows.update(updated_at=real.db_now(plus=timedelta(seconds=10)))
    assert not rows.filter(updated_at__lt=real.db_now()).exists()
    assert rows.filter(updated_at__lt=real.db_now(plus=timedelta(seconds=20))).exists()
    # A whole second is stored in another form than one with a fraction.
    rows.update(updated_at=timezone.now().replace(microsecond=0) - timedelta(seconds=10))
    assert rows.filter(updated_at__lt=real.db_now()).exists()
    rows.update(updated_at=timezone.now().replace(microsecond=0) + timedelta(seconds=10))
    assert not rows.filter(updated_at__lt=real.db_now()).exists()


@pytest.mark.django_db
def test_advancing_moves_every_clock_and_they_stay_together(session, clock):
    before, ticks = real.now(), real.monotonic()
    clock.advance(timedelta(days=2))
    clock.advance(30)
    ahead = timedelta(days=2, seconds=30)
    assert is_close(real.now(), before + ahead)
    assert is_close(clock.now(), real.now())
    assert is_close(db_time(session), real.now())
    assert timedelta(seconds=real.monotonic() - ticks) - ahead < SOON
    assert timedelta(seconds=real.monotonic() - ticks) >= ahead


@pytest.mark.django_db
def test_setting_the_time_moves_the_databases_time_too(session, clock):
    moment = datetime(2031, 5, 17, 12, 30, tzinfo=UTC)
    clock.set(moment)
    assert is_close(real.now(), moment)
    assert is_close(db_time(session), moment)
    clock.set(datetime(2020, 1, 1, tzinfo=UTC))
    assert is_close(db_time(session), datetime(2020, 1, 1, tzinfo=UTC))
    clock.reset()
    assert is_close(db_time(session), datetime.now(UTC))


@pytest.mark.django_db
def test_a_lease_runs_out_when_the_clock_is_moved(make_turn, clock):
    turn = make_turn()
    AgentContext.objects.filter(pk=turn.pk).update(
        state="thinking", lease_expires_at=real.db_now(plus=timedelta(seconds=60))
    )
    assert not AgentContext.objects.abandoned().exists()
    clock.advance(59)
    assert not AgentContext.objects.abandoned().exists()
    clock.advance(2)
    assert AgentContext.objects.abandoned().exists()


def test_the_clock_is_reset_after_each_test():
    assert real._shift == timedelta(0)
