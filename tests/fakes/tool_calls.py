"""Tool calls as a tool sees them."""

from __future__ import annotations

from pathlib import Path

from perdure.tools.spec import ToolCall


def tool_call_of(tool: str, working_dir: Path | None = None, /, **args: object) -> ToolCall:
    """A first call of `tool` with `args`."""
    return ToolCall(
        id="c1",
        tool=tool,
        args=args,
        session_id="s1",
        idempotency_key="key-1",
        attempt=1,
        working_dir=working_dir or Path("nowhere"),
    )
