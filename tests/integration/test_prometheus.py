"""GET metrics/: read by Prometheus's own parser, with labels from fixed sets and sums that equal the rows."""

import uuid
from collections import Counter

import pytest
from django.test import override_settings
from django.utils import timezone
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse
from rest_framework.test import APIClient

from agentcore import runtime
from agentcore.api import metrics as view
from agentcore.models import AgentContext, AgentSession, AgentStep, ToolCall
from agentcore.monitoring.prometheus import AgentcoreCollector
from agentcore.states import TERMINAL
from agentcore.testing import calls, make_session, make_user
from tests.integration.api import client_of

pytestmark = pytest.mark.django_db

MAX_SERIES = 200
ACCEPT = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"


@pytest.fixture
def scraper():
    return client_of(make_user(permissions=("agentcore.view_metrics",)))


def samples(text):
    return [sample for family in parse(text) for sample in family.samples]


def value(text, name, **labels):
    return sum(
        sample.value for sample in samples(text) if sample.name == name and labels.items() <= sample.labels.items()
    )


def fill(sessions, *, tools, calls=None):
    """Store a turn with a reply and a call for each session, or for the first so many, as workers would leave them."""
    template, now = make_session(), timezone.now()
    common = {"agent_id": template.agent_id, "revision_id": template.revision_id, "created_at": now, "updated_at": now}
    rows = AgentSession.objects.bulk_create(AgentSession(session_id=f"s-{n}", **common) for n in range(sessions))
    states = sorted(TERMINAL)
    turns = AgentContext.objects.bulk_create(
        AgentContext(
            session=row,
            state=states[number % len(states)],
            error={"code": uuid.uuid4().hex, "message": "secret"} if states[number % len(states)] == "failed" else None,
            input={"role": "user", "content": "secret"},
            idempotency_key="k",
            idempotency_digest="k",
            body_digest="b",
            max_steps=10,
            turn_timeout=300,
            started_at=now,
            completed_at=now,
            worked_seconds=1,
            **common,
        )
        for number, row in enumerate(rows)
    )
    steps = AgentStep.objects.bulk_create(
        AgentStep(turn=turn, number=1, message={}, input_tokens=2, output_tokens=1, started_at=now)
        for turn in turns[:calls]
    )
    ToolCall.objects.bulk_create(
        ToolCall(turn=step.turn, step=step, position=0, tool=tools[n % len(tools)], status="failed", completed_at=now)
        for n, step in enumerate(steps)
    )


def test_lim_09_a_thousand_sessions_and_200_invented_tools_make_few_series(scraper):
    fill(1_000, tools=[f"invented_{number}" for number in range(200)])
    answer = scraper.get("/api/metrics/")
    assert answer.status_code == 200
    text = answer.content.decode()
    assert 10 < len(samples(text)) < MAX_SERIES
    by_state = Counter(AgentContext.objects.values_list("state", flat=True))
    for state, count in by_state.items():
        assert value(text, "agentcore_turns_total", state=state) == count
    assert value(text, "agentcore_tool_calls_total", tool="unknown", outcome="not_run") == 1_000
    assert value(text, "agentcore_turns_total", state="failed", code="other") == by_state["failed"]
    assert value(text, "agentcore_model_calls_total", provider="scripted", model="any", outcome="replied") == 1_000
    assert value(text, "agentcore_model_tokens_total", direction="input") == 2_000
    assert "secret" not in text
    assert "s-1" not in text


@pytest.mark.slow
def test_the_series_stay_as_many_after_ten_thousand_sessions(scraper, clock):
    names = [f"invented_{number}" for number in range(3_000)]
    fill(100, tools=names)
    few = {
        (sample.name, *sorted(sample.labels.items()))
        for sample in samples(scraper.get("/api/metrics/").content.decode())
    }
    AgentSession.objects.all().delete()
    fill(10_000, tools=names, calls=len(names))
    text = scraper.get("/api/metrics/").content.decode()
    assert {(sample.name, *sorted(sample.labels.items())) for sample in samples(text)} == few
    clock.advance(3_600)
    runtime.tick()
    summed = scraper.get("/api/metrics/").content.decode()
    assert {s.name: s.value for s in samples(summed)} == {s.name: s.value for s in samples(text)}
    assert value(summed, "agentcore_turns_total") == 10_000


