"""Skip what this machine or this command leaves out, and say why."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from asgiref.sync import SyncToAsync
from django.core.cache import cache
from django.db import connections
from pytest_django import DjangoDbBlocker

from agentcore import dispatch
from agentcore.engine import draining
from agentcore.testing.agents import ledger
from tests import emptying, settings

# Run only when -m names them: slow ones would make everybody wait, Playwright's event loop would disturb the others.
ON_REQUEST = ("slow", "browser")

# What a bare `services` mark asks for.
SERVICES = ("redis", "server")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asked_for = set(re.findall(r"\w+", config.getoption("markexpr") or ""))
    for item in items:
        for reason in reasons_to_skip(item, asked_for):
            item.add_marker(pytest.mark.skip(reason=reason))


def reasons_to_skip(item: pytest.Item, asked_for: set[str]) -> list[str]:
    unasked = [name for name in ON_REQUEST if item.get_closest_marker(name) and name not in asked_for]
    services = [service for mark in item.iter_markers("services") for service in mark.args or SERVICES]
    return [f"{name}: run it with `pytest -m {name}`" for name in unasked] + [
        missing for service in services if (missing := missing_service(service))
    ]


def missing_service(service: str) -> str | None:
    """`redis`, `postgres`, `mariadb`, or `server` for either database server."""
    if service == "redis":
        return None if settings.REDIS_URL else "needs Redis: set REDIS_URL"
    if service == "server":
        return "needs a server: set AGENTCORE_TEST_DB to postgres or mariadb" if settings.TEST_DB == "sqlite" else None
    if service in {"postgres", "mariadb"}:
        return None if service == settings.TEST_DB else f"needs AGENTCORE_TEST_DB={service}"
    raise pytest.UsageError(f"services({service!r}): it can be redis, postgres, mariadb or server")


@pytest.fixture(autouse=True)
def _empty_ledger() -> None:
    """Forget what the testing agent's tools did in the test before."""
    ledger.clear()


@pytest.fixture(autouse=True)
def _closed_breakers() -> Iterator[None]:
    """Forget what a test taught the cache of its models: they have the same names in the next one."""
    yield
    cache.clear()


@pytest.fixture(autouse=True)
def _take_turns_again() -> Iterator[None]:
    """Publish what a test sent before its database is emptied, and forget that it shut the process down."""
    yield
    dispatch.flush()
    draining.stop()


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Let go of the connection of asgiref's thread, where async tests query: a server drops no database in use."""
    with django_db_blocker.unblock():
        emptying.install()
    yield
    SyncToAsync.single_thread_executor.submit(connections.close_all).result()


def pytest_unconfigure() -> None:
    """Remove what SQLite keeps beside a database in WAL mode: Django removes only the database."""
    if settings.TEST_DB == "sqlite":
        path = Path(settings.DATABASES["default"]["TEST"]["NAME"])
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
