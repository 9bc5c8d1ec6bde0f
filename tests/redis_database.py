"""A Redis database of a test's own: tests that run side by side do not empty each other's."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
import redis

from tests import settings

NUMBERS = range(14, 0, -1)
# As long as no test takes; who is killed gives nothing back.
CLAIM_SECONDS = 1800


@contextmanager
def own_redis_database() -> Iterator[str]:
    """Give the block the URL of a database of the tests' Redis that was empty and is nobody else's; empty it after."""
    base = settings.REDIS_URL or ""
    # Claims are kept in the common database, which no test empties.
    with closing(redis.Redis.from_url(base)) as common:
        for number in NUMBERS:
            claim = f"agentcore-tests-database-{number}"
            if not common.set(claim, os.getpid(), nx=True, ex=CLAIM_SECONDS):
                continue
            url = re.sub(r"(rediss?://[^/?]+)(/\d*)?", rf"\g<1>/{number}", base, count=1)
            try:
                with closing(redis.Redis.from_url(url)) as client:
                    if client.dbsize():
                        continue
                    try:
                        yield url
                    finally:
                        client.flushdb()
                return
            finally:
                common.delete(claim)
    pytest.skip("needs an empty Redis database, and none of 1 to 14 is")
