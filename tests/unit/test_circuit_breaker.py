"""A breaker's states, one after another, and what becomes of it when the cache fails."""

import threading
import time

import pytest
from django.core.cache import cache
from django.core.cache.backends.base import BaseCache

from agentcore.resilience import circuit_breaker, pauses, shared
from agentcore.resilience.circuit_breaker import CircuitOpen

MODEL = "some:model, with a name no cache would take as a key"


@pytest.fixture(autouse=True)
def _breaker(settings):
    settings.AGENTCORE = {**settings.AGENTCORE, "CIRCUIT_BREAKER": {"failure_threshold": 3, "reset_timeout": 30}}


@pytest.fixture
def broken(settings):
    """Have a cache that does nothing but what is given, and then fails."""

    def breaks(first=lambda: None):
        settings.CACHES = {"default": {"BACKEND": f"{__name__}.BrokenCache", "OPTIONS": {"first": first}}}

    # A test before this one may have had a cache that failed, too.
    _forget()
    yield breaks
    _forget()


def _forget():
    shared._own.forget(*list(shared._own._kept))
    shared._clerk.wake()


class BrokenCache(BaseCache):
    def __init__(self, name, params):
        super().__init__(params)
        self._first = params["OPTIONS"]["first"]

    def _fail(self, *args, **kwargs):
        self._first()
        raise ConnectionError("no cache")

    get = set = add = incr = delete = _fail


def fail(times=3, model=MODEL):
    for _ in range(times):
        circuit_breaker.enter(model).failed()


def test_it_opens_at_the_threshold_and_stays_so_for_its_time(clock):
    fail(2)
    assert circuit_breaker.state(MODEL) == "closed"
    fail(1)
    with pytest.raises(CircuitOpen) as refused:
        circuit_breaker.enter(MODEL)
    assert 29 < refused.value.seconds <= 30
    assert circuit_breaker.states() == {MODEL: "open"}
    clock.advance(31)
    assert circuit_breaker.states() == {MODEL: "half_open"}


def test_a_success_in_between_begins_the_count_anew():
    fail(2)
    circuit_breaker.enter(MODEL).succeeded()
    fail(2)
    assert circuit_breaker.state(MODEL) == "closed"


def test_lim_02_only_one_goes_through_when_it_is_half_open(clock):
    fail()
    clock.advance(31)
    probe = circuit_breaker.enter(MODEL)
    assert probe.is_probe
    for _ in range(50):
        with pytest.raises(CircuitOpen) as refused:
            circuit_breaker.enter(MODEL)
        assert 0 < refused.value.seconds <= 10
    probe.succeeded()
    assert circuit_breaker.state(MODEL) == "closed"
    assert not circuit_breaker.enter(MODEL).is_probe


def test_a_probe_that_fails_opens_it_anew_at_once(clock):
    fail()
    clock.advance(31)
    circuit_breaker.enter(MODEL).failed()
    assert circuit_breaker.state(MODEL) == "open"
    clock.advance(31)
    assert circuit_breaker.enter(MODEL).is_probe


def test_a_probe_that_says_nothing_makes_room_for_another(clock):
    fail()
    clock.advance(31)
    circuit_breaker.enter(MODEL).withdraw()
    assert circuit_breaker.enter(MODEL).is_probe


def test_a_probe_whose_worker_died_is_replaced_when_its_time_is_over(clock, monkeypatch):
    monkeypatch.setattr(circuit_breaker, "PROBE_SECONDS", 0.05)
    circuit_breaker_settings = {"failure_threshold": 3, "reset_timeout": 0.05}
    monkeypatch.setattr(circuit_breaker.settings.__class__, "CIRCUIT_BREAKER", circuit_breaker_settings, raising=False)
    fail()
    clock.advance(1)
    assert circuit_breaker.enter(MODEL).is_probe
    with pytest.raises(CircuitOpen):
        circuit_breaker.enter(MODEL)
    threading.Event().wait(0.06)
    assert circuit_breaker.enter(MODEL).is_probe


def test_who_looked_before_a_probe_came_back_is_no_second_probe(clock, monkeypatch):
    fail()
    clock.advance(31)
    first = circuit_breaker.enter(MODEL)
    add = shared.add

    def late(*args, **kwargs):
        # What happens between the look and the attempt to be the probe.
        first.failed()
        monkeypatch.setattr(shared, "add", add)
        return add(*args, **kwargs)

    monkeypatch.setattr(shared, "add", late)
    with pytest.raises(CircuitOpen):
        circuit_breaker.enter(MODEL)
    clock.advance(31)
    assert circuit_breaker.enter(MODEL).is_probe


def test_models_have_breakers_of_their_own():
    fail()
    assert not circuit_breaker.enter("some:other").is_probe
    assert circuit_breaker.states(["some:other"]) == {MODEL: "open", "some:other": "closed"}


def test_reset_closes_it():
    fail()
    circuit_breaker.reset(MODEL)
    circuit_breaker.enter(MODEL).failed()
    assert circuit_breaker.state(MODEL) == "closed"


def test_none_is_no_breaker(settings):
    settings.AGENTCORE = {**settings.AGENTCORE, "CIRCUIT_BREAKER": None}
    fail(20)
    assert circuit_breaker.states([MODEL]) == {}


def test_red_03_without_a_cache_each_process_has_a_breaker_of_its_own(broken, clock, caplog):
    broken()
    fail()
    assert circuit_breaker.state(MODEL) == "open"
    clock.advance(31)
    assert circuit_breaker.enter(MODEL).is_probe
    with pytest.raises(CircuitOpen):
        circuit_breaker.enter(MODEL)
    assert [record.message for record in caplog.records].count(
        "The cache does not answer: this process is left to what it knows itself"
    ) == 1


def test_red_03_a_cache_that_never_answers_costs_a_second_once(broken, monkeypatch):
    let_go = threading.Event()
    monkeypatch.setattr(shared, "ANSWER_SECONDS", 0.1)
    broken(lambda: let_go.wait(30))
    began = time.monotonic()
    fail()
    assert time.monotonic() - began < 2
    assert circuit_breaker.state(MODEL) == "open"
    let_go.set()


def test_an_api_that_names_a_time_is_left_alone_by_all_until_then(clock):
    pauses.begin(MODEL, 20)
    assert 19 < pauses.seconds_left(MODEL) <= 20
    pauses.begin(MODEL, 5)
    assert pauses.seconds_left(MODEL) > 19
    clock.advance(21)
    assert pauses.seconds_left(MODEL) == 0.0


def test_nobody_is_kept_out_for_a_day_by_one_answer():
    pauses.begin(MODEL, 86_400)
    assert pauses.seconds_left(MODEL) <= pauses.LONGEST_SECONDS


def test_counting_goes_on_when_the_number_is_forgotten_in_between(monkeypatch):
    def forgotten(key):
        raise ValueError(key)

    monkeypatch.setattr(cache, "incr", forgotten)
    assert shared.count("n", seconds=5) == 1


def test_upg_04_nothing_but_whole_numbers_is_kept(monkeypatch):
    """Django's cache in Redis pickles everything else."""
    kept, put, add = [], cache.set, cache.add
    monkeypatch.setattr(cache, "set", lambda key, value, **same: kept.append(value) or put(key, value, **same))
    monkeypatch.setattr(cache, "add", lambda key, value, **same: kept.append(value) or add(key, value, **same))
    fail(3)
    pauses.begin(MODEL, 0.001)
    with pytest.raises(CircuitOpen):
        circuit_breaker.enter(MODEL)
    assert len(kept) >= 2
    assert {type(value) for value in kept} == {int}
