"""The runtime's numbers for Prometheus, read from the rows at each scrape: no process keeps a counter.

Labels come from fixed sets: agents and tools that this process knows (any other is "unknown"), models that revisions
pin, states, outcomes, codes. No user, session or text of anybody is ever one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from django.db.models import Count
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from agentcore.conf import settings
from agentcore.engine import metrics, sums, tallies
from agentcore.engine.sums import Counts
from agentcore.engine.tallies import APPROVAL, CALL, MODEL, TURN, Key, Tallies, Tally
from agentcore.models import AgentContext
from agentcore.providers.registry import split_model
from agentcore.states import ACTIVE
from agentcore.turns import heartbeats


class AgentcoreCollector(Collector):
    """Collects agentcore's metrics for any registry of prometheus_client: `REGISTRY.register(AgentcoreCollector())`."""

    def describe(self) -> list[Metric]:
        """Return nothing: without it a registry would read the database as soon as it is told of the collector."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield every family; none with METRICS off."""
        if settings.METRICS:
            yield from _families(sums.read())


def exposition(accept: str) -> tuple[bytes, str]:
    """Return the text of a scrape and its content type, in the one of Prometheus's formats that `accept` asks for."""
    registry = CollectorRegistry()
    registry.register(AgentcoreCollector())
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def _families(counts: Counts) -> Iterator[Metric]:
    found = counts.tallies
    yield from _of_turns(found.of(TURN, known=tallies.known_agents()))
    yield from _of_calls(found.of(CALL, known=tallies.known_tools()))
    yield from _of_models(found.of(MODEL))
    yield from _of_approvals(found.of(APPROVAL))
    yield from _of_now()
    if counts.counted_from is not None:
        yield _gauge("counted_from_timestamp_seconds", "Since when is counted.", counts.counted_from.timestamp())


def _of_turns(found: list[tuple[Key, Tally]]) -> Iterator[Metric]:
    about = "Turns that ended, by state; the code says why one did not complete."
    ended = CounterMetricFamily("agentcore_turns", about, labels=("agent", "state", "code"))
    for key, tally in found:
        ended.add_metric([key.label, key.outcome, key.detail], tally.count)
    yield ended
    about = "Seconds that turns worked until they completed or failed; waiting for people is apart."
    yield _summary("turn_work_seconds", about, "agent", _by_label(found, metrics.TIMED))


def _of_calls(found: list[tuple[Key, Tally]]) -> Iterator[Metric]:
    about = "Tool calls that have their result, by outcome."
    calls = CounterMetricFamily("agentcore_tool_calls", about, labels=("tool", "outcome"))
    for key, tally in found:
        calls.add_metric([key.label, key.outcome], tally.count)
    yield calls
    about = "Seconds that tools ran, of the last attempt at each call."
    yield _summary("tool_run_seconds", about, "tool", _by_label(found, metrics.RAN))


def _of_models(found: list[tuple[Key, Tally]]) -> Iterator[Metric]:
    about = "Steps for which a model was asked, by outcome: it replied, or failed in the end."
    calls = CounterMetricFamily("agentcore_model_calls", about, labels=("provider", "model", "outcome"))
    about = "Tokens as the providers counted them."
    tokens = CounterMetricFamily("agentcore_model_tokens", about, labels=("provider", "model", "direction"))
    for key, tally in found:
        calls.add_metric([*split_model(key.label), key.outcome], tally.count)
    for label, tally in _by_label(found).items():
        tokens.add_metric([*split_model(label), "input"], tally.input_tokens)
        tokens.add_metric([*split_model(label), "output"], tally.output_tokens)
    yield from (calls, tokens)


def _of_approvals(found: list[tuple[Key, Tally]]) -> Iterator[Metric]:
    about = "Requests that were decided or ended otherwise, by status."
    requests = CounterMetricFamily("agentcore_approvals", about, labels=("kind", "status"))
    for key, tally in found:
        requests.add_metric([key.label, key.outcome], tally.count)
    yield requests
    about = "Seconds that requests waited until people decided."
    yield _summary("approval_wait_seconds", about, "kind", _by_label(found, metrics.BY_PEOPLE))


def _of_now() -> Iterator[Metric]:
    active = GaugeMetricFamily("agentcore_turns_active", "Turns that have not ended, by state.", labels=("state",))
    rows = AgentContext.objects.active().order_by().values_list("state").annotate(count=Count("pk"))
    counts = dict(rows)
    for state in sorted(ACTIVE):
        active.add_metric([state], counts.get(state, 0))
    yield active
    yield _gauge("approvals_pending", "Requests that wait for a decision.", metrics.pending().count())
    yield _gauge("workers", "Processes of workers that were seen lately.", heartbeats.seen().count())


def _by_label(found: Iterable[tuple[Key, Tally]], outcomes: Iterable[str] | None = None) -> dict[str, Tally]:
    """Return the sums over all outcomes, or over some."""
    summed = Tallies()
    wanted = None if outcomes is None else set(outcomes)
    for key, tally in found:
        if wanted is None or key.outcome in wanted:
            summed.add(Key(key.subject, key.label, ""), tally)
    return {key.label: tally for key, tally in summed.items()}


def _summary(name: str, about: str, label: str, summed: dict[str, Tally]) -> SummaryMetricFamily:
    family = SummaryMetricFamily(f"agentcore_{name}", about, labels=(label,))
    for value, tally in summed.items():
        family.add_metric([value], count_value=tally.count, sum_value=tally.seconds)
    return family


def _gauge(name: str, about: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"agentcore_{name}", about, value=value)
