"""The demonstration's agents. Importing this package, as agentcore does at start-up, registers them all."""

from project.agents.research import ResearchAgent
from project.agents.sales import SalesAgent
from project.agents.support import SupportAgent
from project.agents.writing import WritingAgent

__all__ = ["ResearchAgent", "SalesAgent", "SupportAgent", "WritingAgent"]
