"""Configurations of the real server in `mcp_server`, and what is seen of it from outside."""

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

PROGRAM = str(Path(__file__).parent / "mcp_server.py")
DEADLINE_S = 60.0

Listening = tuple[str, subprocess.Popen[bytes]]
"""Where a server listens, and its process."""


def local(deeds: Path, name: str = "fake", **settings: Any) -> McpServer:
    """The server as a program that notes in `deeds` what it did."""
    env = {"MCP_DEEDS": str(deeds), **settings.pop("env", {})}
    return McpServer(name=name, command=sys.executable, args=(PROGRAM,), env=env, **settings)


@contextmanager
def listening(deeds: Path, port: int | None = None) -> Generator[Listening]:
    """The server on loopback, at `port` where that was reserved: its address, and its process."""
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


@contextmanager
def reserved_port() -> Generator[int]:
    """A port that nobody listens on, and nobody is given meanwhile who asks for any."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # who asks for it gets it
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


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
