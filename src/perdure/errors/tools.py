"""Errors of tools. An error of a tool becomes a tool result and never crashes the engine."""

from __future__ import annotations

from perdure.errors.root import PerdureError


class ToolError(PerdureError):
    """A tool failed; the error becomes a tool result and never crashes the engine."""

    code = "tool_error"

    def __init__(self, tool: str, reason: str) -> None:
        super().__init__(f"{tool}: {reason}")
        self.tool = tool
        self.reason = reason


class UnknownTool(ToolError):
    """The model asked for a tool that this session does not have."""

    code = "unknown_tool"

    def __init__(self, tool: str, known: tuple[str, ...]) -> None:
        listed = ", ".join(known) or "none"
        super().__init__(tool, f"unknown tool; available: {listed}")
        self.known = known


class InvalidArguments(ToolError):
    """The arguments do not match the tool's schema."""

    code = "invalid_arguments"


class ToolTimeout(ToolError):
    """The tool exceeded its time limit."""

    code = "tool_timeout"

    def __init__(self, tool: str, limit_s: float) -> None:
        super().__init__(tool, f"no result within {limit_s:g} s")
        self.limit_s = limit_s


class ToolDenied(ToolError):
    """A rule forbids this call of the tool."""

    code = "tool_denied"


class ApprovalStale(ToolError):
    """The facts that a person approved changed before the tool ran; nothing was done."""

    code = "approval_stale"

    def __init__(self, tool: str) -> None:
        super().__init__(tool, "what was approved has changed since; nothing was done")


class ToolLost(ToolError):
    """The connection to the tool broke while the tool ran, so the tool's effect is unknown."""

    code = "tool_lost"


class ToolUnavailable(ToolError):
    """Something that the tool needs is missing on the machine or in the configuration."""

    code = "tool_unavailable"


class McpUnavailable(PerdureError):
    """An MCP server that an agent needs did not start, was unreachable, or replied invalidly."""

    code = "mcp_unavailable"
    retryable = True

    def __init__(self, server: str, reason: str) -> None:
        super().__init__(f"the MCP server {server!r} cannot be used: {reason}")
        self.server = server
        self.reason = reason
