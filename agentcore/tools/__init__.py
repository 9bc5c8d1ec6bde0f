"""Tools: what a model may call. `ask_user` is one that agents may have as it is: `tools=(ask_user,)`."""

from agentcore.tools.asking import ask_user

__all__ = ["ask_user"]
