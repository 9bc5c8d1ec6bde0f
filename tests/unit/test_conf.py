"""The settings of AGENTCORE: their names and defaults, what is refused, and that tests can change them."""

from datetime import timedelta

import pytest
from django.test import override_settings

from agentcore import conf
from agentcore.exceptions import ConfigurationError

# Section 9 of the contract, written out once more, with values that each setting takes and refuses.
DEFAULTS = {
    "DEFAULT_MODEL": "demo:support",
    "PROVIDERS": {},
    "DISPATCH": "celery",
    "CELERY_QUEUE": None,
    "STATE_BACKEND": "database",
    "STATE_TTL": {"active": 3600, "completed": 86400, "failed": 604800},
    "REDIS_URL": None,
    "REDIS_PREFIX": "agentcore:",
    "MEMORY_BACKEND": "buffer",
    "MEMORY": {
        "recall": 5,
        "extractor": None,
        "model": None,
        "expires_in": {
            "conversation": timedelta(days=90),
            "entity": None,
            "fact": None,
            "working_memory": timedelta(days=30),
            "event": timedelta(days=365),
        },
    },
    "EMBEDDER": "hashing",
    "VECTOR_INDEX": "exact",
    "MAX_STEPS": 10,
    "TURN_TIMEOUT": 300,
    "TOOL_TIMEOUT": 30,
    "APPROVAL_TTL": timedelta(days=7),
    "APPROVAL_POLICY": None,
    "MAX_INPUT_BYTES": 262144,
    "MAX_EVENT_BYTES": 65536,
    "MAX_ARGUMENT_BYTES": 1048576,
    "MAX_DOCUMENT_BYTES": 10_485_760,
    "MAX_RESULT_CHARS": 20000,
    "CONTEXT_TOKENS": 100000,
    "LEASE_SECONDS": 60,
    "MAX_ATTEMPTS": 3,
    "RATE_LIMIT": None,
    "CIRCUIT_BREAKER": {"failure_threshold": 5, "reset_timeout": 30},
    "BREAKER_OPEN": "wait",
    "RETRY": {"attempts": 3, "initial": 0.5, "max": 8},
    "METRICS": True,
    "HEALTH": {"interval": 60, "timeout": 5},
    "SOFT_DELETE": True,
    "AUTO_ARCHIVE": False,
    "ARCHIVE_AFTER_DAYS": 30,
    "RETENTION_DAYS": None,
    "NOTIFIERS": [],
}
BAD_COUNTS = (0, -1, 1.5, "3", None, True)
BAD_SECONDS = (0, -1, "3", None, True, float("nan"), float("inf"), 10**10, 1e300)
BAD_TEXTS = ("", 1, None, [])
BAD_FLAGS = (1, 0, "yes", None)
BAD_NUMBERS = ({"wrong": 1}, {1: 1}, "3", 5, [])
GOOD = {
    "DEFAULT_MODEL": ("openai:gpt-5-mini",),
    "PROVIDERS": ({"openai": {"api_key": "k"}},),
    "DISPATCH": ("celery", "thread"),
    "CELERY_QUEUE": ("agents", None),
    "STATE_BACKEND": ("redis", "project.state.Mine"),
    "STATE_TTL": ({"active": 1, "completed": 2, "failed": 3},),
    "REDIS_URL": ("redis://localhost", None),
    "REDIS_PREFIX": ("", "mine:"),
    "MEMORY_BACKEND": ("hybrid",),
    "MEMORY": (
        {
            "recall": 1,
            "extractor": "rules",
            "model": "small:one",
            "expires_in": {**dict.fromkeys(conf.MEMORY_KINDS), "fact": timedelta.max},
        },
    ),
    "EMBEDDER": ("project.embed.Mine", "openai:text-embedding-3-small", "local:nomic:v1"),
    "VECTOR_INDEX": ("exact",),
    "MAX_STEPS": (1, 100),
    "TURN_TIMEOUT": (0.5, 600),
    "TOOL_TIMEOUT": (0.5, 600),
    "APPROVAL_TTL": (None, timedelta(seconds=1), timedelta.max),
    "APPROVAL_POLICY": ("project.policies.strict",),
    "MAX_INPUT_BYTES": (1,),
    "MAX_EVENT_BYTES": (1,),
    "MAX_ARGUMENT_BYTES": (1,),
    "MAX_DOCUMENT_BYTES": (1,),
    "MAX_RESULT_CHARS": (1,),
    "CONTEXT_TOKENS": (1,),
    "LEASE_SECONDS": (0.5, 30),
    "MAX_ATTEMPTS": (1,),
    "RATE_LIMIT": (None, {"per_minute": 60, "burst": 10}),
    "CIRCUIT_BREAKER": (None, {"failure_threshold": 1, "reset_timeout": 0.5}),
    "BREAKER_OPEN": ("wait", "fail"),
    "RETRY": ({"attempts": 1, "initial": 0.1, "max": 1},),
    "METRICS": (False,),
    "HEALTH": ({"interval": 1, "timeout": 1},),
    "SOFT_DELETE": (False,),
    "AUTO_ARCHIVE": (True,),
    "ARCHIVE_AFTER_DAYS": (1, 365_000),
    "RETENTION_DAYS": (None, 30, 365_000),
    "NOTIFIERS": (["project.notify.Mail"], ()),
}
BAD = {
    "DEFAULT_MODEL": ("gpt-5-mini", "openai:", ":gpt-5-mini", "", None, 1),
    "PROVIDERS": ([], "openai", None),
    "DISPATCH": ("threads", "", None, []),
    "CELERY_QUEUE": ("", 1),
    "STATE_BACKEND": BAD_TEXTS,
    "STATE_TTL": (*BAD_NUMBERS, {"active": 0}, None),
    "REDIS_URL": ("", 1),
    "REDIS_PREFIX": (None, 1),
    "MEMORY_BACKEND": BAD_TEXTS,
    "MEMORY": ({"recall": 0}, {"extractor": 1}, {"expires_in": {"fact": 3}}, {"other": 1}, {"model": "openai:"}, None),
    "EMBEDDER": (*BAD_TEXTS, "openai:", ":large", ":"),
    "VECTOR_INDEX": BAD_TEXTS,
    "MAX_STEPS": BAD_COUNTS,
    "TURN_TIMEOUT": BAD_SECONDS,
    "TOOL_TIMEOUT": BAD_SECONDS,
    "APPROVAL_TTL": (0, 3600, timedelta(0), timedelta(seconds=-1)),
    "MAX_INPUT_BYTES": BAD_COUNTS,
    "MAX_EVENT_BYTES": BAD_COUNTS,
    "MAX_ARGUMENT_BYTES": BAD_COUNTS,
    "MAX_DOCUMENT_BYTES": BAD_COUNTS,
    "MAX_RESULT_CHARS": BAD_COUNTS,
    "CONTEXT_TOKENS": BAD_COUNTS,
    "LEASE_SECONDS": BAD_SECONDS,
    "MAX_ATTEMPTS": BAD_COUNTS,
    "RATE_LIMIT": (*BAD_NUMBERS, {"per_minute": -1}, {"burst": 5}, {}, {"per_minute": 5, "burst": 1.5}),
    "CIRCUIT_BREAKER": (*BAD_NUMBERS, {"reset_timeout": "30"}, {"failure_threshold": 0.5}),
    "BREAKER_OPEN": ("open", None, 1),
    "RETRY": (*BAD_NUMBERS, {"attempts": True}, {"attempts": 1.5}, None),
    "METRICS": BAD_FLAGS,
    "HEALTH": (*BAD_NUMBERS, {"interval": 1e300}, None),
    "SOFT_DELETE": BAD_FLAGS,
    "AUTO_ARCHIVE": BAD_FLAGS,
    "ARCHIVE_AFTER_DAYS": (*BAD_COUNTS, 365_001, 10**9),
    "RETENTION_DAYS": (0, -1, "30", 365_001, 10**6, 10**9),
    "NOTIFIERS": ("mail", {}, None),
}


