"""The tool by which a model asks the user: the engine pauses the turn, and the answer is the call's result."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from agentcore.exceptions import ToolError
from agentcore.tools.decorators import tool

MAX_QUESTION = 10_000


@tool(
    description=(
        "Ask the user one question and wait for the answer, which is this call's result. "
        "Use it only when you cannot go on without something that only the user knows."
    ),
    idempotent=True,
)
def ask_user(
    question: Annotated[
        str,
        Field(
            description="The question, as the user reads it",
            min_length=1,
            max_length=MAX_QUESTION,
            pattern=r"\S",
        ),
    ],
) -> str:
    """Stand for the question; where no turn can wait, as in a plain call, there is nobody to answer."""
    raise ToolError(f"There is no user here who could answer {question[:100]!r}.")


ask_user.definition = replace(ask_user.definition, asks_user=True)
