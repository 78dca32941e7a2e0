"""Configurations of the real server in `mcp_server`, and what is seen of it from outside."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perdure.tools.mcp.servers import McpServer

PROGRAM = str(Path(__file__).parent / "mcp_server.py")
DEADLINE_S = 20.0

Listening = tuple[str, subprocess.Popen[bytes]]
"""Where a server listens, and its process."""


def local(deeds: Path, name: str = "fake", **settings: Any) -> McpServer:
    """The server as a program that notes in `deeds` what it did."""
    env = {"MCP_DEEDS": str(deeds), **settings.pop("env", {})}
    return McpServer(name=name, command=sys.executable, args=(PROGRAM,), env=env, **settings)


@contextmanager
def listening(deeds: Path, port: int | None = None) -> Generator[Listening]:
    """The server on loopback: its address, and its process."""
    chosen = port or free_port()
    process = subprocess.Popen(
        [sys.executable, PROGRAM, "--http", str(chosen)],
        env={**os.environ, "MCP_DEEDS": str(deeds)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_until_open(chosen)
        yield f"http://127.0.0.1:{chosen}/mcp", process
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_open(port: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < deadline, "the server does not listen"
        time.sleep(0.02)


def pids(deeds: Path) -> list[int]:
    """Of all programs that were started, oldest first."""
    lines = deeds.read_text().splitlines() if deeds.exists() else []
    return [int(line.removeprefix("pid ")) for line in lines if line.startswith("pid ")]


def is_alive(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


async def until(condition: Any) -> None:
    """Wait until `condition()` holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        await asyncio.sleep(0.01)
