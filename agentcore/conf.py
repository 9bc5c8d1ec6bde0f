"""The settings of AGENTCORE: every name, default and rule on this one screen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import lru_cache, partial
from typing import Any

from django.conf import settings as django_settings
from django.core.signals import setting_changed

from agentcore.exceptions import ConfigurationError

Rule = tuple[Callable[[Any], bool], str]

# As far as a date may lie off: more is no date, or none that a database takes.
MAX_DAYS = 365_000
# What a thread can wait, and a third of a century.
MAX_SECONDS = 1_000_000_000
# What a column for a whole number holds on every database.
MAX_COUNT = 2_147_483_647


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_COUNT


def _is_seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= MAX_SECONDS


def _is_wait(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value <= MAX_SECONDS


def _is_days(value: Any) -> bool:
    return _is_count(value) and value <= MAX_DAYS


def _is_life(value: Any) -> bool:
    return isinstance(value, timedelta) and value > timedelta(0)


def _is_model(value: Any) -> bool:
    return _is_text(value) and ":" in value and all(value.partition(":"))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _has_numbers(keys: tuple[str, ...], whole: tuple[str, ...]) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, Mapping)
        and set(value) <= set(keys)
        and all(_is_count(item) if key in whole else _is_seconds(item) for key, item in value.items())
    )


COUNT: Rule = (_is_count, f"a whole number of at least 1, at most {MAX_COUNT:,}")
SECONDS: Rule = (_is_seconds, f"a number of seconds above 0, at most {MAX_SECONDS:,}")
WAIT: Rule = (_is_wait, f"a number of seconds, at most {MAX_SECONDS:,}")
DAYS: Rule = (_is_days, f"a whole number of days of at least 1, at most {MAX_DAYS:,}")
LIFE: Rule = (_is_life, "a timedelta above 0")
MODEL: Rule = (_is_model, "'provider:model'")
TEXT: Rule = (_is_text, "a non-empty string")
EMBEDDER_NAME: Rule = (
    lambda value: _is_text(value) and (":" not in value or _is_model(value)),
    "a non-empty string, with a colon only as in 'provider:model'",
)
FLAG: Rule = (lambda value: isinstance(value, bool), "True or False")
MAPPING: Rule = (lambda value: isinstance(value, Mapping), "a dict")
LISTING: Rule = (lambda value: isinstance(value, list | tuple), "a list")


# The kinds that agentcore.models.MemoryKind has: nothing down here knows the models.
MEMORY_KINDS = ("conversation", "entity", "fact", "working_memory", "event")


def one_of(*allowed: str) -> Rule:
    return (lambda value: value in allowed, "one of " + ", ".join(repr(item) for item in allowed))


def optional(rule: Rule) -> Rule:
    return (lambda value: value is None or rule[0](value), f"None or {rule[1]}")


def numbers(*keys: str, whole: tuple[str, ...] = ()) -> Rule:
    """Return the rule of a dict of numbers, those under the keys `whole` without a fraction."""
    told = f" ({', '.join(whole)}: a whole number)" if whole else ""
    return (
        _has_numbers(keys, whole),
        f"a dict of numbers above 0, at most {MAX_SECONDS:,}, with the keys {', '.join(keys)}{told}",
    )


def per_minute() -> Rule:
    is_met, text = numbers("per_minute", "burst", whole=("burst",))
    return (lambda value: is_met(value) and "per_minute" in value, f"{text}, with per_minute")


def memory() -> Rule:
    keys = {
        "recall": COUNT,
        "extractor": optional(TEXT),
        "model": optional(MODEL),
        "expires_in": (_are_lives, ""),
    }
    return (
        lambda value: isinstance(value, Mapping) and all(key in keys and keys[key][0](value[key]) for key in value),
        "a dict with the keys recall (a whole number of at least 1), extractor (None, 'rules', 'model' or a dotted "
        "path), model (None or 'provider:model') and expires_in (a dict of a timedelta above 0, or None, by the kinds "
        f"{', '.join(MEMORY_KINDS)})",
    )


def _are_lives(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        kind in MEMORY_KINDS and (life is None or _is_life(life)) for kind, life in value.items()
    )


def _setting(default: Any, rule: Rule) -> Any:
    if isinstance(default, dict | list):
        return field(default_factory=partial(deepcopy, default), metadata={"rule": rule})
    return field(default=default, metadata={"rule": rule})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The project's AGENTCORE dict, with a default for each name it leaves out."""

    DEFAULT_MODEL: str = _setting("demo:support", MODEL)
    PROVIDERS: dict[str, Any] = _setting({}, MAPPING)
    DISPATCH: str = _setting("celery", one_of("celery", "thread"))
    CELERY_QUEUE: str | None = _setting(None, optional(TEXT))
    STATE_BACKEND: str = _setting("database", TEXT)
    STATE_TTL: dict[str, int] = _setting(
        {"active": 3600, "completed": 86400, "failed": 604800}, numbers("active", "completed", "failed")
    )
    REDIS_URL: str | None = _setting(None, optional(TEXT))
    REDIS_PREFIX: str = _setting("agentcore:", (lambda v: isinstance(v, str), "a string"))
    MEMORY_BACKEND: str = _setting("buffer", TEXT)
    MEMORY: dict[str, Any] = _setting(
        {
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
        memory(),
    )
    EMBEDDER: str = _setting("hashing", EMBEDDER_NAME)
    VECTOR_INDEX: str = _setting("exact", TEXT)
    MAX_STEPS: int = _setting(10, COUNT)
    TURN_TIMEOUT: float = _setting(300, SECONDS)
    TOOL_TIMEOUT: float = _setting(30, SECONDS)
    APPROVAL_TTL: timedelta | None = _setting(timedelta(days=7), optional(LIFE))
    APPROVAL_POLICY: Any = _setting(None, optional((lambda v: True, "an ApprovalPolicy or a dotted path")))
    MAX_INPUT_BYTES: int = _setting(262_144, COUNT)
    MAX_EVENT_BYTES: int = _setting(65_536, COUNT)
    MAX_ARGUMENT_BYTES: int = _setting(1_048_576, COUNT)
    MAX_DOCUMENT_BYTES: int = _setting(10_485_760, COUNT)
    MAX_RESULT_CHARS: int = _setting(20_000, COUNT)
    CONTEXT_TOKENS: int = _setting(100_000, COUNT)
    LEASE_SECONDS: float = _setting(60, SECONDS)
    MAX_ATTEMPTS: int = _setting(3, COUNT)
    RATE_LIMIT: dict[str, int] | None = _setting(None, optional(per_minute()))
    CIRCUIT_BREAKER: dict[str, float] | None = _setting(
        {"failure_threshold": 5, "reset_timeout": 30},
        optional(numbers("failure_threshold", "reset_timeout", whole=("failure_threshold",))),
    )
    BREAKER_OPEN: str = _setting("wait", one_of("wait", "fail"))
    RETRY: dict[str, float] = _setting(
        {"attempts": 3, "initial": 0.5, "max": 8}, numbers("attempts", "initial", "max", whole=("attempts",))
    )
    METRICS: bool = _setting(True, FLAG)
    HEALTH: dict[str, float] = _setting({"interval": 60, "timeout": 5}, numbers("interval", "timeout"))
    SOFT_DELETE: bool = _setting(True, FLAG)
    AUTO_ARCHIVE: bool = _setting(False, FLAG)
    ARCHIVE_AFTER_DAYS: int = _setting(30, DAYS)
    RETENTION_DAYS: int | None = _setting(None, optional(DAYS))
    NOTIFIERS: list[Any] = _setting([], LISTING)


NAMES = tuple(item.name for item in fields(Settings))
_DEFAULTS = Settings()


def problems(given: Any) -> list[str]:
    """Return one sentence for each unknown name or bad value in a project's AGENTCORE dict."""
    if not isinstance(given, Mapping):
        return [f"AGENTCORE must be a dict, not {type(given).__name__}."]
    rules = {item.name: item.metadata["rule"] for item in fields(Settings)}
    found = []
    for name, value in given.items():
        if name not in rules:
            found.append(f"AGENTCORE has no setting {name!r}. Allowed: {', '.join(NAMES)}.")
        elif not rules[name][0](value):
            found.append(f"AGENTCORE[{name!r}] is {value!r}; it must be {rules[name][1]}.")
    return found


@lru_cache(maxsize=1)
def load() -> Settings:
    """Return the project's settings; raise ConfigurationError where the system check would report one."""
    given = getattr(django_settings, "AGENTCORE", {})
    found = problems(given)
    if found:
        raise ConfigurationError(" ".join(found))
    return Settings(**{name: _completed(name, value) for name, value in given.items()})


def _completed(name: str, value: Any) -> Any:
    """Return a setting's value; a dict keeps the default of what it leaves out."""
    default = getattr(_DEFAULTS, name)
    if not (isinstance(default, dict) and isinstance(value, Mapping)):
        return value
    return {**default, **{key: _over(default.get(key), item) for key, item in value.items()}}


def _over(default: Any, value: Any) -> Any:
    return {**default, **value} if isinstance(default, dict) and isinstance(value, Mapping) else value


class _Current:
    """Reads each setting when it is asked for, so that override_settings reaches every caller."""

    def __getattr__(self, name: str) -> Any:
        return getattr(load(), name)


settings = _Current()


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "AGENTCORE":
        load.cache_clear()


setting_changed.connect(_forget, dispatch_uid="agentcore.conf")