def cases(table):
    return [pytest.param(name, value, id=f"{name}={value!r}") for name, values in table.items() for value in values]


def test_the_tables_name_every_setting():
    assert set(DEFAULTS) == set(conf.NAMES) == set(GOOD)
    assert set(DEFAULTS) - set(BAD) == {"APPROVAL_POLICY"}  # what it names is looked at when it is used


def test_every_name_left_out_has_its_default():
    with override_settings(AGENTCORE={}):
        assert {name: getattr(conf.settings, name) for name in conf.NAMES} == DEFAULTS


def test_a_project_may_have_no_settings_at_all(settings):
    del settings.AGENTCORE
    assert conf.settings.MAX_STEPS == 10


@pytest.mark.parametrize(("name", "value"), cases(GOOD))
def test_override_settings_reaches_every_setting(name, value):
    before = getattr(conf.settings, name)
    with override_settings(AGENTCORE={name: value}):
        assert getattr(conf.settings, name) == value
    assert getattr(conf.settings, name) == before


@pytest.mark.parametrize(("name", "value"), cases(BAD))
def test_a_bad_value_is_named(name, value):
    [problem] = conf.problems({name: value})
    assert f"AGENTCORE[{name!r}] is {value!r}" in problem
    assert "it must be" in problem
    with override_settings(AGENTCORE={name: value}), pytest.raises(ConfigurationError, match=name):
        getattr(conf.settings, name)


