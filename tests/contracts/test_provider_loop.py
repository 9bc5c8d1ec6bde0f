"""The event loop on which providers talk to model APIs: slow readers, readers who leave, forked workers."""

import asyncio
import os
import threading
import warnings
from collections.abc import AsyncGenerator

import pytest

from agentcore.providers import background
from tests.contracts.requests import request


def test_a_slow_reader_holds_up_nothing():
    finished = threading.Event()

    async def source() -> AsyncGenerator[int, None]:
        yield 1
        yield 2
        finished.set()

    numbers = background.iterate(source())
    assert next(numbers) == 1
    assert finished.wait(5)
    assert list(numbers) == [2]


def test_a_source_is_closed_when_its_reader_stops():
    closed = threading.Event()

    async def source() -> AsyncGenerator[int, None]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            closed.set()

    numbers = background.iterate(source())
    next(numbers)
    numbers.close()
    assert closed.wait(5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_worker_opens_connections_of_its_own(api):
    api.will_reply(text="parent", streams=False)
    api.will_reply(text="child", streams=False)
    api.provider.complete(request())
    reading, writing = os.pipe()
    child = fork_quietly()
    if child == 0:
        os.write(writing, (api.provider.complete(request()).content or "").encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == "child"
    os.waitpid(child, 0)


def fork_quietly() -> int:
    with warnings.catch_warnings():
        # Newer Pythons warn of forking beside threads, which is what is tried here.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()
