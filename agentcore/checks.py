"""System checks: what is missing or wrong is named before it bites."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from celery import current_app
from django.apps import apps
from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import connections

from agentcore import conf, database
from agentcore.agents.registry import registry
from agentcore.approvals import policy
from agentcore.drivers import registry as drivers
from agentcore.exceptions import ConfigurationError
from agentcore.memory import registry as memory
from agentcore.models import Vector
from agentcore.providers import registry as providers
from agentcore.state import registry as state
from agentcore.vectors import registry as vectors
from agentcore.vectors import sources

REQUIRED_APPS = ("channels", "rest_framework", "django_filters", "drf_spectacular")
# Its agent is there as soon as a project's tests are imported; its model is installed by each test.
KIT = "agentcore.testing.agents"
SQLITE = "django.db.backends.sqlite3"


@register("agentcore")
def check_settings(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    """AGENTCORE, the apps and the settings of Django that agentcore needs."""
    return [*_apps(), *_values(), *_policy(), *_vectors(), *_memory(), *_time_zone()]


@register("agentcore")
def check_agents(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    """The agents, and the models they name."""
    return [*(Error(problem, id="agentcore.E010") for problem in registry.problems()), *_models(), *_drivers()]


@register("agentcore")
def check_services(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    """What works on a developer's machine and bites in production."""
    return [*_sqlite(), *_broker(), *_channel_layer(), *_cache(), *_state()]


@register("agentcore", Tags.database)
def check_vectors(app_configs: Any = None, databases: Any = None, **_: Any) -> list[CheckMessage]:
    """The vectors that the present embedder cannot be compared with. It reads the database, if it may."""
    if database.alias() not in (databases or ()) or conf.problems(getattr(django_settings, "AGENTCORE", {})):
        return []
    return [] if vectors.problems() else list(_foreign_vectors())


def _apps() -> Iterator[CheckMessage]:
    for name in REQUIRED_APPS:
        if not apps.is_installed(name):
            yield Error(f"agentcore needs {name!r} in INSTALLED_APPS.", id="agentcore.E001")


def _values() -> Iterator[CheckMessage]:
    for problem in conf.problems(getattr(django_settings, "AGENTCORE", {})):
        yield Error(problem, id="agentcore.E002")


def _policy() -> Iterator[CheckMessage]:
    if conf.problems(getattr(django_settings, "AGENTCORE", {})):
        return
    try:
        policy.project_policy()
    except ConfigurationError as mistake:
        yield Error(str(mistake), id="agentcore.E004")


def _vectors() -> Iterator[CheckMessage]:
    if conf.problems(getattr(django_settings, "AGENTCORE", {})):
        return
    for problem in vectors.problems():
        yield Error(problem, id="agentcore.E005")


def _memory() -> Iterator[CheckMessage]:
    if conf.problems(getattr(django_settings, "AGENTCORE", {})):
        return
    if problem := memory.find_problem():
        yield Error(problem, id="agentcore.E007")
    model = conf.settings.MEMORY["model"]
    if model is not None and (problem := providers.find_problem(model)):
        yield Error(f"AGENTCORE['MEMORY']['model'] is {model!r}: {problem}", id="agentcore.E007")


def _foreign_vectors() -> Iterator[CheckMessage]:
    if Vector._meta.db_table not in connections[database.alias()].introspection.table_names():
        return
    present = vectors.embedder().id
    for source in sources.registered():
        others = sorted({kind.embedder for kind in vectors.index().kinds(source.collection)} - {present})
        if others:
            yield Warning(
                f"The collection {source.collection!r} holds vectors of {', '.join(others)}; EMBEDDER is {present}: "
                "they are left out of every search.",
                hint="Run agentcore_reembed.",
                id="agentcore.W013",
            )


def _time_zone() -> Iterator[CheckMessage]:
    if not django_settings.USE_TZ:
        yield Error("agentcore needs USE_TZ = True: it stores times in UTC.", id="agentcore.E003")


