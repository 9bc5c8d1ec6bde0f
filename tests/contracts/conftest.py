"""The local server that stands for a model API, and the providers that talk to it."""

from collections.abc import Iterator

import pytest

from agentcore.providers.anthropic import AnthropicProvider
from agentcore.providers.base import ModelProvider
from agentcore.providers.openai import OpenAIProvider
from tests.contracts.anthropic_server import AnthropicWire
from tests.contracts.local_server import LocalServer
from tests.contracts.openai_server import OpenAIWire
from tests.contracts.requests import KEY
from tests.contracts.wire import API, Wire

WIRES: dict[str, type[Wire]] = {"openai": OpenAIWire, "anthropic": AnthropicWire}


@pytest.fixture(scope="module")
def running_server() -> Iterator[LocalServer]:
    with LocalServer().running() as server:
        yield server


@pytest.fixture
def server(running_server: LocalServer) -> LocalServer:
    running_server.forget()
    return running_server


@pytest.fixture(scope="module", params=WIRES)
def connected(request: pytest.FixtureRequest, running_server: LocalServer) -> Iterator[API]:
    wire = WIRES[request.param]()
    provider = wire.make(running_server, api_key=KEY)  # once per module: it reads the machine's certificates
    yield API(wire, running_server, provider)
    provider.close()


@pytest.fixture
def api(connected: API, server: LocalServer) -> Iterator[API]:
    """Each provider that talks to an API over the network, and a server that is as strict as the API."""
    yield connected
    assert [connected.wire.violations(body) for body in server.requests] == [[]] * len(server.requests)


@pytest.fixture
def openai(server: LocalServer) -> Iterator[ModelProvider]:
    provider = OpenAIProvider(base_url=server.url, api_key=KEY)
    yield provider
    provider.close()


@pytest.fixture
def anthropic(server: LocalServer) -> Iterator[ModelProvider]:
    provider = AnthropicProvider(base_url=server.root, api_key=KEY)
    yield provider
    provider.close()


@pytest.fixture(params=[False, True], ids=["complete", "stream"])
def streams(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)
