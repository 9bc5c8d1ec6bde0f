"""The wrapper round a provider, by itself: attempts, what the breaker is told, and streams that begin anew."""

import pytest

from agentcore.exceptions import (
    ProviderAuthError,
    ProviderBadReply,
    ProviderBadRequest,
    ProviderConnectionError,
    ProviderOverloaded,
    ProviderPostponed,
    ProviderRateLimited,
    ProviderTimeout,
    ProviderUnavailable,
)
from agentcore.messages import Message, ModelDelta, ModelReply, ModelRequest
from agentcore.providers import registry
from agentcore.providers.resilient import Resilient
from agentcore.resilience import circuit_breaker, pauses, retry
from agentcore.resilience.rate_limit import Allowance, Rate
from agentcore.testing import ScriptedProvider, text

pytestmark = pytest.mark.django_db

MODEL = "scripted:any"
REQUEST = ModelRequest(model="any", messages=(Message(role="user", content="hi"),), timeout=60)
BUSY = ProviderOverloaded("busy")


@pytest.fixture(autouse=True)
def _quick(settings):
    settings.AGENTCORE = {
        **settings.AGENTCORE,
        "RETRY": {"attempts": 3, "initial": 0.001, "max": 0.001},
        "CIRCUIT_BREAKER": {"failure_threshold": 5, "reset_timeout": 30},
    }


def resilient(replies, **options):
    provider = ScriptedProvider(replies)
    return Resilient(provider, model=MODEL, **options), provider


class Streaming:
    """A provider that inherits nothing, and streams what it is told; an exception in the list is raised."""

    def __init__(self, *streams):
        self.streams = list(streams)

    def stream(self, request):
        for item in self.streams.pop(0):
            if isinstance(item, BaseException):
                raise item
            yield item


@pytest.mark.parametrize("error", [BUSY, ProviderTimeout("x"), ProviderConnectionError("x"), ProviderRateLimited("x")])
def test_what_may_pass_is_asked_again(error):
    model, provider = resilient([error, error, "Hi."])
    assert model.complete(REQUEST).content == "Hi."
    assert provider.call_count == 3


def test_prv_15_so_many_attempts_and_no_more():
    failures = []
    model, provider = resilient(lambda _: BUSY, on_failure=lambda *facts: failures.append(facts))
    with pytest.raises(ProviderOverloaded):
        model.complete(REQUEST)
    assert provider.call_count == 3
    assert failures == [(1, BUSY), (2, BUSY), (3, BUSY)]


def test_attempts_made_before_count():
    model, provider = resilient(lambda _: BUSY, attempts=2)
    with pytest.raises(ProviderOverloaded):
        model.complete(REQUEST)
    assert provider.call_count == 1


@pytest.mark.parametrize("error", [ProviderBadRequest("400"), ProviderAuthError("401"), ProviderBadReply("html")])
def test_prv_14_client_errors_are_tried_once_and_leave_the_breaker_closed(error):
    model, provider = resilient(lambda _: error)
    for number in range(1, 11):
        with pytest.raises(type(error)):
            model.complete(REQUEST)
        assert provider.call_count == number
    assert circuit_breaker.state(MODEL) == "closed"


def test_a_bad_request_as_the_probe_closes_the_breaker(clock):
    """The API answers: an open breaker would keep the true reason from all who come later."""
    for _ in range(5):
        circuit_breaker.enter(MODEL).failed()
    clock.advance(31)
    model, _ = resilient([ProviderBadRequest("400")])
    with pytest.raises(ProviderBadRequest):
        model.complete(REQUEST)
    assert circuit_breaker.state(MODEL) == "closed"


@pytest.mark.parametrize("error", [ProviderRateLimited("429"), ProviderBadReply("x"), RuntimeError("x")])
def test_a_probe_that_tells_nothing_makes_room_for_another(clock, error, settings):
    settings.AGENTCORE = {**settings.AGENTCORE, "RETRY": {"attempts": 1}}
    for _ in range(5):
        circuit_breaker.enter(MODEL).failed()
    clock.advance(31)
    model, _ = resilient([error])
    with pytest.raises(type(error)):
        model.complete(REQUEST)
    assert circuit_breaker.state(MODEL) == "half_open"
    assert circuit_breaker.enter(MODEL).is_probe


def test_rate_limited_answers_open_no_breaker_and_keep_everybody_out_for_their_time():
    model, _ = resilient([ProviderRateLimited("429", retry_after=20)])
    with pytest.raises(ProviderPostponed) as postponed:
        model.complete(REQUEST)
    assert 20 <= postponed.value.seconds <= 22
    assert postponed.value.attempts == 1
    other, provider = resilient(["never"])
    with pytest.raises(ProviderPostponed) as kept_out:
        other.complete(REQUEST)
    assert 19 < kept_out.value.seconds <= 22
    assert (provider.call_count, kept_out.value.attempts) == (0, 0)
    assert circuit_breaker.state(MODEL) == "paused"
    assert circuit_breaker.states() == {MODEL: "paused"}
    circuit_breaker.reset(MODEL)
    assert circuit_breaker.states() == {}
    assert other.complete(REQUEST).content == "never"


def test_an_open_breaker_lets_nothing_through_and_costs_no_attempt():
    for _ in range(5):
        circuit_breaker.enter(MODEL).failed()
    model, provider = resilient(["never"])
    with pytest.raises(ProviderPostponed) as postponed:
        model.complete(REQUEST)
    assert 29 < postponed.value.seconds <= 33
    assert (provider.call_count, postponed.value.attempts) == (0, 0)


