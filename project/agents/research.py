"""The research agent: finds what the shop's notes, and the documents it was given, say about a topic."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agentcore import agent, tool
from project import notes

Topic = Annotated[str, Field(description="What to find out about, in a few words", min_length=1, max_length=1_000)]


@agent(
    name="research-agent",
    description="Research agent that finds information for others to write about",
    enable_rag=True,
    system_prompt=(
        "You research a topic in the notes of a small shop and in the documents that you are shown. Answer with the "
        "findings alone, one sentence each, and name the document that says it. Add nothing that is not there; if "
        "there is nothing, say so."
    ),
)
class ResearchAgent:
    @tool(description="Search the notes that there are about a topic", idempotent=True)
    def search_research_notes(self, topic: Topic) -> str:
        return "\n".join(notes.find(topic))
