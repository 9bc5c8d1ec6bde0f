"""System checks: each mistake is found and named, and a right project is left alone."""

import pytest
from celery import current_app
from django.conf import settings as django_settings
from django.core.checks import run_checks
from django.test import modify_settings

from agentcore import agent, checks
from agentcore.agents.registry import registry

SQLITE = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
POSTGRES = "django.db.backends.postgresql"
IMMEDIATE = {"transaction_mode": "IMMEDIATE"}
IN_MEMORY_LAYER = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
REDIS_LAYER = {"default": {"BACKEND": "channels_redis.core.RedisChannelLayer"}}
LOCAL_CACHE = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
REDIS_CACHE = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://x"}}


def found():
    """Return the messages of agentcore's checks by id."""
    messages = [*checks.check_settings(), *checks.check_agents(), *checks.check_services()]
    return {message.id: message for message in messages}


@pytest.fixture
def define():
    """Define an agent until the end of the test."""
    names = []

    def make(name, **options):
        names.append(name)
        return agent(name=name, **options)(type("Checked", (), {}))

    yield make
    for name in names:
        registry.unregister(name)


@pytest.fixture(autouse=True)
def _only_the_agents_of_the_test(monkeypatch):
    monkeypatch.setattr(registry, "_by_name", {})


def test_a_right_project_is_left_alone(settings, monkeypatch):
    settings.DEBUG = True
    monkeypatch.setattr(django_settings, "DATABASES", {"default": {**SQLITE, "OPTIONS": IMMEDIATE}})
    assert found() == {}


def test_the_checks_are_registered(settings):
    settings.AGENTCORE = {"NOPE": 1}
    assert "agentcore.E002" in {message.id for message in run_checks(tags=["agentcore"])}


@pytest.mark.parametrize("app", ["channels", "rest_framework", "django_filters", "drf_spectacular"])
def test_a_missing_app_is_named(app):
    with modify_settings(INSTALLED_APPS={"remove": app}):
        message = found()["agentcore.E001"]
    assert repr(app) in message.msg
    assert message.is_serious()


@pytest.mark.parametrize(
    ("given", "named"), [({"MAX_STEP": 3}, "MAX_STEP"), ({"MAX_STEPS": "3"}, "'3'"), ([], "must be a dict")]
)
def test_a_wrong_setting_is_named(settings, given, named):
    settings.AGENTCORE = given
    message = found()["agentcore.E002"]
    assert named in message.msg
    assert message.is_serious()


def test_times_without_a_zone_are_an_error(settings):
    settings.USE_TZ = False
    assert "USE_TZ" in found()["agentcore.E003"].msg


def test_two_agents_of_one_name_are_an_error(define):
    first = define("twice")
    assert "agentcore.E010" not in found()
    second = type("Another", (), {})
    agent(name="twice")(second)
    message = found()["agentcore.E010"]
    assert "'twice'" in message.msg
    assert (first.__qualname__ in message.msg, "Another" in message.msg) == (True, True)
    assert message.is_serious()


@pytest.mark.parametrize(
    ("model", "named"), [("nobody:any", "'nobody'"), ("openai:gpt-5-mini", None), ("demo:support", None)]
)
def test_a_model_whose_provider_is_unknown_is_an_error(define, settings, model, named):
    settings.DEBUG = True
    settings.AGENTCORE = {"PROVIDERS": {"openai": {"api_key": "k"}}}
    define("checked", model=model)
    if named is None:
        assert "agentcore.E011" not in found()
    else:
        assert named in found()["agentcore.E011"].msg


def test_the_model_of_the_settings_is_checked_too(define, settings):
    settings.AGENTCORE = {"DEFAULT_MODEL": "nobody:any"}
    define("checked")
    assert "'nobody'" in found()["agentcore.E011"].msg


@pytest.mark.parametrize(("debug", "warned"), [(True, False), (False, True)])
def test_the_demonstration_model_is_for_development(define, settings, debug, warned):
    settings.DEBUG = debug
    define("checked", model="demo:support")
    assert ("agentcore.W011" in found()) == warned
    if warned:
        assert not found()["agentcore.W011"].is_serious()


