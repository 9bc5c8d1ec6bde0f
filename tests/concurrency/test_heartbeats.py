"""A worker of Celery says that it is there: each process of it that works on tasks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentcore.agents.registry import registry
from agentcore.models import WorkerHeartbeat
from agentcore.turns import heartbeats
from tests.concurrency import crash_worker
from tests.concurrency.crash_worker import AGENT
from tests.concurrency.harness import Farm, Worker, wait_until
from tests.redis_database import own_redis_database

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.services("redis"),
    pytest.mark.timeout(120),
]


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    crash_worker.define_agent()
    farm = Farm(tmp_path)
    yield farm
    farm.close()
    registry.unregister(AGENT)


@pytest.mark.parametrize("pool", [pytest.param("prefork"), pytest.param("threads", marks=pytest.mark.slow)])
def test_a_worker_is_seen_before_it_has_worked(farm: Farm, pool: str) -> None:
    with own_redis_database() as url, Worker(farm, url, pool=pool) as worker:
        wait_until(lambda: heartbeats.seen().exists(), what="a heartbeat", seconds=20, told=lambda: worker.log)
        names = set(WorkerHeartbeat.objects.values_list("name", flat=True))
    parent = f":{worker.pid}"
    # The parent of a pool of processes opens no connection that a fork would inherit.
    assert any(name.endswith(parent) for name in names) == (pool == "threads")
