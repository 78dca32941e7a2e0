"""The tool with which an agent ends its session."""

from __future__ import annotations

from perdure.tools.decorator import tool
from perdure.tools.spec import ToolOutput


@tool(effect="read", on_unknown="retry")
async def end_session(reason: str) -> ToolOutput:
    """End this session, because what it was for is done or cannot be done.

    It takes effect when your answer to this turn is finished.

    Args:
        reason: Why it ends, in one sentence.
    """
    text = f"The session ends when this turn is finished ({reason})."
    return ToolOutput(text, ends_session=True)
