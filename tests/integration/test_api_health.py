"""Health over HTTP: open, and silent about why."""

import pytest
from rest_framework.test import APIClient

from agentcore.engine import health

pytestmark = pytest.mark.django_db


def test_anybody_may_ask_and_is_told_the_status_only():
    answer = APIClient().get("/api/health/")
    assert (answer.status_code, answer.json()) == (200, {"status": "healthy"})


def test_a_bad_token_does_not_matter():
    assert APIClient(headers={"Authorization": "Token nonsense"}).get("/api/health/").status_code == 200


@pytest.mark.parametrize(("part", "status", "code"), [("database", "unhealthy", 503), ("cache", "degraded", 200)])
def test_what_does_not_work_shows_in_the_status(monkeypatch, part, status, code):
    def broken():
        raise OSError("host db-7 is down")

    monkeypatch.setattr(health, f"_{part}", broken)
    answer = APIClient().get("/api/health/")
    assert (answer.status_code, answer.json()) == (code, {"status": status})
