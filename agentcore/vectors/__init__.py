"""Texts by meaning: embedders, and indexes of their vectors. Both are chosen by settings."""

from agentcore.vectors.base import Embedder, Embedding, Hit, Item, Kind, VectorIndex
from agentcore.vectors.registry import embedder, index
from agentcore.vectors.sources import Source, Text

__all__ = [
    "Embedder",
    "Embedding",
    "Hit",
    "Item",
    "Kind",
    "Source",
    "Text",
    "VectorIndex",
    "embedder",
    "index",
]
