"""Tools: what a model may call. Two of them agents may have as they are.

`tools=(ask_user, search_knowledge_base)`: the first asks the turn's user, the second looks into documents.
"""

from agentcore.tools.asking import ask_user
from agentcore.tools.searching import search_knowledge_base

__all__ = ["ask_user", "search_knowledge_base"]
