"""Delegate work to another agent, in its own session (`ToolCall.invoke`)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from perdure.errors import ToolError, ToolUnavailable
from perdure.tools.decorator import tool
from perdure.tools.spec import ToolCall, ToolOutput

INVOKE_AGENT = "invoke_agent"

PATIENCE_S = 366 * 24 * 3600.0
"""Practically no time limit: the other agent may wait for a person, and has its own limits."""

_Said = Annotated[str, Meta(min_length=1)]


@tool(effect="external", on_unknown="retry", timeout_s=PATIENCE_S)
async def invoke_agent(
    agent: Annotated[str, "The id of the agent."],
    input: Annotated[_Said, "Everything it has to know: it sees nothing of this conversation."],
    *,
    call: ToolCall,
) -> ToolOutput:
    """Give a task to another agent and wait for its answer.

    The agent works in its own session, with no tools or permissions that you do not have.
    """
    if call.invoke is None:
        raise ToolUnavailable(call.tool, "there are no other agents here")
    if not input.strip():
        raise ToolError(call.tool, "the input is blank: write what the agent has to know")
    return await call.invoke(call, agent, input)
