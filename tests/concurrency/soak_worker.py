"""The Celery workers of the soak test: `python -m tests.concurrency.soak_worker`. They are killed at any moment.

One process imports everything once and forks a worker for each line on standard input, which names its log; it answers
with the worker's process id. The database comes from AGENTCORE_TEST_NAME, the rest from SOAK, as JSON: broker,
ledger, lease, threads.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from typing import Any, NoReturn

import django
from django.conf import settings

from agentcore import ToolContext, agent, tool
from agentcore.agents.registry import registry
from agentcore.messages import ModelReply, ModelRequest, ToolRequest, Usage
from agentcore.providers.base import ModelProvider

AGENT = "soak"


class SoakProvider(ModelProvider):
    """Looks up, charges, pays and notes, then answers: what it does next depends on what it is shown alone."""

    def complete(self, request: ModelRequest) -> ModelReply:
        time.sleep(random.uniform(0.02, 0.2))
        usage = Usage(input_tokens=1, output_tokens=1)
        last = max(index for index, message in enumerate(request.messages) if message.role == "user")
        rounds = sum(message.role == "assistant" for message in request.messages[last:])
        wanted: list[tuple[str, dict[str, Any]]] = [
            [("lookup", {"n": 1}), ("charge", {"n": 2}), ("pay", {"n": 3})],
            [("note", {"n": 4})],
            [],
        ][rounds]
        if not wanted:
            return ModelReply(content="done", finish_reason="stop", usage=usage)
        calls = tuple(
            ToolRequest(id=f"{rounds}-{number}", name=name, arguments=json.dumps(arguments))
            for number, (name, arguments) in enumerate(wanted)
        )
        return ModelReply(tool_calls=calls, finish_reason="tool_calls", usage=usage)


def define_agent(ledger: str) -> None:
    """Register the agent; what its tools do is one line each in a file, appended at once."""

    def work(ctx: ToolContext, name: str, n: int) -> dict[str, Any]:
        time.sleep(random.uniform(0.01, 0.1))
        file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, f"{ctx.call_id} {name} {n}\n".encode())
        finally:
            os.close(file)
        time.sleep(random.uniform(0.01, 0.1))
        return {"did": name, "n": n}

    @agent(name=AGENT, model="soak:any")
    class SoakAgent:
        @tool(description="free and harmless", idempotent=True)
        def lookup(self, n: int, ctx: ToolContext) -> dict[str, Any]:
            return work(ctx, "lookup", n)

        @tool(description="free, must not be repeated")
        def charge(self, n: int, ctx: ToolContext) -> dict[str, Any]:
            return work(ctx, "charge", n)

        @tool(description="needs a person", requires_approval=True)
        def pay(self, n: int, ctx: ToolContext) -> dict[str, Any]:
            return work(ctx, "pay", n)

        @tool(description="free, and nobody is asked about it", on_unknown="tell")
        def note(self, n: int, ctx: ToolContext) -> dict[str, Any]:
            return work(ctx, "note", n)


def forget_agent() -> None:
    registry.unregister(AGENT)


def main() -> None:
    from tests import settings as base

    order = json.loads(os.environ["SOAK"])
    given = {name: value for name, value in vars(base).items() if name.isupper()}
    settings.configure(
        **given
        | {
            "AGENTCORE": {
                "DISPATCH": "celery",
                "LEASE_SECONDS": order["lease"],
                "PROVIDERS": {"soak": {"class": f"{__package__}.soak_worker.SoakProvider"}},
            },
            "CHANNEL_LAYERS": {},
            "CELERY_BROKER_URL": order["broker"],
            "CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP": True,
            "CELERY_WORKER_PREFETCH_MULTIPLIER": 1,
        }
    )
    django.setup()
    define_agent(order["ledger"])
    import celery.bin.worker
    import celery.worker.consumer  # noqa: F401 - what each worker would import

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system buries them
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            work(line.strip(), order["threads"])
        print(pid, flush=True)


def work(log: str, threads: int) -> NoReturn:
    from tests.celery import app

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(file, standard)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        app.worker_main(
            [
                "worker",
                "--pool=threads",
                f"--concurrency={threads}",
                f"--hostname={os.getpid()}@soak",
                "--loglevel=WARNING",
                "--without-gossip",
                "--without-mingle",
                "--without-heartbeat",
            ]
        )
    finally:
        os._exit(1)


if __name__ == "__main__":
    main()
