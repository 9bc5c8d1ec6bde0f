"""State backends: where a turn's hot copy lives while a worker has it. The rows in the database are the truth.

`current()` is the one that AGENTCORE["STATE_BACKEND"] names; `working_memory()` reads through it.
"""

from agentcore.state.base import Phase, StateBackend, phase_of
from agentcore.state.reading import working_memory
from agentcore.state.registry import current

__all__ = ["Phase", "StateBackend", "current", "phase_of", "working_memory"]