def _models() -> Iterator[CheckMessage]:
    try:
        models = sorted({item.resolved()["model"] for item in registry.all() if item.agent_class.__module__ != KIT})
    except ConfigurationError:
        return
    for model in models:
        problem = providers.find_problem(model)
        if problem:
            yield Error(problem, id="agentcore.E011")
        elif model.startswith("demo:") and not django_settings.DEBUG:
            yield Warning(
                f"The model {model!r} is the offline demonstration, and DEBUG is off.",
                hint="Set AGENTCORE['DEFAULT_MODEL'] or the agent's model.",
                id="agentcore.W011",
            )


def _drivers() -> Iterator[CheckMessage]:
    for definition in registry.all():
        if definition.driver != drivers.BUILT_IN and drivers.registry.find(definition.driver) is None:
            yield Warning(
                f"The agent {definition.name!r} names the driver {definition.driver!r}; it is not registered here.",
                hint="Call runtime.register_driver(…) where the agent is defined, or in AppConfig.ready().",
                id="agentcore.W012",
            )


def _state() -> Iterator[CheckMessage]:
    if conf.problems(getattr(django_settings, "AGENTCORE", {})):
        return
    name = conf.settings.STATE_BACKEND
    if problem := state.find_problem(name):
        yield Error(problem, id="agentcore.E006")
    elif name == "memory" and not django_settings.DEBUG:
        yield Warning(
            "AGENTCORE['STATE_BACKEND'] is 'memory', and DEBUG is off: hot copies are lost with each process, and a "
            "turn that another worker takes over goes on without them.",
            hint="Use 'database', or 'hybrid' with a Redis.",
            id="agentcore.W005",
        )


def _sqlite() -> Iterator[CheckMessage]:
    for alias, entry in django_settings.DATABASES.items():
        options = entry.get("OPTIONS", {})
        if entry.get("ENGINE") == SQLITE and options.get("transaction_mode") != "IMMEDIATE":
            yield Warning(
                f"The SQLite database {alias!r} does not begin transactions as IMMEDIATE: "
                "two writers at once meet 'database is locked'.",
                hint="Set OPTIONS = {'transaction_mode': 'IMMEDIATE', 'timeout': 20}.",
                id="agentcore.W001",
            )


def _broker() -> Iterator[CheckMessage]:
    if _setting("DISPATCH") == "celery" and not current_app.conf.broker_url:
        yield Warning(
            "Turns are dispatched to Celery, and Celery has no broker.",
            hint="Set CELERY_BROKER_URL, or AGENTCORE['DISPATCH'] = 'thread' for one process.",
            id="agentcore.W002",
        )


def _channel_layer() -> Iterator[CheckMessage]:
    backend = getattr(django_settings, "CHANNEL_LAYERS", {}).get("default", {}).get("BACKEND", "")
    if backend.endswith(("InMemoryChannelLayer", "InProcessChannelLayer")) and not django_settings.DEBUG:
        yield Warning(
            "The channel layer lives in one process: sockets of other processes hear of events only by polling.",
            hint="Use channels_redis.core.RedisChannelLayer, with a socket_timeout of 30 seconds on its hosts.",
            id="agentcore.W003",
        )


def _cache() -> Iterator[CheckMessage]:
    backend = django_settings.CACHES.get("default", {}).get("BACKEND", "")
    if _setting("DISPATCH") == "celery" and "locmem" in backend.lower() and not django_settings.DEBUG:
        yield Warning(
            "The default cache lives in one process: what workers share of a failing model, each knows alone.",
            hint="Use django.core.cache.backends.redis.RedisCache.",
            id="agentcore.W004",
        )


def _setting(name: str) -> Any:
    given: Any = getattr(django_settings, "AGENTCORE", {})
    default = getattr(conf.Settings(), name)
    return given.get(name, default) if isinstance(given, dict) else default
