"""Configurations of the real server in `mcp_server`, and its effects as seen from outside."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from perdure.tools.mcp.servers import McpServer
from tests.fakes.ports import reserved_port

PROGRAM = str(Path(__file__).parent / "mcp_server.py")
HANDWRITTEN = str(Path(__file__).parent / "handwritten_mcp_server.py")
DEADLINE_S = 60.0

Listening = tuple[str, subprocess.Popen[bytes]]
"""Where a server listens, and its process."""


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


@contextmanager
def listening(deeds: Path, port: int | None = None) -> Generator[Listening]:
    """Run the server on loopback, at `port` if reserved; yield its address and its process."""
    with ExitStack() as stack:
        chosen = port or stack.enter_context(reserved_port())
        process = subprocess.Popen(
            [sys.executable, PROGRAM, "--http", str(chosen)],
            env={**os.environ, "MCP_DEEDS": str(deeds)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait_until_open(chosen, process)
            yield f"http://127.0.0.1:{chosen}/mcp", process
        finally:
            process.kill()
            process.wait()


def _wait_until_open(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert process.poll() is None, "the server has ended"
        assert time.monotonic() < deadline, "the server does not listen"
        time.sleep(0.02)


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
