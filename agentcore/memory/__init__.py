"""Long-term memory: what is known of a user over sessions, kept apart from what an agent is doing now.

`current()` is the project's backend by the setting MEMORY_BACKEND. A model call, where one is needed, is an argument.
"""

from agentcore.memory.base import Item, Kept, MemoryBackend, Recalled, SearchableMemory, Source
from agentcore.memory.registry import current, find_problem
from agentcore.models import MemoryKind, Owner, Shown

__all__ = [
    "Item",
    "Kept",
    "MemoryBackend",
    "MemoryKind",
    "Owner",
    "Recalled",
    "SearchableMemory",
    "Shown",
    "Source",
    "current",
    "find_problem",
]