def test_calls_requests_and_what_is_now_are_told(scraper, scripted):
    scripted([calls(("lookup", {"q": "x"}), ("pay", {"amount": 1, "to": "x"})), "Done."])
    waiting = runtime.execute("testing-agent", "hi")
    text = scraper.get("/api/metrics/").content.decode()
    assert value(text, "agentcore_turns_active", state="waiting_for_approval") == 1
    assert value(text, "agentcore_approvals_pending") == 1
    assert value(text, "agentcore_tool_run_seconds_count", tool="lookup") == 1
    runtime.reject(waiting.pending_approvals[0].id, make_user(permissions=("agentcore.decide_toolapproval",)))
    text = scraper.get("/api/metrics/").content.decode()
    assert value(text, "agentcore_approvals_total", kind="call", status="rejected") == 1
    assert value(text, "agentcore_approval_wait_seconds_count", kind="call") == 1
    assert value(text, "agentcore_tool_calls_total", tool="pay", outcome="rejected") == 1
    assert value(text, "agentcore_tool_calls_total", outcome="failed") == 0


def test_an_agent_that_is_gone_from_the_code_is_unknown(scraper, scripted, monkeypatch):
    scripted(["Hello."])
    runtime.execute("testing-agent", "hi")
    monkeypatch.setattr("agentcore.engine.tallies.known_agents", set)
    text = scraper.get("/api/metrics/").content.decode()
    assert value(text, "agentcore_turns_total", agent="unknown", state="completed") == 1


def test_the_format_is_the_one_that_a_scraper_asks_for(scraper):
    runtime.reset_metrics()
    plain = scraper.get("/api/metrics/")
    assert plain.headers["Content-Type"].startswith("text/plain; version=")
    asked = scraper.get("/api/metrics/", headers={"Accept": ACCEPT})
    assert asked.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    families = {family.name for family in parse_openmetrics(asked.content.decode())}
    assert {"agentcore_turns", "agentcore_counted_from_timestamp_seconds"} <= families
    assert asked.headers["Cache-Control"] == "no-store"


def test_only_who_may_view_metrics_gets_them():
    anonymous = APIClient().get("/api/metrics/")
    assert (anonymous.status_code, anonymous.json()["code"]) == (401, "not_authenticated")
    refused = client_of(make_user()).get("/api/metrics/", headers={"Accept": ACCEPT})
    assert (refused.status_code, refused.json()["code"]) == (403, "permission_denied")
    assert "view_metrics" in refused.json()["message"]


def test_with_metrics_off_or_without_the_extra_the_answer_says_so(scraper, monkeypatch):
    with override_settings(AGENTCORE={"METRICS": False}):
        off = scraper.get("/api/metrics/")
        assert (off.status_code, off.json()["code"]) == (404, "not_found")
        assert "METRICS" in off.json()["message"]
        assert list(AgentcoreCollector().collect()) == []
    monkeypatch.setattr(view, "prometheus", None)
    missing = scraper.get("/api/metrics/")
    assert (missing.status_code, missing.json()["code"]) == (503, "unavailable")
    assert "agentcore[metrics]" in missing.json()["message"]


def test_the_collector_suits_a_registry_of_the_projects_own(django_assert_num_queries):
    registry = CollectorRegistry(auto_describe=True)
    with django_assert_num_queries(0):
        registry.register(AgentcoreCollector())
    assert {family.name for family in parse(generate_latest(registry).decode())} >= {"agentcore_workers"}
