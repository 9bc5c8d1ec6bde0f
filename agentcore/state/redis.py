"""Hot copies in Redis, shared by all processes: one hash for each turn, of which single fields are set.

A Redis that does not answer costs a caller SECONDS once; then it is left alone for REST_SECONDS.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from agentcore.conf import settings
from agentcore.exceptions import ConfigurationError
from agentcore.state.base import Phase, seconds_to_live

T = TypeVar("T")

logger = logging.getLogger("agentcore.state")

SECONDS = 1.0
REST_SECONDS = 5.0


class RedisState:
    """A hash for each turn under REDIS_PREFIX, on the server of REDIS_URL."""

    is_hot = True

    def __init__(self) -> None:
        self._rests_until = 0.0

    def is_up(self) -> bool:
        return time.monotonic() >= self._rests_until

    def write(self, execution_id: str, fields: Mapping[str, str], *, phase: Phase) -> bool:
        return self._ask(lambda: _write(execution_id, fields, phase), False)

    def read(self, execution_id: str) -> dict[str, str]:
        return self._ask(lambda: _read(key(execution_id)), {})

    def forget(self, execution_id: str) -> bool:
        return bool(client().delete(key(execution_id)))

    def endless(self, limit: int) -> list[str]:
        """Return the turns, at most so many and any of them, whose copies were last told to have no end."""
        return self._ask(lambda: _some_endless(limit), [])

    def let_end(self, phases: Mapping[str, Phase | None]) -> None:
        """Have the copies of these turns end when their phase says, and at once where it is None."""
        self._ask(lambda: _let_end(phases), None)

    def _ask(self, question: Callable[[], T], otherwise: T) -> T:
        if not self.is_up():
            return otherwise
        try:
            return question()
        except UnicodeDecodeError:
            # Not written by this app: as good as no copy.
            logger.warning("What Redis holds under a turn's name is no text", exc_info=True)
            return otherwise
        except redis.RedisError:
            self._rests_until = time.monotonic() + REST_SECONDS
            logger.warning("Redis does not answer; turns go on from the database", exc_info=True)
            return otherwise


def key(execution_id: str) -> str:
    """Return the name of the hash that holds a turn's copy."""
    return f"{settings.REDIS_PREFIX}turn:{execution_id}"


def client() -> redis.Redis:
    """Return this process's client of REDIS_URL; raise ConfigurationError without one."""
    if not settings.REDIS_URL:
        raise ConfigurationError(
            f"AGENTCORE['STATE_BACKEND'] is {settings.STATE_BACKEND!r}, which needs AGENTCORE['REDIS_URL']."
        )
    return _client(settings.REDIS_URL)


def find_problem(url: str) -> str | None:
    """Return what is wrong with a REDIS_URL, None if nothing is; nobody is asked."""
    try:
        redis.connection.parse_url(url)  # type: ignore[no-untyped-call]  # its stubs leave it out
    except ValueError as error:
        return f"AGENTCORE['REDIS_URL'] is {url!r}, which is no address of a Redis: {error}"
    return None


@lru_cache(maxsize=8)
def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(
        url,
        socket_timeout=SECONDS,
        socket_connect_timeout=SECONDS,
        retry=Retry(NoBackoff(), 0),
        decode_responses=True,
        health_check_interval=0,
    )


def _write(execution_id: str, fields: Mapping[str, str], phase: Phase) -> bool:
    name, seconds = key(execution_id), seconds_to_live(phase)
    with client().pipeline(transaction=True) as commands:
        commands.hset(name, items=[part for item in fields.items() for part in item])
        if seconds is None:
            commands.persist(name)
            commands.sadd(_endless_key(), execution_id)
        else:
            commands.pexpire(name, int(seconds * 1_000))
        commands.execute()
    return True


def _read(name: str) -> dict[str, str]:
    # Any: the client is typed for both of its kinds, the one that waits and the one that does not.
    found: Any = client().hgetall(name)
    return dict(found)


def _endless_key() -> str:
    """Return the name of the set of turns whose copies were told to have no end; some have one since."""
    return f"{settings.REDIS_PREFIX}endless"


def _some_endless(limit: int) -> list[str]:
    found: Any = client().srandmember(_endless_key(), limit)
    return list(found)


def _let_end(phases: Mapping[str, Phase | None]) -> None:
    names = list(phases)
    with client().pipeline(transaction=False) as commands:
        for name in names:
            commands.pttl(key(name))
        has_no_end = [left == -1 for left in commands.execute()]
        for name, is_endless in zip(names, has_no_end, strict=True):
            phase = phases[name]
            seconds = None if phase is None else seconds_to_live(phase)
            if seconds is None:
                commands.delete(key(name))
            elif is_endless:
                commands.pexpire(key(name), int(seconds * 1_000))
        commands.srem(_endless_key(), *names)
        commands.execute()