@pytest.mark.parametrize("name", ["MAX_STEP", "max_steps", "", 1, None])
def test_an_unknown_name_is_named_with_what_is_allowed(name):
    [problem] = conf.problems({name: 1})
    assert repr(name) in problem
    assert "MAX_STEPS" in problem
    with override_settings(AGENTCORE={name: 1}), pytest.raises(ConfigurationError, match="has no setting"):
        _ = conf.settings.MAX_STEPS


def test_every_problem_is_told_at_once():
    assert len(conf.problems({"MAX_STEPS": 0, "NOPE": 1, "DISPATCH": "thread", "METRICS": "x"})) == 3


@pytest.mark.parametrize("given", [None, [], "x", [("MAX_STEPS", 3)]])
def test_settings_that_are_no_dict_are_named(given):
    assert conf.problems(given) == [f"AGENTCORE must be a dict, not {type(given).__name__}."]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("HEALTH", {"timeout": 1}, {"interval": 60, "timeout": 1}),
        ("RETRY", {"attempts": 5}, {"attempts": 5, "initial": 0.5, "max": 8}),
        ("STATE_TTL", {"active": 60}, {"active": 60, "completed": 86400, "failed": 604800}),
        ("MEMORY", {"recall": 1}, {**DEFAULTS["MEMORY"], "recall": 1}),
        (
            "MEMORY",
            {"expires_in": {"fact": timedelta(1)}},
            {**DEFAULTS["MEMORY"], "expires_in": {**DEFAULTS["MEMORY"]["expires_in"], "fact": timedelta(1)}},
        ),
        ("CIRCUIT_BREAKER", {"reset_timeout": 10}, {"failure_threshold": 5, "reset_timeout": 10}),
    ],
)
def test_what_a_dict_leaves_out_keeps_its_default(name, value, expected):
    with override_settings(AGENTCORE={name: value}):
        assert getattr(conf.settings, name) == expected


def test_defaults_are_not_shared_between_settings():
    first, second = conf.Settings(), conf.Settings()
    first.PROVIDERS["mine"] = {}
    first.NOTIFIERS.append("x")
    first.MEMORY["expires_in"]["fact"] = timedelta(1)
    assert (second.PROVIDERS, second.NOTIFIERS) == ({}, [])
    assert second.MEMORY == DEFAULTS["MEMORY"]


def test_a_name_that_is_no_setting_is_an_attribute_error():
    with pytest.raises(AttributeError):
        _ = conf.settings.NOPE
