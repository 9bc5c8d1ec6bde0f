"""The writing agent: makes an article of the findings that came with its task."""

from __future__ import annotations

import re
import textwrap
from typing import Annotated

from pydantic import Field

from agentcore import ToolContext, ToolError, agent, tool

# Where whoever hands over puts the findings: `initial_context={"research": …}`.
FINDINGS = "research"
MAX_HEADLINE = 80
# What a topic begins with when the whole request was taken for one.
ASKING = re.compile(r"^write an? article (?:about|on)\W*", re.IGNORECASE)


@agent(
    name="writing-agent",
    description="Writing agent that turns research findings into an article",
    system_prompt=(
        "You write short articles from research findings, which are part of the task's context. Call write_article "
        "once, then give its text as your answer. Invent nothing."
    ),
)
class WritingAgent:
    # The findings are data of the task and do not pass through the model: it cannot change them on the way.
    @tool(description="Write an article about a topic, from the findings of this task", idempotent=True)
    def write_article(self, topic: Annotated[str, Field(min_length=1, max_length=10_000)], ctx: ToolContext) -> str:
        findings = str(ctx.working_memory.get(FINDINGS) or "").strip()
        if not findings:
            raise ToolError("There are no findings to write from. Ask research-agent first and hand over its answer.")
        return f"{_headline(topic)}\n\n{findings}"


def _headline(topic: str) -> str:
    text = ASKING.sub("", " ".join(topic.split())).rstrip(".!?")
    return textwrap.shorten(text[:1].upper() + text[1:], MAX_HEADLINE, placeholder=" …")
