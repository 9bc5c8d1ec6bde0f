"""The research agent: finds what the shop's own notes say about a topic, for the writing agent to write about."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agentcore import agent, tool
from project import notes

Topic = Annotated[str, Field(description="What to find out about, in a few words", min_length=1, max_length=1_000)]


@agent(
    name="research-agent",
    description="Research agent that finds information for others to write about",
    system_prompt=(
        "You research a topic in the notes of a small shop. Search them, and answer with the findings alone, one "
        "sentence each. Add nothing that no note says; if there is nothing, say so."
    ),
)
class ResearchAgent:
    @tool(description="Search the notes that there are about a topic", idempotent=True)
    def search_research_notes(self, topic: Topic) -> str:
        return "\n".join(notes.find(topic))
