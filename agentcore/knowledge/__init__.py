"""The knowledge base: documents are read, split and embedded; passages of them are found for an agent."""

from agentcore.knowledge.documents import Ingested, delete, ingest
from agentcore.knowledge.passages import Passage, retrieve
from agentcore.knowledge.reading import Content, read

__all__ = ["Content", "Ingested", "Passage", "delete", "ingest", "read", "retrieve"]
