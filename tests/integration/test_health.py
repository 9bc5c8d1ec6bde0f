"""runtime.health(): each part by itself, and what the whole is worth."""

import threading
from datetime import timedelta

import pytest
from celery import Celery, current_app
from django.test import override_settings

from agentcore import dispatch, runtime
from agentcore.engine import health
from agentcore.models import WorkerHeartbeat
from agentcore.testing import make_turn
from agentcore.turns import heartbeats
from tests import settings

pytestmark = pytest.mark.django_db

PARTS = {"database", "cache", "broker", "workers", "turns", "providers", "tools"}


def part(name):
    return runtime.health()["parts"][name]


def test_all_is_well_while_nothing_waits():
    found = runtime.health()
    assert (found["status"], set(found["parts"])) == ("healthy", PARTS)
    assert {part["status"] for part in found["parts"].values()} == {"healthy"}


def test_threads_of_this_process_need_no_broker_and_no_worker():
    with override_settings(AGENTCORE={"DISPATCH": "thread"}):
        assert set(runtime.health()["parts"]) == PARTS - {"broker", "workers"}


def test_turns_that_wait_while_no_worker_is_seen_degrade(clock):
    heartbeats.beat()
    make_turn()
    assert part("workers")["status"] == "healthy"
    clock.advance(119)
    assert part("workers")["status"] == "healthy"
    clock.advance(2)
    assert part("workers") == {
        "status": "degraded",
        "detail": "turns wait, and no worker was seen for 120 seconds",
    }
    assert runtime.health()["status"] == "degraded"
    heartbeats.beat()
    assert part("workers")["status"] == "healthy"


def test_the_interval_of_the_settings_says_how_often_a_worker_is_seen(clock):
    heartbeats.beat()
    make_turn()
    with override_settings(AGENTCORE={"HEALTH": {"interval": 5}}):
        clock.advance(11)
        assert part("workers")["status"] == "degraded"


def test_heartbeats_are_one_row_per_process_and_go_when_it_is_gone(clock):
    for _ in range(3):
        heartbeats.beat()
        clock.advance(60)
    row = WorkerHeartbeat.objects.get()
    assert row.name == heartbeats.own_name()
    assert row.seen_at - row.started_at >= timedelta(seconds=119)
    WorkerHeartbeat.objects.update(name="gone:1")
    clock.advance(600)
    heartbeats.beat()
    assert [row.name for row in WorkerHeartbeat.objects.all()] == [heartbeats.own_name()]


def test_a_broker_that_refuses_degrades():
    before = current_app._get_current_object()
    Celery("broken", broker="redis://127.0.0.1:9/0", set_as_current=False).set_current()
    try:
        assert part("broker")["status"] == "unhealthy"
        assert runtime.health()["status"] == "degraded"
    finally:
        before.set_current()


@pytest.mark.services("redis")
def test_a_broker_that_answers_is_healthy():
    before = current_app._get_current_object()
    Celery("live", broker=settings.REDIS_URL, set_as_current=False).set_current()
    try:
        dispatch.ping(5)
    finally:
        before.set_current()


def test_breakers_that_are_not_closed_degrade_and_are_named(monkeypatch):
    states = {"openai:gpt": "open", "anthropic:haiku": "half_open", "demo:x": "closed"}
    monkeypatch.setattr(health, "BREAKERS", lambda: states)
    assert part("providers") == {
        "status": "degraded",
        "detail": "anthropic:haiku is half-open, openai:gpt is open",
    }
    states.clear()
    assert part("providers")["status"] == "healthy"


def test_many_threads_that_hang_degrade(monkeypatch):
    monkeypatch.setattr(health.execution, "abandoned_threads", lambda: health.MAX_ABANDONED + 1)
    assert part("tools")["status"] == "degraded"


@pytest.mark.django_db(transaction=True)
def test_parts_that_hang_cost_the_time_limit_once(monkeypatch):
    may_end = threading.Event()
    for name in ("_cache", "_broker", "_turns"):
        monkeypatch.setattr(health, name, lambda: may_end.wait(20) and "")
    try:
        with override_settings(AGENTCORE={"HEALTH": {"timeout": 1}}):
            found = runtime.health()
    finally:
        may_end.set()
    assert found["status"] == "degraded"
    for name in ("cache", "broker", "turns"):
        assert found["parts"][name] == {"status": "unhealthy", "detail": "no answer within 0.5 seconds"}