@pytest.mark.parametrize(
    ("options", "warned"),
    [(None, True), ({}, True), ({"transaction_mode": "DEFERRED"}, True), ({"transaction_mode": "IMMEDIATE"}, False)],
)
def test_sqlite_has_to_begin_transactions_at_once(monkeypatch, options, warned):
    database = SQLITE if options is None else {**SQLITE, "OPTIONS": options}
    # Not by the fixture: Django warns of every override of DATABASES.
    monkeypatch.setattr(django_settings, "DATABASES", {"default": {"ENGINE": POSTGRES}, "other": database})
    assert ("agentcore.W001" in found()) == warned
    if warned:
        assert "'other'" in found()["agentcore.W001"].msg
        assert "IMMEDIATE" in found()["agentcore.W001"].hint


@pytest.mark.parametrize(("dispatch", "broker", "warned"), [("celery", "", True), ("celery", "memory://", False)])
def test_celery_needs_a_broker(settings, monkeypatch, dispatch, broker, warned):
    monkeypatch.setitem(current_app.conf, "broker_url", broker)
    settings.AGENTCORE = {"DISPATCH": dispatch}
    assert ("agentcore.W002" in found()) == warned


def test_threads_need_no_broker(settings, monkeypatch):
    monkeypatch.setitem(current_app.conf, "broker_url", "")
    settings.AGENTCORE = {"DISPATCH": "thread"}
    assert "agentcore.W002" not in found()


@pytest.mark.parametrize(
    ("layer", "debug", "warned"),
    [
        (IN_MEMORY_LAYER, False, True),
        (IN_MEMORY_LAYER, True, False),
        (REDIS_LAYER, False, False),
        ({}, False, False),
        ({"default": {"BACKEND": "agentcore.events.layer.InProcessChannelLayer"}}, False, True),
    ],
)
def test_a_channel_layer_of_one_process_is_for_development(settings, layer, debug, warned):
    settings.DEBUG = debug
    settings.CHANNEL_LAYERS = layer
    assert ("agentcore.W003" in found()) == warned


@pytest.mark.parametrize(
    ("cache", "debug", "dispatch", "warned"),
    [
        (LOCAL_CACHE, False, "celery", True),
        (LOCAL_CACHE, True, "celery", False),
        (LOCAL_CACHE, False, "thread", False),
        (REDIS_CACHE, False, "celery", False),
    ],
)
def test_a_cache_of_one_process_does_not_do_for_several(settings, cache, debug, dispatch, warned):
    settings.DEBUG = debug
    settings.CACHES = cache
    settings.AGENTCORE = {"DISPATCH": dispatch}
    assert ("agentcore.W004" in found()) == warned


class NoState:
    is_hot = True


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"STATE_BACKEND": "redis"}, "which needs AGENTCORE['REDIS_URL']"),
        ({"STATE_BACKEND": "hybrid"}, "which needs AGENTCORE['REDIS_URL']"),
        ({"STATE_BACKEND": "redis", "REDIS_URL": "localhost:6379"}, "'localhost:6379', which is no address of a Redis"),
        ({"STATE_BACKEND": "hybrid", "REDIS_URL": "http://x"}, "'http://x', which is no address of a Redis"),
        ({"STATE_BACKEND": "mongo"}, "it must be one of memory, database, redis, hybrid or the dotted path"),
        ({"STATE_BACKEND": "agentcore.state.nowhere.State"}, "it must be one of memory, database, redis, hybrid"),
        ({"STATE_BACKEND": f"{__name__}.NoState"}, "it lacks is_up, write, read, forget"),
    ],
)
def test_a_state_backend_that_cannot_work_is_named(settings, given, named):
    settings.AGENTCORE = given
    [problem] = [message for message in checks.check_services() if message.id == "agentcore.E006"]
    assert named in problem.msg


@pytest.mark.parametrize(
    ("name", "debug", "warned"), [("memory", False, True), ("memory", True, False), ("database", False, False)]
)
def test_hot_copies_in_one_process_are_for_development(settings, name, debug, warned):
    settings.DEBUG = debug
    settings.AGENTCORE = {"STATE_BACKEND": name}
    assert ("agentcore.W005" in found()) == warned


def test_warnings_do_not_keep_a_project_from_starting(settings):
    settings.DEBUG = False
    settings.CHANNEL_LAYERS = IN_MEMORY_LAYER
    settings.CACHES = LOCAL_CACHE
    warnings = [message for message in checks.check_services() if message.id.startswith("agentcore.W")]
    assert warnings
    assert not any(message.is_serious() for message in warnings)


def test_a_broken_setting_does_not_break_the_other_checks(define, settings):
    settings.AGENTCORE = {"MAX_STEPS": 0, "DISPATCH": "pigeon"}
    define("checked")
    assert "agentcore.E002" in found()
