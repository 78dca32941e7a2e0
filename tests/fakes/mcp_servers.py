"""Configurations of the real server in `mcp_server`, and its effects as seen from outside."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from perdure.tools.mcp.servers import McpServer

PROGRAM = str(Path(__file__).parent / "mcp_server.py")
HANDWRITTEN = str(Path(__file__).parent / "handwritten_mcp_server.py")
DEADLINE_S = 60.0


def local(deeds: Path, name: str = "fake", **settings: Any) -> McpServer:
    """Return the server as a program that writes its effects to `deeds`."""
    env = {"MCP_DEEDS": str(deeds), **settings.pop("env", {})}
    return McpServer(name=name, command=sys.executable, args=(PROGRAM,), env=env, **settings)


def light(deeds: Path, name: str, kind: str = "honest", **settings: Any) -> McpServer:
    """Return a server of `kind`, by default with one tool, for tests that are not about MCP itself.

    The returned server loads no library, so it starts in 0.03 CPU-seconds; the real server needs
    0.9.
    """
    env = {"MCP_DEEDS": str(deeds), **settings.pop("env", {})}
    args = (HANDWRITTEN, kind)
    return McpServer(name=name, command=sys.executable, args=args, env=env, **settings)


def pids(deeds: Path) -> list[int]:
    """Return the process ids of all started programs, oldest first."""
    lines = deeds.read_text().splitlines() if deeds.exists() else []
    return [int(line.removeprefix("pid ")) for line in lines if line.startswith("pid ")]


def is_alive(pid: int) -> bool:
    """Return whether the process exists and is no zombie."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


async def until(condition: Any) -> None:
    """Wait until `condition()` is true."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        await asyncio.sleep(0.01)