def test_an_open_breaker_can_be_told_to_fail_at_once(settings):
    settings.AGENTCORE = {**settings.AGENTCORE, "BREAKER_OPEN": "fail"}
    for _ in range(5):
        circuit_breaker.enter(MODEL).failed()
    with pytest.raises(ProviderUnavailable) as refused:
        resilient(["never"])[0].complete(REQUEST)
    assert 29 < refused.value.retry_after <= 30
    assert refused.value.retryable


def test_a_providers_rate_limit_holds_for_every_attempt(clock):
    allowance = Allowance(name="provider:scripted", rate=Rate(limit=2, period=60))
    model, provider = resilient([BUSY, BUSY, "Hi."], allowance=allowance)
    with pytest.raises(ProviderPostponed) as postponed:
        model.complete(REQUEST)
    assert (provider.call_count, postponed.value.attempts) == (2, 2)
    assert 59 < postponed.value.seconds <= 66 - 0.1
    clock.advance(postponed.value.seconds)
    assert Resilient(provider, model=MODEL, allowance=allowance, attempts=2).complete(REQUEST).content == "Hi."


def test_a_short_wait_is_broken_off_when_nobody_should_wait(settings):
    settings.AGENTCORE = {**settings.AGENTCORE, "RETRY": {"attempts": 3, "initial": 2, "max": 2}}

    class Hurried(retry.Patience):
        def is_over(self):
            return True

    model, provider = resilient([BUSY, "never"], patience=Hurried())
    with pytest.raises(ProviderPostponed) as postponed:
        model.complete(REQUEST)
    assert (provider.call_count, postponed.value.attempts) == (1, 1)
    assert 0 < postponed.value.seconds <= 2


def test_each_attempt_has_the_time_that_is_left(clock):
    asked = []

    def slow(request):
        asked.append(request.timeout)
        clock.advance(20)
        return BUSY if len(asked) < 3 else "Hi."

    resilient(slow)[0].complete(REQUEST)
    assert [round(seconds) for seconds in asked] == [60, 40, 20]


def test_prv_12_a_stream_that_breaks_off_begins_anew_and_voids_what_was_said():
    broken = [ModelDelta(text="The answer "), ModelDelta(text="is 4"), ProviderConnectionError("cut")]
    whole = [ModelDelta(text="The answer is 42."), text("The answer is 42.")]
    items = list(Resilient(Streaming(broken, whole), model=MODEL).stream(REQUEST))
    assert [(item.text, item.attempt) for item in items[:-1]] == [
        ("The answer ", 1),
        ("is 4", 1),
        ("The answer is 42.", 2),
    ]
    assert items[-1] == text("The answer is 42.")


def test_prv_12_a_stream_goes_on_counting_after_a_long_wait():
    whole = [ModelDelta(text="Hi."), text("Hi.")]
    first, _ = list(Resilient(Streaming(whole), model=MODEL, attempts=2).stream(REQUEST))
    assert first == ModelDelta(text="Hi.", attempt=3)


def test_prv_12_with_no_attempt_left_the_error_ends_the_stream():
    broken = [ModelDelta(text="half"), ProviderConnectionError("cut")]
    stream = Resilient(Streaming(broken, broken, broken), model=MODEL).stream(REQUEST)
    seen = []
    with pytest.raises(ProviderConnectionError):
        seen.extend(stream)
    assert not any(isinstance(item, ModelReply) for item in seen)


def test_a_stream_nobody_reads_to_its_end_says_nothing_of_the_api(clock):
    for _ in range(5):
        circuit_breaker.enter(MODEL).failed()
    clock.advance(31)
    stream = Resilient(Streaming([ModelDelta(text="Hi"), text("Hi")]), model=MODEL).stream(REQUEST)
    next(stream)
    stream.close()
    assert circuit_breaker.enter(MODEL).is_probe


def test_a_provider_that_cannot_stream_gives_its_text_as_one_piece():
    class Plain:
        def complete(self, request):
            return text("Hi.")

    assert list(Resilient(Plain(), model=MODEL).stream(REQUEST)) == [ModelDelta(text="Hi."), text("Hi.")]


def test_a_success_after_a_pause_is_asked_at_once(clock):
    pauses.begin(MODEL, 20)
    clock.advance(21)
    assert resilient(["Hi."])[0].complete(REQUEST).content == "Hi."


@pytest.mark.parametrize("given", ["60/week", 60, {"burst": 5}, ""])
def test_a_providers_rate_limit_that_is_none_is_a_problem_that_names_it(settings, given):
    settings.AGENTCORE = {"PROVIDERS": {"mine": {"class": "demo", "rate_limit": given}}}
    problem = registry.find_problem("mine:any")
    assert "AGENTCORE['PROVIDERS']['mine'] has the rate_limit" in problem
    assert "'60/minute'" in problem


def test_a_providers_rate_limit_is_no_argument_of_its_class(settings):
    settings.AGENTCORE = {"PROVIDERS": {"mine": {"class": "demo", "rate_limit": "60/minute"}}}
    assert registry.find_problem("mine:any") is None
    assert registry.get_allowance("mine") == Allowance(name="provider:mine", rate=Rate(limit=60, period=60))
    assert registry.get_allowance("demo") is None
