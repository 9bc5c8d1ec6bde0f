"""An agent to test with: free, gated and unrepeatable tools that write what they did into a ledger."""

from __future__ import annotations

import threading
from typing import Annotated

from pydantic import Field

from agentcore.agents.decorators import agent
from agentcore.tools.context import ToolContext
from agentcore.tools.decorators import tool

TESTING_AGENT = "testing-agent"


class Ledger:
    """What tools did, in order: outside every transaction, so that an effect done twice shows."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.entries: list[tuple[object, ...]] = []

    def write(self, *entry: object) -> None:
        with self._lock:
            self.entries.append(entry)

    def clear(self) -> None:
        with self._lock:
            self.entries.clear()


ledger = Ledger()


@agent(
    name=TESTING_AGENT,
    description="An agent for tests",
    system_prompt="You are tested.",
    model="scripted:any",
)
class TestingAgent:
    """Its model is `scripted:any`: install a ScriptedProvider."""

    __test__ = False

    @tool(description="Look something up", idempotent=True)
    def lookup(self, q: str) -> dict[str, str]:
        ledger.write("lookup", q)
        return {"q": q, "found": "yes"}

    @tool(description="Pay", requires_approval=True)
    def pay(self, amount: Annotated[int, Field(gt=0)], to: str) -> dict[str, object]:
        ledger.write("pay", amount, to)
        return {"paid": amount, "to": to}

    @pay.preview
    def _(self, amount: int, to: str) -> str:
        return f"Pays {amount} to {to}"

    @tool(description="Wipe a path", requires_approval=True)
    def wipe(self, path: str) -> str:
        ledger.write("wipe", path)
        return f"wiped {path}"

    @tool(description="Charge, without approval and not to be repeated")
    def charge(self, n: int, ctx: ToolContext) -> dict[str, object]:
        ledger.write("charge", n)
        return {"charged": n, "key": ctx.call_id}
